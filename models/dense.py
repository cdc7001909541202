"""Products with parameters, whose gradients are fast and summed in the parameters' own dtype.

JAX's own gradient of a kernel is a product followed by a transpose, which XLA turns into a product
of two transposed matrices. On a CPU that is slower: 650 against 260 us at width 64 (one core, 2,048
positions), and a quarter slower at width 768. Here the gradient is computed in the layout in which
it is needed.

The gradient of a parameter is a sum over all positions of a batch, and over devices. Summed in
bfloat16, a bias's gradient would be off by several percent, so biases are added in float32. A
kernel is cast inside the function with the custom gradient, so that its gradient is the float32
result of a product and is never rounded.

Reverse mode only (`jax.custom_vjp`).
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from models.dtypes import accumulation_dtype, common_dtype


@jax.custom_vjp
def times_kernel(
    x: Float[Array, "*shape fan_in"], kernel: Float[Array, "fan_in fan_out"]
) -> Float[Array, "*shape fan_out"]:
    """Return `x @ kernel` in the dtype of `x`; the gradient of `kernel` has the kernel's dtype."""
    return jnp.einsum("...i,io->...o", x, kernel.astype(x.dtype))


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return times_kernel(x, kernel), (x, kernel)


def _backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    rows = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    d_x = jnp.einsum("...o,io->...i", gradient, kernel.astype(x.dtype))
    return d_x, _sums("li,lo->io", *rows, kernel.dtype).astype(kernel.dtype)


times_kernel.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def kernel_einsum(
    subscripts: str, kernel: Float[Array, "..."], x: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Einsum of a kernel and activations, multiplied in the dtype of `x` and summed in float32.

    Args:
        subscripts: `kernel,x->out` without `...`; each axis is in at least two of the three.
        kernel: Kernel in its own dtype, which its gradient has too.
        x: Activations.

    Returns:
        The result in at least float32.
    """
    return _sums(subscripts, kernel.astype(x.dtype), x, jnp.float32)


def _einsum_forward(subscripts: str, kernel: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return kernel_einsum(subscripts, kernel, x), (kernel, x)


def _einsum_backward(
    subscripts: str, residuals: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    kernel, x = residuals
    inputs, out = subscripts.split("->")
    kernel_axes, x_axes = inputs.split(",")
    gradient = gradient.astype(x.dtype)
    d_kernel = _sums(f"{out},{x_axes}->{kernel_axes}", gradient, x, kernel.dtype)
    d_x = jnp.einsum(f"{kernel_axes},{out}->{x_axes}", kernel.astype(x.dtype), gradient)
    return d_kernel.astype(kernel.dtype), d_x


kernel_einsum.defvjp(_einsum_forward, _einsum_backward)


def _sums(subscripts: str, a: Array, b: Array, dtype: DTypeLike) -> Array:
    """Einsum with sums in at least `dtype`."""
    return jnp.einsum(subscripts, a, b, preferred_element_type=common_dtype(a.dtype, dtype))


def uniform_within(fan_in: int) -> nnx.Initializer:
    """Initialiser uniform within ±1/sqrt(fan in), PyTorch's default for Linear and Conv."""
    bound = fan_in**-0.5

    def initialise(key: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return initialise


class Linear(nnx.Linear):
    """`nnx.Linear` computed by `times_kernel`, with PyTorch's initialisation (`uniform_within`).

    The bias is added in at least float32.
    """

    def __init__(
        self, fan_in: int, fan_out: int, *, dtype: DTypeLike, rngs: nnx.Rngs, bias: bool = True
    ):
        uniform = uniform_within(fan_in)
        super().__init__(
            fan_in,
            fan_out,
            use_bias=bias,
            kernel_init=uniform,
            bias_init=uniform,
            dtype=dtype,
            rngs=rngs,
        )

    def __call__(
        self, x: Float[Array, "*shape {self.in_features}"]
    ) -> Float[Array, "*shape {self.out_features}"]:
        """Compute x W + b in the dtype of the layer."""
        y = times_kernel(x.astype(self.dtype), self.kernel[...])
        if self.bias is None:
            return y
        wide = accumulation_dtype(self.dtype)
        bias = jnp.broadcast_to(self.bias[...].astype(wide), y.shape)
        return (y.astype(wide) + bias).astype(self.dtype)
