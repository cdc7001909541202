"""The maximum and its gradient, by hand-computed numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from models.largest import largest

X = jnp.array([[1.0, 3.0, 3.0], [-2.0, -jnp.inf, -5.0]])


def test_values_are_those_of_max():
    np.testing.assert_array_equal(largest(X, -1), [3, -2])
    np.testing.assert_array_equal(largest(X, 0), [1, 3, 3])
    assert np.isnan(largest(X.at[0, 0].set(jnp.nan), 1)[0])


def test_the_first_of_equals_has_the_gradient():
    gradient = jax.grad(lambda x: jnp.sum(largest(x, 1) * jnp.array([5.0, 7.0])))(X)
    np.testing.assert_array_equal(gradient, [[0, 5, 0], [7, 0, 0]])
