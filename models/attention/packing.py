"""Sequences packed: their real tokens moved to the front, in order, and cut behind the longest.

Where padding lies between tokens (in Pathfinder, 64 % of the pixels are 0), cutting the ends off
saves nothing. All that a block computes at a position, attention aside, concerns that position
alone, so the encoder may leave out the rest. Most attentions can too (`attend_packed`).

Both ways are gathers, and each is the other's gradient: nothing is scattered, and results are
deterministic. Time and memory O(length), and a sort of the positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from models.attention.contract import Heads


class Packing(NamedTuple):
    """Where tokens come from and go to.

    Attributes:
        mask: which positions are real; of the whole sequence.
        packed_mask: the same of the packed one, a prefix.
        sources: of each packed position, where it was.
        slots: of each real position, where it is packed; arbitrary at padding.
    """

    mask: Bool[Array, "batch length"]
    packed_mask: Bool[Array, "batch packed"]
    sources: Int[Array, "batch packed"]
    slots: Int[Array, "batch length"]


def make_packing(mask: Bool[Array, "batch length"], packed: int) -> Packing:
    """The packing to `packed` positions, no fewer than any sequence has real ones.

    Raises:
        ValueError: `packed` is not from 1 to the length.
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
    """The real positions of `x`, then zeros."""
    return _taken(x, packing.sources, packing.packed_mask)


@jax.custom_vjp
def spread(
    x: Float[Array, "batch packed *features"], packing: Packing
) -> Float[Array, "batch length *features"]:
    """The packed positions of `x` where they were, and zeros at padding: undoes `pack`."""
    return _taken(x, packing.slots, packing.mask)


def attend_packed(
    attention: nnx.Module, q: Heads, k: Heads, v: Heads, packing: Packing, *, key: Array | None
) -> Heads:
    """Attention between packed sequences, of any module of the contract.

    One that asks only for the order of tokens (`reads_positions = False`) takes them as they are;
    one with a method `attend_packed` takes them with the packing; for others they are spread out.
    """
    if not getattr(attention, "reads_positions", True):
        return attention(q, k, v, packing.packed_mask, key=key)
    if hasattr(attention, "attend_packed"):
        return attention.attend_packed(q, k, v, packing, key=key)
    q, k, v = (spread(x, packing) for x in (q, k, v))
    return pack(attention(q, k, v, packing.mask, key=key), packing)


def _taken(x: Array, places: Array, real: Array) -> Array:
    features = (1,) * (x.ndim - 2)
    places, real = (each.reshape(*each.shape, *features) for each in (places, real))
    rows = jnp.take_along_axis(x, places, axis=1, mode="promise_in_bounds")
    return jnp.where(real, rows, 0)


pack.defvjp(lambda x, to: (pack(x, to), to), lambda to, gradient: (spread(gradient, to), None))
spread.defvjp(lambda x, to: (spread(x, to), to), lambda to, gradient: (pack(gradient, to), None))
