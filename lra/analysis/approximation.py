"""How closely each attention approximates exact attention, as a function of its size.

Each is compared with the best approximation of the same rank (`matrices.best_rank_errors`). The
attentions have their initial arrays, not trained ones, except in the rows of variant `own`, which
use the attentions of the workdir's model with what they have learned (mainly Linformer's E).

Exact attention is softmax attention, except for Reformer. Its keys are its queries, normalised to
length 1, and a token attends to itself only if it sees no other. So it is compared with this kind
of attention over all positions at once (a single chunk). More hash rounds come closer to it, but
not all the way, since a pair that meets in several rounds counts several times.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from lra.analysis.inputs import Inputs
from lra.analysis.matrices import (
    Errors,
    best_rank_errors,
    exact_matrix,
    matrix_errors,
    module_matrix,
    module_matrix_and_output,
)
from lra.analysis.methods import Method, methods_of, sizes_of
from lra.errors import UserError
from models.attention import ATTENTIONS, make
from models.attention.contract import Attention
from models.attention.padding import zeroed

DRAWS = 3  # number of draws of random arrays over which errors are averaged
_MOST_NONLINEAR = 1e-4  # relative error of M v above which an attention has no matrix M


class NoMatrixError(UserError):
    """An attention has no matrix (`lra.analysis.matrices`)."""


def approximation_rows(
    inputs: Inputs, methods: list[Method], wanted: Iterable[int] | None
) -> Iterator[dict[str, Any]]:
    """Yield a row per method, size, layer and head: errors averaged over examples and draws.

    Raises:
        UserError: A method has no matrix, or its default options do not fit the length.
    """
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
    inputs: Inputs, attentions: list[Attention], config: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the same rows for a model's own attentions, with all that they have learned.

    There are none for exact attention, and for one that has no matrix, which is printed.

    Args:
        inputs: Inputs of the model's attentions.
        attentions: Attentions of the model, one per layer.
        config: Config block `model.attention` of the model.
    """
    name = config["name"]
    if name == "standard":
        return
    method = (methods_of(name) or [Method(name, "")])[-1]._replace(variant="own")
    for layer, attention in enumerate(attentions):
        if name == "nystrom":
            attention = nnx.clone(attention)
            attention.kernel = None  # without its convolution, as in `METHODS`
        if name == "reformer":
            method = method._replace(options={"chunk_length": attention.chunk_length})
        target = Target(inputs, layer, attention.shares_qk)
        try:
            matrix = target.checked_matrix_of(attention, name)
        except NoMatrixError as error:
            print(f"{error}: no errors of its own")
            return
        errors = matrix_errors(matrix, target.exact, target.v)
        size = config[method.option] if method.option else 0
        if name == "nystrom":
            size, _ = attention.segments(inputs.length)  # fewer if the model reads longer sequences
        if name == "linformer":
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

    def make(self, name: str, options: dict[str, Any], draw: int) -> Attention:
        """Return an attention for these inputs, with the random arrays of a draw."""
        _, length, heads, head_dim = self.q.shape
        rngs = nnx.Rngs(params=draw, attention=draw)
        sizes = {"length": length, "heads": heads, "head_dim": head_dim}
        try:
            return make(name, **sizes, rngs=rngs, **options)
        except ValueError as error:  # of default options
            raise UserError(f"{name} does not fit {length} positions: {error}") from error

    def matrix_of(self, attention: Attention) -> jax.Array:
        """Return the matrix of an attention on these inputs."""
        return module_matrix(*nnx.split(attention), self.q, self.k, self.mask)

    def checked_matrix_of(self, attention: Attention, name: str) -> jax.Array:
        """Return the same matrix; raise NoMatrixError if outputs are not linear in the values."""
        matrix, out = module_matrix_and_output(
            *nnx.split(attention), self.q, self.k, self.v, self.mask
        )
        expected = zeroed(out, self.mask)
        difference = jnp.einsum("bhij,bjhd->bihd", matrix, self.v) - expected
        if jnp.linalg.norm(difference) > _MOST_NONLINEAR * jnp.linalg.norm(expected):
            raise NoMatrixError(f"{name} has no matrix, as its outputs are not linear in values")
        return matrix


def _average_errors(method: Method, size: int, target: Target) -> tuple[Errors, int]:
    """Return errors [examples, heads] averaged over draws, and the number of draws."""
    options = method.options_at(size, target.q.shape[1])
    errors = []
    for draw in range(DRAWS):
        attention = target.make(method.attention, options, draw)
        matrix = target.checked_matrix_of(attention, method.attention)
        errors.append(matrix_errors(matrix, target.exact, target.v))
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
