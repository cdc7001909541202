"""The normalisation of a block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.block import EPSILON, LayerNorm


@pytest.mark.parametrize("mean", [0, 100, 3000])
def test_the_variance_is_exact_however_large_the_mean(mean):
    """To rounding of the inputs, which grows with the mean."""
    x = jax.random.normal(jax.random.key(0), (64, 32)) + mean
    exact = np.asarray(x, np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    expected = centred / np.sqrt(exact.var(-1, keepdims=True) + EPSILON)
    found = LayerNorm(32, rngs=nnx.Rngs(0))(x)
    np.testing.assert_allclose(found, expected, atol=1e-6 + 3e-7 * mean)


def test_sums_are_in_float32():
    x = jax.random.normal(jax.random.key(0), (4, 4096)).astype(jnp.bfloat16)
    norm = LayerNorm(4096, rngs=nnx.Rngs(0))
    found = norm(x)
    assert found.dtype == jnp.bfloat16
    expected = norm(x.astype(jnp.float32))
    np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=2**-8, atol=1e-6)
