"""The depthwise convolution in blocks against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.convolution import depthwise_convolution
from tests.models.attention.arrays import out_and_gradients


def sum_of_shifts(x, kernel):
    """out[i] = sum_j kernel[j] x[i + j - (width - 1) // 2], 0 beyond the ends."""
    width = kernel.shape[1]
    before = (width - 1) // 2
    padded = jnp.pad(x, ((0, 0), (before, width - 1 - before), (0, 0), (0, 0)))
    shifts = padded[:, np.add.outer(np.arange(x.shape[1]), np.arange(width))]
    return jnp.einsum("bijhd,hj->bihd", shifts, kernel)


@pytest.mark.parametrize(
    ("length", "width"), [(1, 35), (20, 35), (128, 1), (131, 5), (300, 4), (300, 140)]
)
def test_values_and_gradients(length, width, float64):
    x, g = np.random.default_rng(0).normal(size=(2, 2, length, 3, 4))
    kernel = jnp.asarray(np.random.default_rng(1).normal(size=(3, width)))

    def gradients(convolve):
        return out_and_gradients(
            lambda x, kernel, _: convolve(x, kernel), jnp.asarray(x), kernel, 0.0, jnp.asarray(g)
        )[:3]

    for a, b in zip(gradients(depthwise_convolution), gradients(sum_of_shifts), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)


def test_by_hand():
    """Not flipped; an even width reaches one further to the right."""
    x = jnp.asarray([1.0, 10, 100, 1000]).reshape(1, 4, 1, 1)
    odd = depthwise_convolution(x, jnp.asarray([[1.0, 2, 3]]))
    np.testing.assert_allclose(odd.ravel(), [32, 321, 3210, 2100])
    even = depthwise_convolution(x, jnp.asarray([[1.0, 2, 3, 4]]))
    np.testing.assert_allclose(even.ravel(), [432, 4321, 3210, 2100])


def test_bfloat16_sums_in_float32():
    x = jnp.ones((1, 600, 1, 8), jnp.bfloat16)
    out = depthwise_convolution(x, jnp.full((1, 513), 1 / 512))
    assert out.dtype == jnp.bfloat16
    assert jnp.all(out[:, 256:-256] == 1)


def test_nothing_is_gathered_or_scattered():
    x, kernel = jnp.ones((1, 200, 2, 4)), jnp.ones((2, 5))

    def loss(x, kernel):
        return jnp.sum(depthwise_convolution(x, kernel))

    program = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(x, kernel))
    assert "gather" not in program
    assert "scatter" not in program
