"""Operations that the GPU kernels share."""

import jax
import jax.numpy as jnp

from models.dropout import keep_entries, keep_probability


def product(a: jax.Array, b: jax.Array, axis: int = 0) -> jax.Array:
    """Contract the last axis of the matrix `a` with `axis` of `b`, summing in float32."""
    dimensions = (((1,), (axis,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def product_over_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Contract the first axes of two matrices, summing in float32."""
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)


def dropped(x: jax.Array, dropout: float, seeds: jax.Array) -> jax.Array:
    """`models.dropout.dropped` for a block of rows, in float32."""
    entries = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
    keep = keep_entries(seeds[:, None], entries, dropout)
    return jnp.where(keep, x.astype(jnp.float32) * (1 / keep_probability(dropout)), 0)
