"""Depthwise convolution along the length (`models.attention.convolution`) in two GPU kernels.

Positions are cut into blocks x_i of T. With T x T Toeplitz matrices A, B, C of the kernel,

    out_i = A x_(i-1) + B x_i + C x_(i+1)        dx_i = C^T g_(i-1) + B^T g_i + A^T g_(i+1)
    dA = sum_i g_i x_(i-1)^T    dB = sum_i g_i x_i^T    dC = sum_i g_i x_(i+1)^T

where blocks beyond the ends are 0. XLA writes copies of the input and of its gradient in the
layouts of its products; here a program reads the blocks of one head in place. The matrices are
inputs, made outside, where XLA turns their gradients into that of the kernel.

The kernels are Pallas's, compiled by Triton, with the limits of `models.attention.flash`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from models.attention.padding import padded
from models.kernel_math import product, product_over_rows

_WARPS = 4
_GROUP = 16  # blocks per program: `python -m benchmarks.gpu_kernels`


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(
    x: Float[Array, "batch length heads head_dim"],
    matrices: Float[Array, "heads three block block"],
    interpret: bool = False,
) -> Float[Array, "batch length heads head_dim"]:
    """Convolve `x`, rounding to its dtype.

    Args:
        x: Sequence in 16 bits.
        matrices: A, B and C of each head, in float32, as their gradients are; products take them in
            the dtype of `x`.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.
    """
    return _forward(x, matrices, interpret)[0]


def _forward(x, matrices, interpret):
    whole = padded(x, matrices.shape[-1])
    (out,) = _call(_convolve, [whole], matrices.astype(x.dtype), [], interpret)
    return out[:, : x.shape[1]], (x, matrices)


def _backward(interpret, saved, g):
    x, matrices = saved
    arrays = [padded(y, matrices.shape[-1]) for y in (x, g)]
    narrow = matrices.astype(x.dtype)
    dx, shares = _call(_gradients, arrays, narrow, [matrices[0]], interpret)
    return dx[:, : x.shape[1]], jnp.sum(shares, axis=(0, 1)).astype(matrices.dtype)


convolve.defvjp(_forward, _backward)


def _call(kernel, arrays, matrices, shares, interpret):
    """Run a program per head and group of blocks; return a sequence and each program's shares."""
    x = arrays[0]
    batch, length, heads, head_dim = x.shape
    blocks = length // matrices.shape[-1]
    groups = -(-blocks // _GROUP)
    sequence = pl.BlockSpec((None, length, None, head_dim), lambda i, h, b: (b, 0, h, 0))
    three = pl.BlockSpec((None, *matrices.shape[1:]), lambda i, h, b: (h, 0, 0, 0))
    share = pl.BlockSpec(
        (None, None, None, *matrices.shape[1:]), lambda i, h, b: (b, i, h, 0, 0, 0)
    )
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    shapes += [jax.ShapeDtypeStruct((batch, groups, heads, *y.shape), y.dtype) for y in shares]
    return pl.pallas_call(
        functools.partial(kernel, blocks=blocks),
        grid=(groups, heads, batch),
        in_specs=[*[sequence] * len(arrays), three],
        out_specs=[sequence, *[share] * len(shares)],
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name=kernel.__name__.strip("_"),
    )(*arrays, matrices)


def _convolve(x_ref, matrices_ref, out_ref, *, blocks):
    a, b, c = (matrices_ref[number] for number in range(3))

    def block(i, carry):
        before, here, after = _neighbours(x_ref, i, blocks, a)
        out = product(a, before) + product(b, here) + product(c, after)
        out_ref[_at(i, a), :] = out.astype(out_ref.dtype)
        return carry

    jax.lax.fori_loop(*_own_blocks(blocks), block, 0)


def _gradients(x_ref, g_ref, matrices_ref, dx_ref, share_ref, *, blocks):
    a, b, c = (matrices_ref[number] for number in range(3))

    def block(i, sums):
        before, here, after = _neighbours(g_ref, i, blocks, a)
        dx = product_over_rows(c, before) + product_over_rows(b, here) + product_over_rows(a, after)
        dx_ref[_at(i, a), :] = dx.astype(dx_ref.dtype)
        inputs = _neighbours(x_ref, i, blocks, a)
        return [s + product(here, x, 1) for s, x in zip(sums, inputs, strict=True)]

    start = [jnp.zeros(a.shape, jnp.float32)] * 3
    for number, total in enumerate(jax.lax.fori_loop(*_own_blocks(blocks), block, start)):
        share_ref[number] = total


def _own_blocks(blocks):
    first = pl.program_id(0) * _GROUP
    return first, jnp.minimum(first + _GROUP, blocks)


def _at(i, matrix):
    """The positions of block i, as many as `matrix` has rows."""
    size = matrix.shape[0]
    return pl.ds(i * size, size)


def _neighbours(ref, i, blocks, matrix):
    """The previous block, block i and the next block; 0 beyond the ends."""

    def read(j):
        inside = jnp.clip(j, 0, blocks - 1)
        x = ref[_at(inside, matrix), :]
        return jnp.where(j == inside, x, 0)

    return read(i - 1), ref[_at(i, matrix), :], read(i + 1)
