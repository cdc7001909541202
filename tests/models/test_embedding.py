"""Look-up and both ways of its gradient."""

import jax
import jax.numpy as jnp
import numpy as np

from models import embedding
from models.machine import Machine, assumed


def test_gradient_adds_up_the_rows_of_each_id():
    table = jax.random.normal(jax.random.key(0), (5, 3))
    ids = jnp.array([[0, 4, 4], [4, 1, 0]])
    weights = jax.random.normal(jax.random.key(1), (2, 3, 3))
    gradient = jax.grad(lambda t: jnp.sum(embedding.lookup(t, ids, t.dtype) * weights))(table)
    expected = np.zeros((5, 3))
    for position in np.ndindex(2, 3):
        expected[ids[position]] += weights[position]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    np.testing.assert_array_equal(embedding.lookup(table, ids, table.dtype), table[ids])


def test_scatter_and_product_agree():
    ids = jax.random.randint(jax.random.key(0), (500,), 0, 7)
    rows = jax.random.normal(jax.random.key(1), (500, 4))
    np.testing.assert_allclose(
        embedding.sum_by_scatter(ids, rows, 7),
        embedding.sum_by_product(ids, rows, 7, rows.dtype),
        atol=1e-4,
    )


def test_a_product_in_bfloat16_loses_nothing_of_rows_that_are_bfloat16():
    ids = jax.random.randint(jax.random.key(0), (500,), 0, 7)
    rows = jax.random.normal(jax.random.key(1), (500, 4)).astype(jnp.bfloat16)
    exact = np.zeros((7, 4))
    np.add.at(exact, np.asarray(ids), np.asarray(rows, np.float64))
    total = embedding.sum_by_product(ids, rows.astype(jnp.float32), 7, jnp.bfloat16)
    assert total.dtype == jnp.float32
    np.testing.assert_allclose(total, exact, rtol=1e-6, atol=1e-5)  # of sums in float32


def test_the_product_has_the_format_that_rows_are_used_in_and_adds_up_in_the_tables():
    def loss(table, ids):
        used = embedding.lookup(table, ids, jnp.bfloat16).astype(jnp.bfloat16)
        return jnp.sum(used.astype(jnp.float32) ** 2)

    arguments = jnp.ones((5, 3)), jnp.zeros((4,), jnp.int32)
    with assumed(Machine("gpu")):
        lowered = jax.jit(jax.grad(loss)).trace(*arguments).lower(lowering_platforms=("cuda",))
    (product,) = (line for line in lowered.as_text().splitlines() if "dot_general" in line)
    assert "(tensor<4x5xbf16>, tensor<4x3xbf16>) -> tensor<5x3xf32>" in product


def test_no_scatter_is_left_where_its_order_is_not_fixed():
    def gradient(table, ids):
        return jax.grad(lambda t: jnp.sum(embedding.lookup(t, ids, t.dtype) ** 2))(table)

    arguments = jnp.ones((5, 3)), jnp.zeros((4,), jnp.int32)
    for backend, expected in (("gpu", False), ("tpu", False), ("cpu", True)):
        with assumed(Machine(backend)):
            lowered = jax.jit(lambda *arguments: gradient(*arguments)).lower(*arguments)
        assert ("stablehlo.scatter" in lowered.as_text()) == expected, backend


def test_a_gpu_sums_gradients_of_positions_by_a_product(monkeypatch):
    def gradients(x, position):
        return jax.grad(
            lambda x, p: jnp.sum(jnp.sin(embedding.add_positions(x, p))), argnums=(0, 1)
        )(x, position)

    def on(backend):
        monkeypatch.setattr(jax, "default_backend", lambda: backend)
        of_seeds = jax.jit(jax.vmap(gradients))
        return of_seeds.lower(x, position).as_text().count("dot_general"), of_seeds(x, position)

    keys = jax.random.split(jax.random.key(0))
    x, position = jax.random.normal(keys[0], (2, 7, 5, 3)), jax.random.normal(keys[1], (2, 5, 3))
    products, found = on("gpu")
    none, expected = on("cpu")
    assert (products, none) == (1, 0)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
