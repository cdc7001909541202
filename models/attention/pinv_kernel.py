"""Iteration towards the pseudo-inverse (`models.attention.nystrom`) in two GPU kernels.

    X = A Z    t = 7 I - X    u = 15 I - X t    w = 13 I - X u    Z <- Z w / 4

XLA runs each product and each difference as a kernel that reads and writes all matrices of the
batch: with 64 landmarks, most of the memory traffic of a training step of Nyströmformer. Here a
program takes one matrix and keeps it on the chip. The forward kernel writes each step's initial Z,
its X and its w. With D the gradient of a step's result, divided by 4, the backward kernel computes

    H = Z^T D    K = H X^T    M = X^T H
    dX = 7 (K + M) - 15 H - K X^T - X^T (K + M)      since w = 13 I - 15 X + 7 X^2 - X^3
    dA <- dA + dX Z^T    D <- (D w^T + A^T dX) / 4

Products are as exact as float32 ones: three bfloat16 numbers make up a float32 number, and six
products a float32 product (arXiv 1904.06376). Three TF32 products would need as many tensor-core
operations, but tensor cores take no transposed 32-bit matrices.

The kernels are Pallas's, compiled by Triton, with the limits of `models.attention.flash`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

_WARPS = 4  # as many as multiply 64 rows without repeating each other's work
_PARTS = 3  # bfloat16 numbers per float32 number


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def iterate(
    a: Float[Array, "*batch m m"],
    z: Float[Array, "*batch m m"],
    iterations: int,
    interpret: bool = False,
) -> Float[Array, "*batch m m"]:
    """Return Z after `iterations` steps from `z`, in float32; m is a power of two from 16 to 64.

    Args:
        a: Matrices to be inverted.
        z: Starting point.
        iterations: Number of steps, at least 1.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.
    """
    return _forward(a, z, iterations, interpret, keep=False)[0]


def _forward(a, z, iterations, interpret, *, keep=True):
    size = a.shape[-1]
    a, rows = a.reshape(-1, size, size), z.reshape(-1, size, size)
    step_matrices = jax.ShapeDtypeStruct((len(a), iterations, size, size), a.dtype)
    saved = [step_matrices] * 3 if keep else []
    kernel = functools.partial(_steps, iterations=iterations)
    out, *saved = _call(kernel, [a, rows], [a, *saved], interpret)
    return out.reshape(z.shape), (a, saved)


def _backward(iterations, interpret, residuals, g):
    a, saved = residuals
    kernel = functools.partial(_gradients, iterations=iterations)
    da, dz = _call(kernel, [a, *saved, g.reshape(a.shape)], [a, a], interpret)
    return da.reshape(g.shape), dz.reshape(g.shape)


iterate.defvjp(_forward, _backward)


def _call(kernel, inputs, outputs, interpret):
    return pl.pallas_call(
        kernel,
        grid=(len(inputs[0]),),
        in_specs=[_own(x) for x in inputs],
        out_specs=[_own(x) for x in outputs],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=interpret,
        name=f"pinv{kernel.func.__name__}",
    )(*inputs)


def _own(x):
    """Spec of a program's own matrix."""
    return pl.BlockSpec((None, *x.shape[1:]), lambda i: (i, *(0,) * (len(x.shape) - 1)))


def _steps(a_ref, z_ref, out_ref, *kept, iterations):
    """Write the last Z and, if `kept` is not empty, each step's Z, X and w."""
    a = _parts(a_ref[...])

    def step(number, z):
        z_parts = _parts(z)
        x = _product(a, z_parts, (1, 0))
        x_parts = _parts(x)
        u = _less(15, _product(x_parts, _parts(_less(7, x)), (1, 0)))
        w = _less(13, _product(x_parts, _parts(u), (1, 0)))
        for ref, value in zip(kept, (z, x, w), strict=False):
            ref[number] = value
        return 0.25 * _product(z_parts, _parts(w), (1, 0))

    out_ref[...] = jax.lax.fori_loop(0, iterations, step, z_ref[...])


def _gradients(a_ref, z_steps, x_steps, w_steps, g_ref, da_ref, dz_ref, *, iterations):
    """Write the gradients of A and of the starting point."""
    a = _parts(a_ref[...])

    def step(back, gradients):
        number = iterations - 1 - back
        da, dz = gradients
        d, z, x = _parts(0.25 * dz), _parts(z_steps[number]), _parts(x_steps[number])
        h = _product(z, d, (0, 0))
        h_parts = _parts(h)
        k = _product(h_parts, x, (1, 1))
        both = k + _product(x, h_parts, (0, 0))
        dx = 7 * both - 15 * h - _product(_parts(k), x, (1, 1)) - _product(x, _parts(both), (0, 0))
        dx = _parts(dx)
        dz = _product(d, _parts(w_steps[number]), (1, 1)) + _product(a, dx, (0, 0))
        return da + _product(dx, z, (1, 1)), dz

    start = jnp.zeros(a_ref.shape, jnp.float32), g_ref[...]
    da_ref[...], dz_ref[...] = jax.lax.fori_loop(0, iterations, step, start)


def _parts(x):
    """bfloat16 numbers that add up to `x`, largest first: each the upper bits of the remainder.

    Truncating takes fewer operations than rounding, and 3 times 8 bits are those of float32, too.
    """
    parts = []
    for _ in range(_PARTS):
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
        upper = (bits >> 16).astype(jnp.uint16)
        parts.append(jax.lax.bitcast_convert_type(upper, jnp.bfloat16))
        x = x - jax.lax.bitcast_convert_type(bits & jnp.uint32(0xFFFF0000), jnp.float32)
    return parts


def _product(a, b, axes):
    """Product of two matrices in parts, without terms below the rounding of float32."""
    dimensions = (((axes[0],), (axes[1],)), ((), ()))
    total = 0.0
    for order in reversed(range(_PARTS)):  # the smallest first
        for part in range(order + 1):
            total += jax.lax.dot_general(
                a[part], b[order - part], dimensions, preferred_element_type=jnp.float32
            )
    return total


def _less(multiple, x):
    """multiple I - x."""
    row = jnp.arange(x.shape[0], dtype=jnp.int32)
    return jnp.where(row[:, None] == row[None], multiple - x, -x)
