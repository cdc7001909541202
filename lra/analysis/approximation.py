"""How closely each attention approximates the exact one, as a function of its size.

Each is compared with the best approximation of the same rank (`matrices.best_rank_errors`). The
attentions have their initial arrays, not trained ones, except in the rows of variant `own`: those
are the attentions of the workdir's model with what they have learned (mainly Linformer's E).

The exact result is softmax attention, but for Reformer. Its keys are its queries, normalised to
length 1, and a token attends to itself only if it sees no other. What it approaches with more hash
rounds is therefore this kind of attention over all positions at once (a single chunk).
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from lra.analysis.inputs import Inputs
from lra.analysis.matrices import (
    Errors,
    best_rank_errors,
    exact_matrix,
    matrix_errors,
    module_matrix,
)
from lra.command_line import near_match
from lra.errors import UserError
from models.attention import ATTENTIONS, make

DRAWS = 3  # of random arrays, over which errors are averaged
_ROUNDS = (1, 2, 4, 8, 16)  # of hashing
_LARGEST_CHUNK = 64  # of Reformer, the benchmark's
_AT_MOST_THE_LENGTH = ("num_landmarks", "proj_dim", "window")


class Method(NamedTuple):
    """An attention as a function of its size.

    Attributes:
        attention: its name in the registry.
        option: the name of the option that is its size; '' if it has none.
        variant: distinguishes methods with the same attention.
        options: the other options that are not at their defaults.
    """

    attention: str
    option: str
    variant: str = ""
    options: Mapping[str, Any] = types.MappingProxyType({})

    def options_at(self, size: int, length: int) -> dict[str, Any]:
        """What `models.attention.make` takes."""
        options = dict(self.options)
        if self.attention == "reformer":
            options["chunk_length"] = self._chunk_at(length)
        return options | ({self.option: size} if self.option else {})

    def rank_at(self, size: int, length: int) -> int:
        """How many keys a query sees, or a bound on the matrix's rank; at most the length."""
        if self.option == "num_hashes":
            size *= 2 * self._chunk_at(length)
        elif self.option == "window":
            size = 2 * size + 1
        return min(size, length)

    def _chunk_at(self, length: int) -> int:
        return self.options.get("chunk_length", chunk_length(length))


METHODS = (
    # Without its convolution: a connection past the attention, not a part of it.
    Method("nystrom", "num_landmarks", options={"conv_kernel": 0}),
    Method("linformer", "proj_dim", "mean pooling", {"projection": "mean_pool"}),
    Method("linformer", "proj_dim", "random E"),
    Method("performer", "num_features"),
    Method("reformer", "num_hashes"),
    Method("longformer", "window"),
    Method("linear", ""),
)


_WITHOUT_MATRIX = ("max_pool", "conv")


def chunk_length(length: int) -> int:
    """Of Reformer: 64, or a quarter of the length where that is less."""
    return max(1, min(_LARGEST_CHUNK, length // 4))


def choose_methods(names: Iterable[str] | None) -> list[Method]:
    """The methods of the named attentions, by default of all in the registry.

    Raises:
        UserError: an unknown name, or that of the exact attention.
    """
    known = [method for method in METHODS if method.attention in ATTENTIONS]
    known_names = {method.attention for method in known}
    for name in names or ():
        if name == "standard":
            raise UserError("--methods: standard is what the others are compared with")
        if name not in known_names:
            raise UserError(f"--methods: no attention '{name}'{near_match(name, known_names)}")
    return [method for method in known if names is None or method.attention in names]


def sizes_of(method: Method, length: int, wanted: Iterable[int] | None) -> list[int]:
    """The sizes of a curve: the wanted ones that fit the length, or by default powers of two.

    These go from a thirty-second of the length to all of it. The error of Performer falls slowly,
    so its features are powers of four up to eight times the length. Hash rounds are always 1 to 16.
    """
    if not method.option:
        return [0]
    if method.option == "num_hashes":
        return list(_ROUNDS)
    if wanted is None:
        wanted = {2**i for i in range(1, 30) if length // 32 <= 2**i < length} | {length}
        if method.option == "num_features":
            wanted = {4**i for i in range(1, 15) if length // 32 <= 4**i < 8 * length}
        if method.option == "window":
            wanted = {size // 2 for size in wanted}
    if method.option in _AT_MOST_THE_LENGTH:
        wanted = (size for size in wanted if size <= length)
    return sorted(set(wanted))


def too_large(
    methods: Iterable[Method], length: int, wanted: Iterable[int] | None
) -> list[tuple[Method, int]]:
    """Methods and wanted sizes that `sizes_of` leaves out.

    Of several methods with the same option, only the first.
    """
    once = {method.option: method for method in reversed(list(methods))}
    return [
        (method, size)
        for option, method in once.items()
        for size in wanted or ()
        if option in _AT_MOST_THE_LENGTH and size > length
    ]


def approximation_rows(
    inputs: Inputs, methods: list[Method], wanted: Iterable[int] | None
) -> Iterator[dict[str, Any]]:
    """One row a method, size, layer and head: errors averaged over examples and draws."""
    for layer in range(inputs.layers):
        targets: dict[bool, Target] = {}
        for method in methods:
            shares_qk = ATTENTIONS[method.attention].shares_qk
            if shares_qk not in targets:
                targets[shares_qk] = Target(inputs, layer, shares_qk)
            target = targets[shares_qk]
            for size in sizes_of(method, inputs.length, wanted):
                errors, draws = _average_errors(method, size, target)
                yield from _rows(inputs, layer, method, size, draws, errors, target.best)


def own_rows(
    inputs: Inputs, attentions: list[nnx.Module], config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The same rows for a model's own attentions, with all that they have learned.

    There are none for exact attention and for attentions that are not among `METHODS`. There are
    none for one that has no matrix (see `matrices`) either; this is printed.

    Args:
        inputs: of the model.
        attentions: one a layer.
        config: the block `model.attention` of the model's configuration.
    """
    own = [m for m in METHODS if m.attention == config["name"]]
    if not own:
        return
    if config["name"] == "linformer" and config["projection"] in _WITHOUT_MATRIX:
        print(
            f"linformer's projection '{config['projection']}' has no matrix: no errors of its own"
        )
        return
    method = own[-1]._replace(variant="own")
    for layer, attention in enumerate(attentions):
        if config["name"] == "nystrom":
            attention.kernel = None  # as in the curve
        if config["name"] == "reformer":
            method = method._replace(options={"chunk_length": attention.chunk_length})
        target = Target(inputs, layer, attention.shares_qk)
        errors = matrix_errors(target.matrix_of(attention), target.exact, target.v)
        size = config[method.option] if method.option else 0
        if config["name"] == "nystrom":
            size, _ = attention.segments(inputs.length)  # fewer if the model reads longer sequences
        if config["name"] == "linformer":
            size = attention.sizes  # one a head
        yield from _rows(inputs, layer, method, size, 1, errors, target.best)


class Target:
    """The exact attention matrix of one layer, and the errors of its best approximation by rank.

    Args:
        inputs: of all layers.
        layer: index of the layer.
        shares_qk: whether to take Reformer's exact limit, whose keys are the queries.
    """

    def __init__(self, inputs: Inputs, layer: int, shares_qk: bool):
        self.q, k, self.v, self.mask = inputs.layer(layer)
        self.k = self.q if shares_qk else k
        if shares_qk:
            one_chunk = {"chunk_length": inputs.length, "num_hashes": 1}
            self.exact = self.matrix_of(self.make("reformer", one_chunk, 0))
        else:
            self.exact = exact_matrix(self.q, self.k, self.mask)
        self.best = best_rank_errors(self.exact, self.v)

    def make(self, name: str, options: dict[str, Any], draw: int) -> nnx.Module:
        """An attention for these inputs, with the draw's random arrays."""
        _, length, heads, head_dim = self.q.shape
        rngs = nnx.Rngs(params=draw, attention=draw)
        return make(name, length=length, heads=heads, head_dim=head_dim, rngs=rngs, **options)

    def matrix_of(self, attention: nnx.Module) -> jax.Array:
        """The matrix of an attention on these inputs."""
        return module_matrix(*nnx.split(attention), self.q, self.k, self.mask)


def _average_errors(method: Method, size: int, target: Target) -> tuple[Errors, int]:
    """Over draws; [examples, heads]."""
    options = method.options_at(size, target.q.shape[1])
    found = []
    for draw in range(DRAWS):
        attention = target.make(method.attention, options, draw)
        found.append(matrix_errors(target.matrix_of(attention), target.exact, target.v))
        if not jax.tree.leaves(nnx.state(attention)):
            break  # nothing is random in it
    return Errors(*(np.mean(np.stack(x), axis=0) for x in zip(*found, strict=True))), len(found)


def _rows(
    inputs: Inputs,
    layer: int,
    method: Method,
    sizes: int | tuple[int, ...],
    draws: int,
    errors: Errors,
    best: Errors,
) -> Iterator[dict[str, Any]]:
    heads = errors.matrix.shape[1]
    for head, size in enumerate((sizes,) * heads if isinstance(sizes, int) else sizes):
        rank = method.rank_at(size, inputs.length)
        yield {
            "kind": "approximation",
            "data": inputs.data,
            "layer": layer,
            "head": head,
            "method": method.attention,
            "variant": method.variant,
            "option": method.option,
            "size": size,
            "draws": draws,
            "rank": rank,
            "matrix_error": float(np.mean(errors.matrix[:, head])),
            "output_error": float(np.mean(errors.output[:, head])),
            "best_rank_matrix_error": float(np.mean(best.matrix[:, head, rank])),
            "best_rank_output_error": float(np.mean(best.output[:, head, rank])),
        }
