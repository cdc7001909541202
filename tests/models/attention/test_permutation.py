"""A permutation and its gradient, against the plain gather."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from models.attention.permutation import permute


def test_the_gradient_is_that_of_a_gather_and_is_gathered(float64):
    x, g = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 13, 2, 8)))
    rng = np.random.default_rng(1)
    order = jnp.asarray([rng.permutation(13) for _ in range(3)])
    inverse = jnp.argsort(order)

    def of_batch(x):
        return jax.vmap(permute)(x, order, inverse)

    out, gradient = jax.vjp(of_batch, x)
    plain = functools.partial(jnp.take_along_axis, indices=order[:, :, None, None], axis=1)
    expected, expected_gradient = jax.vjp(plain, x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(gradient(g)[0], expected_gradient(g)[0])
    assert "scatter" not in str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(of_batch(x))))(x))
