"""Decides which inputs go to Pallas's GPU kernels.

Pallas takes a fifth of a second to import. So this module does not import it, and callers import a
kernel only where they run it.
"""

import math

import jax.numpy as jnp
from jax.typing import DTypeLike

from models.machine import Machine

LEAST_SIDE = 16  # smallest side of a block that Triton multiplies
ROWS = 64  # rows per block of `models.fused` and `models.embedding_kernel`
CONVOLVED = 64  # positions per block of `models.attention.convolution_kernels`
_LEAST_FEATURES = 64  # of Performer: one block
# Beyond these sizes, blocks do not stay in registers.
_WIDEST = 64
_LONGEST_CHUNK = 64  # of Reformer
_LARGEST_VOCABULARY = 272  # bytes and 16 more ids


def preferred_for_heads(dtype: DTypeLike, head_dim: int, machine: Machine) -> bool:
    """Whether attention should use its kernel: 16-bit inputs on one GPU.

    Float32 without tensor cores would leave little to gain; it was not timed.
    """
    return machine.runs_kernels and jnp.dtype(dtype).itemsize == 2 and _fits(head_dim)


def preferred_for_rows(
    rows: tuple[int, ...], widths: tuple[int, int, int], dtype: DTypeLike, machine: Machine
) -> bool:
    """Whether to use `models.fused`, whose programs hold all weights of a block in registers.

    Args:
        rows: Sizes of the axes before the features.
        widths: Widths of the residual stream, of attention and of the MLP's hidden layer.
        dtype: Dtype of the activations.
        machine: Machine that computes.
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
    """Whether to use `models.embedding_kernel`, whose programs hold the whole table's gradient."""
    return (
        machine.runs_kernels
        and jnp.dtype(dtype).itemsize == 2
        and length % ROWS == 0
        and _fits(dim)
        and vocabulary <= _LARGEST_VOCABULARY
    )


def preferred_for_matrices(size: int, dtype: DTypeLike, machine: Machine) -> bool:
    """Whether to use `models.attention.pinv_kernel`, for float32 matrices [size, size]."""
    takes = machine.runs_kernels and machine.inverts
    return takes and jnp.dtype(dtype) == jnp.float32 and _fits(size)


def preferred_for_features(
    dtype: DTypeLike, features: int, head_dim: int, machine: Machine
) -> bool:
    """Whether to use `models.attention.favor_kernels`, whose inputs are bfloat16."""
    return (
        jnp.dtype(dtype) == jnp.bfloat16
        and preferred_for_heads(dtype, head_dim, machine)
        and features >= _LEAST_FEATURES
        and is_power_of_two(features)
    )


def preferred_for_chunks(
    dtype: DTypeLike, head_dim: int, chunk_length: int, machine: Machine
) -> bool:
    """Whether to use `models.attention.reformer_kernels`, whose blocks are chunks."""
    return (
        preferred_for_heads(dtype, head_dim, machine)
        and LEAST_SIDE <= chunk_length <= _LONGEST_CHUNK
        and is_power_of_two(chunk_length)
    )


def preferred_for_convolution(
    dtype: DTypeLike, head_dim: int, width: int, machine: Machine
) -> bool:
    """Whether to use `models.attention.convolution_kernels`.

    A convolution kernel of `width` must not reach beyond the neighbouring blocks.
    """
    return preferred_for_heads(dtype, head_dim, machine) and width <= 2 * CONVOLVED


def _fits(side: int) -> bool:
    """Whether blocks with a side of this size can be multiplied and stay in registers."""
    return LEAST_SIDE <= side <= _WIDEST and is_power_of_two(side)


def is_power_of_two(number: int) -> bool:
    """Whether `number` is a power of two, as Triton requires of the sides of blocks."""
    return number > 0 and not number & (number - 1)
