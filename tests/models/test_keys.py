"""One key for a batch, or one for each example."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import make
from models.dropout import dropout
from models.keys import draw, one_per_example, split
from tests.attention_cases import CASES, attention_of


@pytest.mark.parametrize("new", [jax.random.key, jax.random.PRNGKey])
def test_one_key_and_several(new):
    key = new(0)
    keys = jnp.stack([new(1), new(2), new(3)])
    assert not one_per_example(key)
    assert one_per_example(keys)
    one, other = split(keys, 2)
    assert one.shape == keys.shape
    for i in range(3):
        for expected, got in zip(jax.random.split(keys[i]), (one[i], other[i]), strict=True):
            np.testing.assert_array_equal(*map(jax.random.key_data, (expected, got)))
    drawn = draw(lambda one: jax.random.normal(one, (5,)), keys)
    np.testing.assert_array_equal(drawn[2], jax.random.normal(keys[2], (5,)))
    assert split(None, 3) == (None, None, None)
    with pytest.raises(ValueError, match=r"key must be one of jax.random.key, not 0"):
        inspect.unwrap(one_per_example)(0)


def test_the_dropout_mask_of_an_example_does_not_depend_on_its_batch():
    keys = jax.random.split(jax.random.key(0), 4)
    x = jnp.ones((4, 6, 33))
    together = dropout(x, 0.5, keys)
    np.testing.assert_array_equal(together[1:3], dropout(x[1:3], 0.5, keys[1:3]))
    assert (together[0] != together[1]).any()


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case].draws])
def test_what_an_attention_draws_for_an_example_does_not_depend_on_its_batch(case):
    attention = jax.jit(
        make(
            attention_of(case),
            length=32,
            heads=2,
            head_dim=8,
            rngs=nnx.Rngs(0),
            **CASES[case].options,
        )
    )
    q, v = jax.random.normal(jax.random.key(1), (2, 3, 32, 2, 8))
    mask = jnp.ones((3, 32), bool)
    keys = jax.random.split(jax.random.key(2), 3)
    together = attention(q, q, v, mask, key=keys)
    for i in range(3):
        part = slice(i, i + 1)
        alone = attention(q[part], q[part], v[part], mask[part], key=keys[part])
        np.testing.assert_allclose(together[part], alone, atol=1e-5)
    other = attention(q, q, v, mask, key=keys[::-1])
    assert not np.allclose(together, other, atol=1e-2), "options in CASES that draw more often"
