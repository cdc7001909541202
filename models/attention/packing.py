"""Packing of sequences: real tokens are moved to the front, in order, and cut after the longest.

Where padding lies between tokens (in Pathfinder, 64 % of the pixels are 0), truncating sequences
saves nothing. Everything that a block computes at a position, except attention, depends on that
position alone, so the encoder may skip padding. So can most attentions, by their method
`attend_packed`.

Packing and unpacking are gathers, and each is the other's gradient: nothing is scattered, and
results are deterministic. Time and memory O(length), plus a sort of the positions.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Packing(NamedTuple):
    """Maps between the positions of sequences and of packed sequences.

    Attributes:
        mask: Which positions of the sequence are real.
        packed_mask: Which positions of the packed sequence are real, a prefix.
        sources: Position in the sequence of each packed position.
        slots: Packed position of each real position; arbitrary at padding.
    """

    mask: Bool[Array, "batch length"]
    packed_mask: Bool[Array, "batch packed"]
    sources: Int[Array, "batch packed"]
    slots: Int[Array, "batch length"]


def make_packing(mask: Bool[Array, "batch length"], packed: int) -> Packing:
    """Return the packing into `packed` positions, no fewer than any sequence has real tokens.

    Raises:
        ValueError: `packed` is not in 1 to length.
    """
    length = mask.shape[1]
    if not 1 <= packed <= length:
        raise ValueError(f"cannot pack {length} positions into {packed}")
    positions = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), mask.shape)
    order = jnp.sort(jnp.where(mask, positions, positions + length), axis=1)[:, :packed]
    slots = jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1
    return Packing(mask, order < length, order % length, jnp.clip(slots, 0, packed - 1))


@jax.custom_vjp
def pack(
    x: Float[Array, "batch length *features"], packing: Packing
) -> Float[Array, "batch packed *features"]:
    """Return the real positions of `x`, followed by zeros."""
    return _take(x, packing.sources, packing.packed_mask)


@jax.custom_vjp
def spread(
    x: Float[Array, "batch packed *features"], packing: Packing
) -> Float[Array, "batch length *features"]:
    """Undo `pack`: move positions of `x` back to where they were, with zeros at padding."""
    return _take(x, packing.slots, packing.mask)


def _take(x: Array, positions: Array, real: Array) -> Array:
    """`x` at `positions`, and 0 where not `real`."""
    # All features along one axis: a TPU pads the last one to 128, be it the 32 of a head.
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    rows = jnp.take_along_axis(flat, positions[..., None], axis=1, mode="promise_in_bounds")
    return jnp.where(real[..., None], rows, 0).reshape(*positions.shape, *x.shape[2:])


pack.defvjp(lambda x, packing: (pack(x, packing), packing), lambda p, g: (spread(g, p), None))
spread.defvjp(lambda x, packing: (spread(x, packing), packing), lambda p, g: (pack(g, p), None))
