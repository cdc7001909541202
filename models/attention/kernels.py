"""Which inputs are left to Pallas's kernels for GPUs; without importing Pallas, which is slow."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from models.attention.machine import Machine

LEAST_HEAD_DIM = 16  # Triton's products contract at least so much
_WIDEST = 64  # beyond, blocks do not stay in registers


def preferred(dtype: DTypeLike, head_dim: int, machine: Machine) -> bool:
    """Whether a kernel is the faster choice: 16-bit inputs, on one GPU.

    Float32 without tensor cores would leave little to gain; it was not timed.
    """
    return (
        machine.runs_kernels
        and jnp.dtype(dtype).itemsize == 2
        and LEAST_HEAD_DIM <= head_dim <= _WIDEST
        and is_power_of_two(head_dim)
    )


def is_power_of_two(number: int) -> bool:
    """Whether Triton's blocks may have this size."""
    return number > 0 and not number & (number - 1)
