"""What the programs of the GPU kernels share."""

import jax
import jax.numpy as jnp


def product(a: jax.Array, b: jax.Array, axis: int = 0) -> jax.Array:
    """Contracts the last axis of the matrix `a` with one of `b`; sums are float32."""
    dimensions = (((1,), (axis,)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def product_over_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Contracts the first axes of two matrices; sums are float32."""
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
