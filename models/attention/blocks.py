"""Blocks of consecutive positions: cut from, written to and summed in arrays, inside loops.

Arrays are [batch, heads, length, width] unless an axis is named; a loop's updates are in place.
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from models.dtypes import accumulation_dtype
from models.machine import Machine, this_backend

_MULTIPLE = 8

# Bytes of scores that one step of a loop computes. On a CPU they fit into a core's cache (tuned).
# Elsewhere they fill the device, so that few kernels are launched, but take a small part of its
# memory (not tuned).
_CPU_TILE_BYTES = 2**18
_TILE_BYTES = 2**28
_TILES_IN_MEMORY = 64


def tile_bytes(machine: Machine) -> int:
    """The size of a tile of scores.

    Where several devices share a batch, it is the size for all of them together.
    """
    if machine.backend == "cpu":
        return _CPU_TILE_BYTES
    return max(_TILE_BYTES, (machine.memory or 0) // _TILES_IN_MEMORY)


def even_size(length: int, largest: int) -> int:
    """A size of at most `largest`, rounded up to a multiple of 8: equal blocks, little padding."""
    count = -(-length // max(largest, _MULTIPLE))
    size = -(-length // count)
    return -(-size // _MULTIPLE) * _MULTIPLE


def padded(x: jax.Array, size: int, value: float | int = 0) -> jax.Array:
    """Completes axis 1 to a multiple of `size`."""
    return padded_to(x, -(-x.shape[1] // size) * size, value)


def padded_to(x: jax.Array, length: int, value: float | int = 0) -> jax.Array:
    """Completes axis 1 to `length`."""
    missing = length - x.shape[1]
    widths = [(0, missing) if axis == 1 else (0, 0) for axis in range(x.ndim)]
    return jnp.pad(x, widths, constant_values=value) if missing else x


_leaves_out_padding = contextvars.ContextVar("leaves_out_padding", default=True)


@contextlib.contextmanager
def whole_sequences() -> Iterator[None]:
    """Inside, loops over blocks are traced with set turns, padding or not.

    For analyses, which count what a program does, and where devices share a batch: to agree on
    the number of turns they would have to communicate. A function that was traced before keeps
    its trace.
    """
    token = _leaves_out_padding.set(False)
    try:
        yield
    finally:
        _leaves_out_padding.reset(token)


def used_blocks(mask: Bool[Array, "batch length"], size: int) -> Int[Array, ""] | int:
    """The number of blocks up to the last position that is real in any example.

    On a CPU, that is. An accelerator's batch nearly always has a sequence of about full length, and
    its loops go through all blocks.

    Under `vmap` it is the same number for all. Numbers of their own would make a loop with as many
    turns copy the arrays of those that are done, turn by turn.
    """
    if this_backend() != "cpu" or not _leaves_out_padding.get():
        return mask.shape[1] // size
    return (_end(mask) + size - 1) // size


@jax.custom_batching.custom_vmap
def _end(mask):
    positions = 1 + jnp.arange(mask.shape[1], dtype=jnp.int32)
    return jnp.max(jnp.where(mask, positions, 0))


@_end.def_vmap
def _end_of_all(axis_size, in_batched, mask):
    return _end(jnp.any(mask, axis=0)), False


def head_major(x: jax.Array) -> jax.Array:
    """[batch, i, j, width] -> [batch, j, i, width]."""
    return jnp.swapaxes(x, 1, 2)


@functools.partial(jax.tree_util.register_dataclass, data_fields=("bits",), meta_fields=("dtype",))
@dataclasses.dataclass(frozen=True)
class Stored:
    """An array of 16-bit floats, held as integers of their bits."""

    bits: jax.Array
    dtype: jnp.dtype


def stored(x: jax.Array) -> jax.Array | Stored:
    """`x` in the form in which a loop should read or write its blocks; inverted by `restored`.

    XLA's CPU backend moves 16-bit floats as float32: for every block written it would convert the
    whole array to float32 and back, and it would keep a float32 copy of what is read. Integers are
    moved as they are. So on a CPU 16-bit floats are stored as integers of their bits; all other
    arrays are returned unchanged.

    Only for functions with a hand-written gradient: bits have none, and asking for one raises
    TypeError.
    """
    if this_backend() == "cpu" and x.dtype.itemsize == 2:
        return Stored(_bits(x), x.dtype)
    return x


def restored(x: jax.Array | Stored) -> jax.Array:
    """The array that `stored` was given."""
    return jax.lax.bitcast_convert_type(x.bits, x.dtype) if isinstance(x, Stored) else x


@jax.custom_jvp
def _bits(x: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, jnp.uint16)


@_bits.defjvp
def _no_gradient(primals, tangents):
    raise TypeError("no derivative passes through the bits of an array: write the gradient out")


def read_block(x: jax.Array | Stored, number: jax.Array, size: int, axis: int = 2) -> jax.Array:
    """Block `number` of `size` positions."""
    # `Stored` is a tree with one leaf, other arrays are leaves.
    slices = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, number * size, size, axis), x)
    return restored(slices)


def write_block(
    x: jax.Array | Stored, block: jax.Array, number: jax.Array, axis: int = 2
) -> jax.Array | Stored:
    """`x` with block `number` replaced, rounded to the format of `x`."""
    if isinstance(x, Stored):
        bits = _bits(block.astype(x.dtype))
        return Stored(write_block(x.bits, bits, number, axis), x.dtype)
    start = number * block.shape[axis]
    return jax.lax.dynamic_update_slice_in_dim(x, block.astype(x.dtype), start, axis)


def add_to_block(
    x: jax.Array | Stored, block: jax.Array, number: jax.Array, axis: int = 2
) -> jax.Array | Stored:
    """`x` with `block` added to block `number` in the dtype of `block`; kept in that of `x`.

    An array to whose blocks much is added must therefore have the wider dtype itself.
    """
    old = read_block(x, number, block.shape[axis], axis)
    return write_block(x, old.astype(block.dtype) + block, number, axis)


def product(spec: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """The einsum of two arrays, in at least float32."""
    return jnp.einsum(spec, a, b, preferred_element_type=accumulation_dtype(a.dtype))


def row_sums(x: jax.Array) -> jax.Array:
    """The sums over the width, as a row: [batch, heads, 1, length].

    As a product with ones: XLA's CPU sums over a short last axis take 10 times as long.
    """
    ones = jnp.ones((*x.shape[:2], 1, x.shape[3]), x.dtype)
    return jnp.einsum("bhod,bhld->bhol", ones, x, precision=jax.lax.Precision.HIGHEST)
