"""The matrix of an attention, its error, and the best approximation of every rank.

For fixed queries and keys almost every attention here is linear in its values: out = M v. Its
matrix M is therefore its output for the identity matrix as values, however the attention computes
it. Two have no such matrix: Linformer's max pooling is not linear in the values, and its
convolution mixes their channels.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from models.attention.contract import Heads, Mask
from models.attention.standard import standard_attention

Attend = Callable[[Array, Array, Array, Array], Array]


class Errors(NamedTuple):
    """Relative Frobenius errors of a matrix M' for M, |M' - M| / |M| and |M' v - M v| / |M v|."""

    matrix: Float[Array, "batch heads"]
    output: Float[Array, "batch heads"]


def attention_matrix(
    attend: Attend, q: Heads, k: Heads, mask: Mask
) -> Float[Array, "batch heads length length"]:
    """Return M with attend(q, k, v, mask) = M v for every v; rows of masked queries are 0.

    The identity is fed in blocks of `head_dim` columns, so that values keep their width. Takes
    O(length^2) time and memory.
    """
    return _matrix_and_outputs(attend, q, k, mask, jnp.zeros((0, *q.shape), q.dtype))[0]


def _matrix_and_outputs(
    attend: Attend,
    q: Heads,
    k: Heads,
    mask: Mask,
    values: Float[Array, "values batch length heads head_dim"],
) -> tuple[Array, Array]:
    """Return the matrix, and attend(q, k, v, mask) for each v of `values`, by one call."""
    batch, length, heads, head_dim = q.shape
    identity = jnp.eye(length, length + -length % head_dim, dtype=q.dtype)
    blocks = jnp.swapaxes(identity.reshape(length, -1, head_dim), 0, 1)
    blocks = jnp.broadcast_to(blocks[:, None, :, None, :], (len(blocks), *q.shape))
    outputs = jax.vmap(lambda v: attend(q, k, v, mask))(jnp.concatenate([blocks, values]))
    columns = jnp.einsum("cbihd->bhicd", outputs[: len(blocks)])
    matrix = columns.reshape(batch, heads, length, -1)[..., :length]
    return jnp.where(mask[:, None, :, None], matrix, 0), outputs[len(blocks) :]


def exact_matrix(q: Array, k: Array, mask: Array) -> Float[Array, "batch heads length length"]:
    """Return P = softmax(q k^T / sqrt(head_dim)) over real positions, 0 elsewhere."""
    return attention_matrix(standard_attention, q, k, mask)


@functools.partial(jax.jit, static_argnums=0)
def module_matrix(
    graphdef: nnx.GraphDef, state: nnx.State, q: Array, k: Array, mask: Array
) -> Float[Array, "batch heads length length"]:
    """Return the matrix of a split attention module; compiles once per graphdef and shapes."""
    return attention_matrix(nnx.merge(graphdef, state), q, k, mask)


@functools.partial(jax.jit, static_argnums=0)
def module_matrix_and_output(
    graphdef: nnx.GraphDef, state: nnx.State, q: Array, k: Array, v: Array, mask: Array
) -> tuple[Float[Array, "batch heads length length"], Heads]:
    """Return the matrix of a split attention module, and its output for v, from one program."""
    attend = nnx.merge(graphdef, state)
    matrix, (output,) = _matrix_and_outputs(attend, q, k, mask, v[None])
    return matrix, output


def matrix_errors(
    matrix: Float[Array, "batch heads length length"],
    exact: Float[Array, "batch heads length length"],
    v: Heads,
) -> Errors:
    """Return errors of `matrix` for `exact`, on `v`; 0 if `exact` (or its product with v) is 0."""
    difference = matrix - exact
    return Errors(
        _ratio(_norm(difference), _norm(exact)),
        _ratio(_norm(_apply(difference, v)), _norm(_apply(exact, v))),
    )


def best_rank_errors(
    exact: Float[np.ndarray, "batch heads length length"],
    v: Float[np.ndarray, "batch length heads head_dim"],
) -> Errors:
    """Return the errors of the best approximation of each rank r from 0 to the length, at [..., r].

    It consists of the r largest singular values and their vectors (Eckart and Young; Linformer's
    Equation 6). No other matrix of that rank is closer to M; another's product with v may be closer
    to M v.

    With M = U S W and U, W orthogonal, |M - M_r|^2 is the sum of S_i^2 over the dropped i, and
    |M v - M_r v|^2 that of S_i^2 |(W v)_i|^2.
    """
    _, singular, w = np.linalg.svd(np.asarray(exact), full_matrices=False)
    weights = np.sum(np.square(np.einsum("bhil,blhd->bhid", w, np.asarray(v))), axis=-1)
    return Errors(_tails(singular**2), _tails(singular**2 * weights))


def _tails(squares: np.ndarray) -> np.ndarray:
    """Return the root of the sum from each index on, relative to the whole; 0 past the last."""
    sums = np.cumsum(squares[..., ::-1], axis=-1)[..., ::-1]
    sums = np.concatenate([sums, np.zeros_like(sums[..., :1])], axis=-1)
    return np.sqrt(sums / np.where(sums[..., :1] > 0, sums[..., :1], 1))


def _apply(matrix: Array, v: Array) -> Array:
    return jnp.einsum("bhij,bjhd->bhid", matrix, v)


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=(-2, -1)))


def _ratio(part: Array, whole: Array) -> Array:
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1), 0)
