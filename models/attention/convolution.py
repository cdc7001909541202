"""Depthwise convolution along the length, as products of blocks with Toeplitz matrices.

    out[i] = sum_j kernel[j] x[i + j - (width - 1) // 2]        x is 0 beyond its ends

with one kernel for all features of a head: a cross-correlation, not flipped. Positions are cut into
blocks of T; a block of outputs is a T x (T + width - 1) Toeplitz matrix of the kernel times the
inputs it reaches: the T of its own block, and width - 1 of the next (after the leading zeros have
shifted the input). Every backend is good at products of small matrices: forward and backward at
width 35, with 2 heads of 32 or 12 of 64 and lengths 1,024 to 8,192 on one CPU core, a sum of
shifted products takes 4 to 9 times as long as this, `lax.conv_general_dilated` 14 to 46 times
(`python -m benchmarks.depthwise_convolution`).

On one GPU, in 16 bits, the kernels of `models.attention.convolution_kernels` compute it.

Time O(length (T + width) head_dim), memory O(length head_dim).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from models import kernel_choice
from models.attention.contract import Heads
from models.dense import kernel_einsum
from models.machine import this_machine

# Larger blocks multiply more zeros: 128 takes 1.25 to 1.4 times as long (same benchmark).
_BLOCK = 64


def depthwise_convolution(
    x: Heads, kernel: Float[Array, "heads width"], *, block: int = _BLOCK
) -> Heads:
    """Correlate each head of `x` with its kernel, preserving the length.

    `x` is padded with (width - 1) // 2 zeros before and width // 2 after: equally if the width is
    odd, with one more after if it is even. `block` is the number T of positions in a block, at
    least width - 1 are taken; the kernels have their own.
    """
    batch, length, heads, head_dim = x.shape
    width = kernel.shape[1]
    before = (width - 1) // 2
    if kernel_choice.preferred_for_convolution(x.dtype, head_dim, width, this_machine()):
        # Pallas is slow to import.
        from models.attention.convolution_kernels import convolve

        return convolve(x, three_blocks(kernel))
    size = max(block, width - 1)
    count = -(-length // size)
    after = (count + 1) * size - length - before
    x = jnp.pad(x, ((0, 0), (before, after), (0, 0), (0, 0)))
    x = x.reshape(batch, count + 1, size, heads, head_dim)
    kernel = _toeplitz(kernel, size)
    out = kernel_einsum("hti,bcihd->bcthd", kernel[..., :size], x[:, :-1])
    out += kernel_einsum("hti,bcihd->bcthd", kernel[..., size:], x[:, 1:, : width - 1])
    return out.reshape(batch, count * size, heads, head_dim)[:, :length].astype(x.dtype)


def three_blocks(kernel: Float[Array, "heads width"]) -> Float[Array, "heads three block block"]:
    """Return the Toeplitz matrices that multiply the previous, own and next block of inputs.

    Raises:
        ValueError: The kernel reaches beyond these blocks.
    """
    width, size = kernel.shape[1], kernel_choice.CONVOLVED
    before = (width - 1) // 2
    if width - 1 > 2 * size:
        raise ValueError(f"a kernel of width {width} reaches beyond the next block of {size}")
    matrix = _toeplitz(kernel, size)
    matrix = jnp.pad(matrix, ((0, 0), (0, 0), (size - before, 3 * size)))[..., : 3 * size]
    return jnp.swapaxes(matrix.reshape(len(kernel), size, 3, size), 1, 2)


def _toeplitz(kernel: Float[Array, "heads width"], size: int) -> Float[Array, "heads size reach"]:
    """Return the matrix with kernel[h, i - t] at [h, t, i], 0 elsewhere; reach = size + width - 1.

    Without a gather: repeating a row of length reach + 1 and reshaping the result to rows of length
    reach shifts each row by one.
    """
    heads, width = kernel.shape
    reach = size + width - 1
    row = jnp.pad(kernel, ((0, 0), (0, reach + 1 - width)))
    rows = jnp.broadcast_to(row[:, None, :], (heads, size, reach + 1))
    return rows.reshape(heads, -1)[:, : size * reach].reshape(heads, size, reach)
