"""Padding of sequences: up to a multiple, and masked positions as 0."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from models.attention.contract import Mask


def round_up(number: int, multiple: int) -> int:
    """Return `number` rounded up to a multiple of `multiple`."""
    return -(-number // multiple) * multiple


def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of `number` up to `limit`, which is at least 1."""
    return max(n for n in range(1, min(number, limit) + 1) if number % n == 0)


def padded(
    x: Shaped[Array, "batch length *features"], size: int, value: float | int = 0
) -> Shaped[Array, "batch padded *features"]:
    """Pad the length to a multiple of `size`."""
    return padded_to(x, round_up(x.shape[1], size), value)


def padded_to(
    x: Shaped[Array, "batch length *features"], length: int, value: float | int = 0
) -> Shaped[Array, "batch padded *features"]:
    """Pad the length to `length`."""
    missing = length - x.shape[1]
    widths = [(0, missing) if axis == 1 else (0, 0) for axis in range(x.ndim)]
    return jnp.pad(x, widths, constant_values=value) if missing else x


def ends(mask: Bool[Array, "*axes length"]) -> Int[Array, "*axes"]:
    """Return how many positions of each sequence there are up to its last real one."""
    positions = 1 + jnp.arange(mask.shape[-1], dtype=jnp.int32)
    return jnp.max(jnp.where(mask, positions, 0), axis=-1)


def zeroed(
    x: Float[Array, "batch length *features"], mask: Mask
) -> Float[Array, "batch length *features"]:
    """Return `x` with 0 at masked positions, whatever is there."""
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (x.ndim - 2)), x, 0)
