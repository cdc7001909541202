"""Token embedding whose gradient is the same in every run, on every kind of device.

Many positions share a token, so the gradient of a look-up adds many rows into few. A scatter does
that in a fixed order on a CPU only. Elsewhere it is a product with the one-hot matrix, which has
one order and, for vocabularies of a few hundred ids, costs little on a matrix unit.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from models.attention.machine import this_backend


def lookup(
    table: Float[Array, "vocabulary dim"], ids: Int[Array, "*shape"], dtype: DTypeLike
) -> Float[Array, "*shape dim"]:
    """`table[ids]`, in the format of `table`; every id must be within the table.

    Args:
        table: the rows.
        ids: of tokens.
        dtype: of the activations. The rows' gradients are numbers of this format: they are
            multiplied in it, and added up in the format of `table`.
    """
    narrow = min(jnp.dtype(dtype), table.dtype, key=lambda each: each.itemsize)
    return _lookup(table, ids, table.shape[0], narrow)


def row_major(x: Float[Array, "*shape dim"]) -> Float[Array, "*shape dim"]:
    """`x`, which a GPU is to keep in memory in the order of its axes, its gradient too.

    The gradient of learned positions is a sum over the batch. For its sake XLA's GPU backend lays
    out all activations with the batch innermost, and transposes them for every product: in a step
    of Image 2.0 GB more of memory traffic (22.5 instead of 20.4 GB with Linformer, then without
    cuDNN) and 25 kernels, counted as by `benchmarks.gpu_traffic` (JAX 0.11; not timed).
    """
    if this_backend() != "gpu":
        return x
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _lookup(table: Array, ids: Array, vocabulary: int, dtype: jnp.dtype) -> Array:
    del vocabulary, dtype  # for the backward pass
    return jnp.take(table, ids, axis=0, mode="clip")


def sum_by_scatter(
    ids: Int[Array, " n"], rows: Float[Array, "n dim"], vocabulary: int
) -> Float[Array, "{vocabulary} dim"]:
    """Adds each row to that of its id, in order."""
    return jnp.zeros((vocabulary, rows.shape[1]), rows.dtype).at[ids].add(rows)


def sum_by_product(
    ids: Int[Array, " n"], rows: Float[Array, "n dim"], vocabulary: int, dtype: DTypeLike
) -> Float[Array, "{vocabulary} dim"]:
    """The same as a product with the one-hot matrix of the ids, both factors in `dtype`."""
    one_hot = jax.nn.one_hot(ids, vocabulary, dtype=dtype)
    narrow = rows.astype(dtype)
    return jnp.einsum("nv,nd->vd", one_hot, narrow, preferred_element_type=rows.dtype)


def _forward(table: Array, ids: Array, vocabulary: int, dtype: jnp.dtype) -> tuple[Array, Array]:
    return _lookup(table, ids, vocabulary, dtype), ids


def _backward(vocabulary: int, dtype: jnp.dtype, ids: Array, gradient: Array) -> tuple[Array, None]:
    ids, rows = ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1])
    total = jax.lax.platform_dependent(
        ids,
        rows,
        cpu=lambda ids, rows: sum_by_scatter(ids, rows, vocabulary),
        default=lambda ids, rows: sum_by_product(ids, rows, vocabulary, dtype),
    )
    return total, None


_lookup.defvjp(_forward, _backward)
