"""A permutation and its gradient, against the plain gather."""

import jax
import jax.numpy as jnp
import numpy as np

from models.attention.permutation import permute


def test_the_gradient_is_that_of_a_gather_and_is_gathered(float64):
    x, g = jnp.asarray(np.random.default_rng(0).normal(size=(2, 13, 2, 8)))
    order = jnp.asarray(np.random.default_rng(1).permutation(13))
    inverse = jnp.argsort(order)
    out, gradient = jax.vjp(lambda x: permute(x, order, inverse), x)
    expected, expected_gradient = jax.vjp(lambda x: x[order], x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(gradient(g)[0], expected_gradient(g)[0])
    loss = jax.grad(lambda x: jnp.sum(permute(x, order, inverse)))
    assert "scatter" not in str(jax.make_jaxpr(loss)(x))
