"""Blocks of consecutive positions, read from and written to arrays inside loops.

Arrays are [batch, heads, length, width] unless an axis is given; a loop updates them in place.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from models.attention.padding import ends, round_up
from models.dtypes import accumulation_dtype
from models.machine import Machine, skips_padding, this_backend

_MULTIPLE = 8

# Bytes of scores that one loop step computes. On a CPU they fit into a core's cache (tuned).
# Elsewhere they are many, so that few kernels are launched, but take a small part of the device's
# memory (not tuned). On TPUs `models.attention.chunked` has tiles of its own.
_CPU_TILE_BYTES = 2**18
_TILE_BYTES = 2**28
_TILES_IN_MEMORY = 64


class Blocks(NamedTuple):
    """Numbers of queries and keys of a block of scores."""

    queries: int
    keys: int


def tile_bytes(machine: Machine) -> int:
    """Return the size in bytes of a tile of scores.

    For a batch sharded over several devices, it is the size for all of them together.
    """
    if machine.backend == "cpu":
        return _CPU_TILE_BYTES
    return max(_TILE_BYTES, (machine.memory or 0) // _TILES_IN_MEMORY)


def even_size(length: int, largest: int) -> int:
    """Return the size of equal blocks with little padding: a multiple of 8, up to `largest`.

    If `largest` is not a multiple of 8, the size may be the next one.
    """
    count = -(-length // max(largest, _MULTIPLE))
    return round_up(-(-length // count), _MULTIPLE)


def used_blocks(mask: Bool[Array, "batch length"], size: int) -> Int[Array, ""] | int:
    """Return the number of blocks that a loop should visit.

    On a CPU these are the blocks up to the last position that is real in any example. On an
    accelerator, whose batches nearly always contain a sequence of about full length, they are all
    blocks.

    Under `vmap` the number is the same for all batch elements. With separate numbers, every step of
    the loop would copy the arrays of the elements that have finished.
    """
    if this_backend() != "cpu" or not skips_padding():
        return mask.shape[1] // size
    return (_end(mask) + size - 1) // size


@jax.custom_batching.custom_vmap
def _end(mask):
    return jnp.max(ends(mask))


@_end.def_vmap
def _end_of_all(axis_size, in_batched, mask):
    return _end(jnp.any(mask, axis=0)), False


def swap_heads(x: jax.Array) -> jax.Array:
    """Swap the axes of length and heads: [batch, i, j, width] -> [batch, j, i, width]."""
    return jnp.swapaxes(x, 1, 2)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("bits",), meta_fields=("dtype",))
@dataclasses.dataclass(frozen=True)
class Stored:
    """An array of 16-bit floats, stored as the integers with the same bits; see `stored`."""

    bits: jax.Array
    dtype: jnp.dtype


def stored(x: jax.Array) -> jax.Array | Stored:
    """Return `x` in the form in which a loop should access its blocks; inverted by `restored`.

    On a CPU 16-bit floats are stored as the integers with the same bits; all other arrays are
    returned unchanged. The XLA of JAX 0.10.2 moves 16-bit floats as float32: for every block
    written it converts the whole array to float32 and back, and it keeps a float32 copy of arrays
    that are read. Plain arrays therefore need 1.4 to 1.7 times the memory there, and with Nyström
    4 times the time. With JAX 0.12 plain arrays need less memory: this function and `Stored` can go
    once 0.12 is the oldest supported version.

    It is only for functions with a hand-written gradient: bits have no gradient, and asking for one
    raises TypeError.
    """
    if this_backend() == "cpu" and x.dtype.itemsize == 2:
        return Stored(_bits(x), x.dtype)
    return x


def restored(x: jax.Array | Stored) -> jax.Array:
    """Return the array that was given to `stored`."""
    return jax.lax.bitcast_convert_type(x.bits, x.dtype) if isinstance(x, Stored) else x


@jax.custom_jvp
def _bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


@_bits.defjvp
def _no_gradient(primals, tangents):
    raise TypeError("no derivative passes through the bits of an array: write the gradient out")


def read_block(
    x: jax.Array | Stored, number: jax.Array | int, size: int, axis: int = 2
) -> jax.Array:
    """Return block `number` of `size` positions."""
    # `Stored` is a pytree with one leaf, other arrays are leaves.
    slices = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * size, size, axis), x)
    return restored(slices)


def write_block(
    x: jax.Array | Stored, block: jax.Array, number: jax.Array | int, axis: int = 2
) -> jax.Array | Stored:
    """Return `x` with block `number` replaced by `block`, rounded to the dtype of `x`."""
    if isinstance(x, Stored):
        bits = _bits(block.astype(x.dtype))
        return Stored(write_block(x.bits, bits, number, axis), x.dtype)
    start = number * block.shape[axis]
    return jax.lax.dynamic_update_slice_in_dim(x, block.astype(x.dtype), start, axis)


def add_to_block(
    x: jax.Array | Stored, block: jax.Array, number: jax.Array | int, axis: int = 2
) -> jax.Array | Stored:
    """Return `x` with `block` added to block `number`.

    The sum is computed in the dtype of `block` but stored in that of `x`, so an array that
    accumulates many blocks needs a wide dtype itself.
    """
    old = read_block(x, number, block.shape[axis], axis)
    return write_block(x, old.astype(block.dtype) + block, number, axis)


def wide_einsum(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the einsum of two arrays, in at least float32."""
    return jnp.einsum(spec, a, b, preferred_element_type=accumulation_dtype(a.dtype))


def row_sums(x: jax.Array) -> jax.Array:
    """Return the sums over the width, as a row [batch, heads, 1, length].

    This is a product with ones: on a CPU, XLA's sums over an axis of 32 take 1.4 to 2.7 times as
    long; those over 64 or more take the same time (JAX 0.10.2 and 0.12.0.1).
    """
    ones = jnp.ones((*x.shape[:2], 1, x.shape[3]), x.dtype)
    return jnp.einsum("bhod,bhld->bhol", ones, x, precision=jax.lax.Precision.HIGHEST)
