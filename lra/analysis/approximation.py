"""How closely each attention approximates exact attention, as a function of its size.

Each is compared with the best approximation of the same rank (`matrices.best_rank_errors`). The
attentions have their initial arrays, not trained ones, except in the rows of variant `own`, which
use the attentions of the workdir's model with what they have learned (mainly Linformer's E).

Exact attention is softmax attention, except for Reformer. Its keys are its queries, normalised to
length 1, and a token attends to itself only if it sees no other. So it is compared with this kind
of attention over all positions at once (a single chunk). More hash rounds come closer to it, but
not all the way, since a pair that meets in several rounds counts several times.
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

DRAWS = 3  # number of draws of random arrays over which errors are averaged
_ROUNDS = (1, 2, 4, 8, 16)  # hash rounds
_LARGEST_CHUNK = 64  # Reformer's chunk length in the benchmark
# Options whose value bounds the rank of the attention matrix.
_RANKS = ("num_landmarks", "proj_dim", "num_features")
_AT_MOST_THE_LENGTH = ("num_landmarks", "proj_dim", "window")
_WITHOUT_MATRIX = ("max_pool", "conv")  # projections of Linformer


class Method(NamedTuple):
    """An attention as a function of its size.

    Attributes:
        attention: Name of the attention in the registry.
        option: Name of the option that is its size; '' if it has none.
        variant: Label that distinguishes methods with the same attention.
        options: Other options that are not at their defaults.
    """

    attention: str
    option: str
    variant: str = ""
    options: Mapping[str, Any] = types.MappingProxyType({})

    def options_at(self, size: int, length: int) -> dict[str, Any]:
        """Return the options for `models.attention.make`."""
        options = dict(self.options)
        if self.attention == "reformer":
            options["chunk_length"] = self._chunk_at(length)
        return options | ({self.option: size} if self.option else {})

    def rank_at(self, size: int, length: int) -> int | None:
        """Return a bound on the matrix's rank, or the number of keys that a query sees.

        It is at most the length, and None if the size is neither.
        """
        if self.option == "num_hashes":
            size *= 2 * self._chunk_at(length)
        elif self.option == "window":
            size = 2 * size + 1
        elif self.option not in _RANKS:
            return None
        return min(size, length)

    def _chunk_at(self, length: int) -> int:
        return self.options.get("chunk_length", chunk_length(length))


METHODS = (
    # Without its convolution, which is a skip connection around the attention, not part of it.
    Method("nystrom", "num_landmarks", options={"conv_kernel": 0}),
    Method("linformer", "proj_dim", "mean pooling", {"projection": "mean_pool"}),
    Method("linformer", "proj_dim", "random E"),
    Method("performer", "num_features"),
    Method("reformer", "num_hashes"),
    Method("longformer", "window"),
    Method("linear", ""),
)


def chunk_length(length: int) -> int:
    """Return Reformer's chunk length: 64, or a quarter of the length if that is less."""
    return max(1, min(_LARGEST_CHUNK, length // 4))


def choose_methods(names: Iterable[str] | None) -> list[Method]:
    """Return the methods of the named attentions, by default of all in the registry.

    Raises:
        UserError: A name is unknown, or that of exact attention.
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
    """Return the sizes of a curve: those wanted that fit the length, by default powers of two.

    The default goes from a thirty-second of the length to all of it. The error of Performer falls
    slowly, so its features are powers of four up to eight times the length. Hash rounds are always
    1 to 16.
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
    """Return methods and wanted sizes that `sizes_of` leaves out.

    Only the first of several methods with the same option is named.
    """
    first_of_option = {method.option: method for method in reversed(list(methods))}
    return [
        (method, size)
        for option, method in first_of_option.items()
        for size in wanted or ()
        if option in _AT_MOST_THE_LENGTH and size > length
    ]


def approximation_rows(
    inputs: Inputs, methods: list[Method], wanted: Iterable[int] | None
) -> Iterator[dict[str, Any]]:
    """Yield a row per method, size, layer and head: errors averaged over examples and draws."""
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
    """Yield the same rows for a model's own attentions, with all that they have learned.

    There are none for exact attention, for attentions that are not among `METHODS`, and for one
    that has no matrix (see `matrices`); the last case is printed.

    Args:
        inputs: Inputs of the model's attentions.
        attentions: Attentions of the model, one per layer.
        config: Config block `model.attention` of the model.
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
            attention = nnx.clone(attention)
            attention.kernel = None  # without its convolution, as in `METHODS`
        if config["name"] == "reformer":
            method = method._replace(options={"chunk_length": attention.chunk_length})
        target = Target(inputs, layer, attention.shares_qk)
        errors = matrix_errors(target.matrix_of(attention), target.exact, target.v)
        size = config[method.option] if method.option else 0
        if config["name"] == "nystrom":
            size, _ = attention.segments(inputs.length)  # fewer if the model reads longer sequences
        if config["name"] == "linformer":
            size = attention.sizes  # one per head
        yield from _rows(inputs, layer, method, size, 1, errors, target.best)


class Target:
    """The exact attention matrix of one layer, and the errors of its best approximation by rank.

    Args:
        inputs: Inputs of all layers.
        layer: Index of the layer.
        shares_qk: Whether the queries are the keys, as in what Reformer is compared with.
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
        """Return an attention for these inputs, with the random arrays of a draw."""
        _, length, heads, head_dim = self.q.shape
        rngs = nnx.Rngs(params=draw, attention=draw)
        return make(name, length=length, heads=heads, head_dim=head_dim, rngs=rngs, **options)

    def matrix_of(self, attention: nnx.Module) -> jax.Array:
        """Return the matrix of an attention on these inputs."""
        return module_matrix(*nnx.split(attention), self.q, self.k, self.mask)


def _average_errors(method: Method, size: int, target: Target) -> tuple[Errors, int]:
    """Return errors [examples, heads] averaged over draws, and the number of draws."""
    options = method.options_at(size, target.q.shape[1])
    errors = []
    for draw in range(DRAWS):
        attention = target.make(method.attention, options, draw)
        errors.append(matrix_errors(target.matrix_of(attention), target.exact, target.v))
        if not jax.tree.leaves(nnx.state(attention)):
            break  # the attention has no random arrays
    return Errors(*(np.mean(np.stack(x), axis=0) for x in zip(*errors, strict=True))), len(errors)


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
            "best_rank_matrix_error": _mean_at(best.matrix, head, rank),
            "best_rank_output_error": _mean_at(best.output, head, rank),
        }


def _mean_at(errors: np.ndarray, head: int, rank: int | None) -> float | None:
    """Return the mean over examples of errors [examples, heads, rank] at a rank, if it is known."""
    return None if rank is None else float(np.mean(errors[:, head, rank]))
