"""Which inputs are left to Pallas's kernels for GPUs; without importing Pallas, which is slow."""

import math

import jax.numpy as jnp
from jax.typing import DTypeLike

from models.machine import Machine

LEAST_SIDE = 16  # of blocks that Triton multiplies
ROWS = 64  # that `models.fused` and `models.embedding_kernel` take at a time
_WIDEST = 64  # beyond, blocks do not stay in registers
_LONGEST_CHUNK = 64  # of Reformer, likewise
_LARGEST_VOCABULARY = 272  # likewise: bytes and 16 more


def preferred_for_heads(dtype: DTypeLike, head_dim: int, machine: Machine) -> bool:
    """Whether a kernel is the faster choice: 16-bit inputs, on one GPU.

    Float32 without tensor cores would leave little to gain; it was not timed.
    """
    return (
        machine.runs_kernels
        and jnp.dtype(dtype).itemsize == 2
        and LEAST_SIDE <= head_dim <= _WIDEST
        and is_power_of_two(head_dim)
    )


def preferred_for_rows(
    rows: tuple[int, ...], widths: tuple[int, int, int], dtype: DTypeLike, machine: Machine
) -> bool:
    """The same of `models.fused`, whose programs hold all weights of a block in registers.

    Args:
        rows: the axes in front of the features.
        widths: of the residual stream, of attention, of the perceptron's hidden layer.
        dtype: of the activations.
        machine: that computes.
    """
    return (
        machine.runs_kernels
        and jnp.dtype(dtype).itemsize == 2
        and math.prod(rows) % ROWS == 0
        and all(width >= LEAST_SIDE and is_power_of_two(width) for width in widths)
        and max(widths[:2]) <= _WIDEST
        and widths[2] <= 2 * _WIDEST
    )


def preferred_for_embedding(
    length: int, vocabulary: int, dim: int, dtype: DTypeLike, machine: Machine
) -> bool:
    """The same of `models.embedding_kernel`, whose programs hold the gradient of all tokens."""
    return (
        machine.runs_kernels
        and jnp.dtype(dtype).itemsize == 2
        and length % ROWS == 0
        and LEAST_SIDE <= dim <= _WIDEST
        and is_power_of_two(dim)
        and vocabulary <= _LARGEST_VOCABULARY
    )


def preferred_for_matrices(size: int, dtype: DTypeLike, machine: Machine) -> bool:
    """The same of `models.attention.pinv_kernel`: float32 matrices of so many rows and columns."""
    fits = LEAST_SIDE <= size <= _WIDEST and is_power_of_two(size)
    return machine.runs_kernels and jnp.dtype(dtype) == jnp.float32 and fits


def preferred_for_chunks(
    dtype: DTypeLike, head_dim: int, chunk_length: int, machine: Machine
) -> bool:
    """The same of Reformer's chunks, whose sides are those of blocks."""
    return (
        preferred_for_heads(dtype, head_dim, machine)
        and LEAST_SIDE <= chunk_length <= _LONGEST_CHUNK
        and is_power_of_two(chunk_length)
    )


def preferred_for_convolution(
    dtype: DTypeLike, head_dim: int, width: int, machine: Machine
) -> bool:
    """The same of `models.attention.convolution_kernels`, whose blocks reach into the next ones."""
    return preferred_for_heads(dtype, head_dim, machine) and width <= 2 * _WIDEST


def is_power_of_two(number: int) -> bool:
    """Whether Triton's blocks may have this size."""
    return number > 0 and not number & (number - 1)
