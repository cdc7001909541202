"""Dropout masks: their rate, independence and bounds."""

import jax
import numpy as np
import pytest

from models.dropout import check_rate, dropout, keep_mask, keep_probability


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_keeps_with_the_stated_probability(dropout):
    shape = (200, 500)
    keep = np.asarray(keep_mask(jax.random.key(0), shape, dropout))
    assert abs(keep_probability(dropout) - (1 - dropout)) <= 2**-17
    # Five standard deviations, of all entries and of each of the four fields of a hash.
    spread = np.sqrt(dropout * (1 - dropout) / keep.size)
    assert abs(keep.mean() - (1 - dropout)) < 5 * spread
    for field in np.split(keep, 4, axis=1):
        assert abs(field.mean() - (1 - dropout)) < 5 * 2 * spread


def test_entries_are_independent():
    keep = np.asarray(keep_mask(jax.random.key(1), (4000, 12), 0.5)) - 0.5
    correlation = 4 * keep.T @ keep / len(keep)
    np.testing.assert_allclose(correlation, np.eye(12), atol=5 / np.sqrt(4000))
    between_rows = 4 * np.mean(keep[1:] * keep[:-1])
    assert abs(between_rows) < 5 / np.sqrt(keep.size)


@pytest.mark.parametrize("columns", [1, 3, 37])
def test_any_number_of_columns(columns):
    assert keep_mask(jax.random.key(2), (2, 3, columns), 0.1).shape == (2, 3, columns)


def test_vmapped_keys_give_the_masks_of_each():
    keys = jax.random.split(jax.random.key(3), 3)
    together = jax.vmap(lambda key: keep_mask(key, (5, 7), 0.3))(keys)
    for mask, key in zip(together, keys, strict=True):
        np.testing.assert_array_equal(mask, keep_mask(key, (5, 7), 0.3))


def test_extremes():
    key = jax.random.key(4)
    assert keep_mask(key, (10, 10), 0.0).all()
    assert keep_probability(1 - 1e-9) > 0
    assert not keep_mask(key, (10, 10), 1 - 1e-9).all()


@pytest.mark.parametrize("dropout", [-0.1, 1, 1.5, True, "0.1", None])
def test_other_rates_are_refused(dropout):
    with pytest.raises(ValueError, match="dropout must be a number from 0"):
        check_rate(dropout)


def test_dropout_zeroes_and_scales_by_the_mask():
    x = jax.random.normal(jax.random.key(0), (50, 40))
    keep = keep_mask(jax.random.key(1), x.shape, 0.25)
    expected = np.where(keep, x / keep_probability(0.25), 0)
    np.testing.assert_allclose(dropout(x, 0.25, jax.random.key(1)), expected, rtol=1e-6)
    assert dropout(x, 0.25, None) is x
    assert dropout(x, 0.0, jax.random.key(1)) is x
