"""Look-up and both ways of its gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from models import embedding


def test_gradient_adds_up_the_rows_of_each_id():
    table = jax.random.normal(jax.random.key(0), (5, 3))
    ids = jnp.array([[0, 4, 4], [4, 1, 0]])
    weights = jax.random.normal(jax.random.key(1), (2, 3, 3))
    gradient = jax.grad(lambda t: jnp.sum(embedding.lookup(t, ids) * weights))(table)
    expected = np.zeros((5, 3))
    for position in np.ndindex(2, 3):
        expected[ids[position]] += weights[position]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    np.testing.assert_array_equal(embedding.lookup(table, ids), table[ids])


def test_scatter_and_product_agree():
    ids = jax.random.randint(jax.random.key(0), (500,), 0, 7)
    rows = jax.random.normal(jax.random.key(1), (500, 4))
    np.testing.assert_allclose(
        embedding.sum_by_scatter(ids, rows, 7),
        embedding.sum_by_product(ids, rows, 7),
        atol=1e-4,
    )


def test_no_scatter_is_left_where_its_order_is_not_fixed():
    def gradient(table, ids):
        return jax.grad(lambda t: jnp.sum(embedding.lookup(t, ids) ** 2))(table)

    arguments = jnp.ones((5, 3)), jnp.zeros((4,), jnp.int32)
    for platform, expected in (("cuda", False), ("tpu", False), ("cpu", True)):
        lowered = jax.jit(gradient).trace(*arguments).lower(lowering_platforms=(platform,))
        assert ("stablehlo.scatter" in lowered.as_text()) == expected, platform
