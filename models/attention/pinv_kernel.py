"""The iteration towards the pseudo-inverse (`models.attention.nystrom`) in two GPU kernels.

    az = A Z    t = 7 I - az    u = 15 I - az t    w = 13 I - az u    Z <- Z w / 4

XLA makes each product and each difference a kernel that reads and writes all matrices of the
batch: with 64 landmarks, most of what a training step of Nyströmformer moves through memory. Here a
program takes one matrix and keeps it on the chip. The forward kernel writes the Z that each step
starts from, its az and its u, from which the backward kernel makes the rest.

The kernels are Pallas's, compiled by Triton, with the limits of `models.attention.flash`.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

# Of compiled kernels at 64 landmarks, the forward one spills no registers, the other the fewest.
_FORWARD_WARPS, _BACKWARD_WARPS = 4, 8


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def iterate(
    a: Float[Array, "*batch m m"],
    z: Float[Array, "*batch m m"],
    iterations: int,
    interpret: bool = False,
) -> Float[Array, "*batch m m"]:
    """Z after `iterations` steps from `z`, in float32; m is a power of two from 16 to 64.

    Args:
        a: the matrices to be inverted.
        z: the starting point.
        iterations: at least 1.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.
    """
    return _forward(a, z, iterations, interpret, keep=False)[0]


def _forward(a, z, iterations, interpret, *, keep=True):
    size = a.shape[-1]
    a, rows = a.reshape(-1, size, size), z.reshape(-1, size, size)
    saved = [jax.ShapeDtypeStruct((len(a), iterations, size, size), a.dtype)] * (3 * keep)
    kernel = functools.partial(_steps, iterations=iterations, interpret=interpret)
    out, *saved = _call(kernel, [a, rows], [a, *saved], _FORWARD_WARPS, interpret)
    return out.reshape(z.shape), (a, saved)


def _backward(iterations, interpret, residuals, g):
    a, saved = residuals
    kernel = functools.partial(_gradients, iterations=iterations, interpret=interpret)
    starts = saved[0]
    arrays = [a, *saved, g.reshape(a.shape)]
    d_az, dz = _call(kernel, arrays, [starts, a], _BACKWARD_WARPS, interpret)
    da = jnp.einsum("nkij,nklj->nil", d_az, starts, precision=jax.lax.Precision.HIGHEST)
    return da.reshape(g.shape), dz.reshape(g.shape)


iterate.defvjp(_forward, _backward)


def _call(kernel, inputs, outputs, warps, interpret):
    return pl.pallas_call(
        kernel,
        grid=(len(inputs[0]),),
        in_specs=[_own(x) for x in inputs],
        out_specs=[_own(x) for x in outputs],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs],
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )(*inputs)


def _own(x):
    """What a program gets: the entries of its matrix."""
    return pl.BlockSpec((None, *x.shape[1:]), lambda i: (i, *(0,) * (len(x.shape) - 1)))


def _steps(a_ref, z_ref, out_ref, *kept, iterations, interpret):
    """Writes the last Z and, if asked for, each step's Z, az and u."""
    product, a = _products(interpret), a_ref[...]

    def step(number, z):
        az = product(a, z)
        u = _less(15, product(az, _less(7, az)))
        for ref, x in zip(kept, (z, az, u), strict=False):
            ref[number] = x
        return 0.25 * product(z, _less(13, product(az, u)))

    out_ref[...] = jax.lax.fori_loop(0, iterations, step, z_ref[...])


def _gradients(
    a_ref, z_steps, az_steps, u_steps, g_ref, d_az_ref, dz_ref, *, iterations, interpret
):
    """The gradient of each step's az, and that of the starting point."""
    product = _products(interpret)

    def step(back, dz):
        number = iterations - 1 - back
        dw = 0.25 * product(z_steps[number], dz, (0, 0))
        w = _less(13, product(az_steps[number], u_steps[number]))
        dz = 0.25 * product(dz, w, (1, 1))
        d_az = -product(dw, u_steps[number], (1, 1))
        du = -product(az_steps[number], dw, (0, 0))
        d_az -= product(du, _less(7, az_steps[number]), (1, 1))
        d_az += product(az_steps[number], du, (0, 0))
        d_az_ref[number] = d_az
        return dz + product(a_ref[...], d_az, (0, 0))

    dz_ref[...] = jax.lax.fori_loop(0, iterations, step, g_ref[...])


def _less(multiple, x):
    """multiple I - x."""
    row = jnp.arange(x.shape[0], dtype=jnp.int32)
    return jnp.where(row[:, None] == row[None], multiple - x, -x)


def _products(interpret):
    """A function of two matrices and of the axis of each that is contracted."""
    # Three products of TF32 make one of float32, on tensor cores; CPUs have neither.
    three = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    precision = jax.lax.Precision.HIGHEST if interpret else three

    def product(a, b, axes=(1, 0)):
        dimensions = (((axes[0],), (axes[1],)), ((), ()))
        return jax.lax.dot_general(a, b, dimensions, precision=precision)

    return product
