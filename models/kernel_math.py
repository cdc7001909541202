"""Operations that the GPU kernels share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt

from models.dropout import keep_entries, keep_probability


def product(
    a: Float[Array, "rows inner"], b: Float[Array, "_ _"], axis: int = 0
) -> Float[Array, "rows columns"]:
    """Contract the last axis of the matrix `a` with `axis` of `b`, summing in float32."""
    dimensions = (((1,), (axis,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def product_over_rows(a: Float[Array, "rows m"], b: Float[Array, "rows n"]) -> Float[Array, "m n"]:
    """Contract the first axes of two matrices, summing in float32."""
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def dropped_in_kernel(
    x: Float[Array, "rows width"], dropout: float, seeds: UInt[Array, " rows"]
) -> Float[Array, "rows width"]:
    """`models.dropout.dropped` for a block of rows, in float32."""
    entries = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
    keep = keep_entries(seeds[:, None], entries, dropout)
    return jnp.where(keep, x.astype(jnp.float32) * (1 / keep_probability(dropout)), 0)
