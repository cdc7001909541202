"""Token embedding with a deterministic gradient on every kind of device.

Many positions share a token, so the gradient of a look-up adds many rows into few. A scatter does
that in a fixed order on a CPU only. Elsewhere it is a product with the one-hot matrix, whose order
is fixed and which, for vocabularies of a few hundred ids, costs little on a matrix unit. On one
GPU, in 16 bits, `models.embedding_kernel` computes this gradient and that of the positions.
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from models.machine import this_backend


def lookup(
    table: Float[Array, "vocabulary dim"], ids: Int[Array, "*shape"], dtype: DTypeLike
) -> Float[Array, "*shape dim"]:
    """Return `table[ids]` in the dtype of `table`; every id must be within the table.

    Args:
        table: Embedding table.
        ids: Token ids.
        dtype: Dtype of the activations, and so of the values of the rows' gradients: they are
            multiplied in it, and summed in the dtype of `table`.
    """
    narrow = min(jnp.dtype(dtype), table.dtype, key=lambda dtype: dtype.itemsize)
    return _lookup(table, ids, table.shape[0], narrow)


def add_positions(
    x: Float[Array, "batch length dim"], position: Float[Array, "length dim"]
) -> Float[Array, "batch length dim"]:
    """Add the same position embeddings to every example.

    On a GPU their gradient, a sum over the batch, is a product with ones. With a plain sum XLA lays
    out all activations with the batch innermost, and transposes them for every product: a step of
    Image moves 11.5 GB instead of 9.6 with Linformer, in 23 more kernels (counted by
    `benchmarks.gpu_traffic` before there were Pallas kernels). A layout constraint makes it 9.5 GB,
    but devices that share a batch then gather all of it.
    """
    return _add_positions(x, position) if this_backend() == "gpu" else x + position[None]


@jax.custom_vjp
def _add_positions(x: Array, position: Array) -> Array:
    return x + position[None]


def _sum_over_batch(_: None, gradient: Array) -> tuple[Array, Array]:
    # Two rows: XLA would turn a product with a single row back into the sum.
    ones = jnp.ones((2, len(gradient)), gradient.dtype)
    total = jnp.einsum("nb,bld->nld", ones, gradient, precision=jax.lax.Precision.HIGHEST)
    return gradient, total[0]


_add_positions.defvjp(lambda x, position: (x + position[None], None), _sum_over_batch)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _lookup(table: Array, ids: Array, vocabulary: int, dtype: jnp.dtype) -> Array:
    del vocabulary, dtype  # used in the backward pass
    return jnp.take(table, ids, axis=0, mode="clip")


def sum_by_scatter(
    ids: Int[Array, " n"], rows: Float[Array, "n dim"], vocabulary: int
) -> Float[Array, "{vocabulary} dim"]:
    """Sum the rows of each id, in order."""
    return jnp.zeros((vocabulary, rows.shape[1]), rows.dtype).at[ids].add(rows)


def sum_by_product(
    ids: Int[Array, " n"], rows: Float[Array, "n dim"], vocabulary: int, dtype: DTypeLike
) -> Float[Array, "{vocabulary} dim"]:
    """Sum the rows of each id by a product with the one-hot matrix, both factors in `dtype`."""
    one_hot = jax.nn.one_hot(ids, vocabulary, dtype=dtype)
    narrow = rows.astype(dtype)
    return jnp.einsum("nv,nd->vd", one_hot, narrow, preferred_element_type=rows.dtype)


def _forward(table: Array, ids: Array, vocabulary: int, dtype: jnp.dtype) -> tuple[Array, Array]:
    return _lookup(table, ids, vocabulary, dtype), ids


def _backward(vocabulary: int, dtype: jnp.dtype, ids: Array, gradient: Array) -> tuple[Array, None]:
    ids, rows = ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1])
    if this_backend() == "cpu":
        return sum_by_scatter(ids, rows, vocabulary), None
    return sum_by_product(ids, rows, vocabulary, dtype), None


_lookup.defvjp(_forward, _backward)
