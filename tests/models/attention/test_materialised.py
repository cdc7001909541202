"""Exact attention with its gradient written out, against reference arrays and the plain form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.materialised import materialised_attention
from models.attention.standard import standard_attention
from tests.models.attention.arrays import (
    assert_same,
    masks,
    out_and_gradients,
    random_inputs,
)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_equals_the_plain_form_draw_by_draw(dropout, float64):
    arrays, mask = random_inputs(21), masks(21)
    options = {"mask": mask, "dropout": dropout, "key": jax.random.key(1)}
    found = out_and_gradients(functools.partial(materialised_attention, **options), *arrays)
    plain = out_and_gradients(functools.partial(standard_attention, **options), *arrays)
    assert_same(found, plain)
    assert not any(np.asarray(x)[3].any() for x in found)
    without = functools.partial(materialised_attention, mask=mask)(*arrays[:3])
    assert np.allclose(found[0], without, rtol=0, atol=1e-12) == (dropout == 0)


def test_bfloat16_is_little_less_exact_than_the_plain_form():
    """Which multiplies the gradients of scores without rounding them to 8 bits first."""
    arrays, mask = random_inputs(21, jnp.bfloat16), masks(21)
    exact = out_and_gradients(
        functools.partial(standard_attention, mask=mask), *(x.astype(jnp.float32) for x in arrays)
    )
    errors = []
    for attend in (materialised_attention, standard_attention):
        found = out_and_gradients(functools.partial(attend, mask=mask), *arrays)
        assert all(x.dtype == jnp.bfloat16 for x in found)
        pairs = zip(found, exact, strict=True)
        errors.append([float(jnp.linalg.norm(x.astype(y.dtype) - y)) for x, y in pairs])
    ours, plain = np.array(errors)
    assert plain.min() > 0
    np.testing.assert_array_less(ours, 1.5 * plain)


def test_what_stands_at_masked_keys_reaches_nothing():
    q, k, v, g = random_inputs(21, jnp.float32)
    mask = masks(21)
    attend = functools.partial(materialised_attention, mask=mask)
    k_nan, v_nan = (jnp.where(mask[:, :, None, None], x, jnp.nan) for x in (k, v))
    found = out_and_gradients(attend, q, k_nan, v_nan, g)
    for x, y in zip(found, out_and_gradients(attend, q, k, v, g), strict=True):
        np.testing.assert_array_equal(x, y)


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v, g = random_inputs(21, jnp.float32)
    mask = masks(21)
    attend = functools.partial(materialised_attention, mask=mask)
    found = out_and_gradients(attend, 300 * q, 300 * k, v, g)
    assert all(np.isfinite(x).all() for x in found)
    expected = standard_attention(300 * q, 300 * k, v, mask)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


def test_under_vmap_and_checkpoint(float64):
    """Inputs and keys of two seeds; a mask that they share."""
    first, second, mask = random_inputs(21, seed=1), random_inputs(21, seed=2), masks(21)
    keys = jax.random.split(jax.random.key(3))

    def gradients(key, *arrays):
        attend = functools.partial(materialised_attention, mask=mask, dropout=0.3, key=key)
        return out_and_gradients(jax.checkpoint(attend), *arrays)

    together = jax.vmap(gradients)(keys, *(jnp.stack(x) for x in zip(first, second, strict=True)))
    for i, arrays in enumerate((first, second)):
        for x, y in zip(together, gradients(keys[i], *arrays), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-12, atol=1e-12)
