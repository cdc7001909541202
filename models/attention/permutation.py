"""Permutation of positions whose gradient is a gather by the inverse rather than a scatter."""

import jax
from jaxtyping import Array, Float, Int


@jax.custom_vjp
def permute(
    x: Float[Array, "length ..."], order: Int[Array, " length"], inverse: Int[Array, " length"]
) -> Float[Array, "length ..."]:
    """Return x[order]; `inverse` is the inverse of the permutation `order`."""
    del inverse  # used in the backward pass
    return x.at[order].get(mode="promise_in_bounds", unique_indices=True)


def _forward(x: Array, order: Array, inverse: Array) -> tuple[Array, tuple[Array, Array]]:
    return permute(x, order, inverse), (order, inverse)


def _backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, None, None]:
    order, inverse = residuals
    return permute(gradient, inverse, order), None, None


permute.defvjp(_forward, _backward)
