"""Dropout masks: their rate, independence and bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.dropout import (
    dropout,
    keep_entries,
    keep_probability,
    keep_weights,
    row_seeds,
    weight_seeds,
)


@pytest.mark.parametrize("apart", [1, 8])
def test_entries_are_drawn_by_the_generator_of_their_row(apart):
    """SplitMix in Python's integers, of a few seeds and far into their sequences."""

    def number(seed, entry):
        z = (seed + (entry & ~apart) * 0x9E3779B9) % 2**32
        z = (z ^ z >> 16) * 0x85EBCA6B % 2**32
        z = (z ^ z >> 13) * 0xC2B2AE35 % 2**32
        return (z ^ z >> 16) >> (16 if entry & apart else 0) & 0xFFFF

    seeds, entries = [0, 1, 12345, 2**32 - 1], [*range(64), 511, 65_535, 2**31 - 1]
    found = keep_entries(
        jnp.array(seeds, jnp.uint32)[:, None], jnp.array(entries)[None], 0.3, apart
    )
    expected = [[number(seed, entry) >= round(0.3 * 2**16) for entry in entries] for seed in seeds]
    np.testing.assert_array_equal(found, expected)


def keep_mask(key, shape, dropout):
    """The mask that `dropout` draws for an array of this shape."""
    entries = jnp.arange(shape[-1], dtype=jnp.int32).reshape(*(1 for _ in shape[:-1]), shape[-1])
    return keep_entries(row_seeds(key, shape[:-1])[..., None], entries, dropout)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_keeps_with_the_stated_probability(dropout):
    keep = np.asarray(keep_mask(jax.random.key(0), (500, 2000), dropout))
    assert abs(keep_probability(dropout) - (1 - dropout)) <= 2**-17
    spread = np.sqrt(dropout * (1 - dropout))
    assert abs(keep.mean() - (1 - dropout)) < 5 * spread / np.sqrt(keep.size)
    # Of rows and of columns the mean and the spread are those of independent draws.
    for axis in (0, 1):
        size = keep.shape[axis]
        means = (keep.mean(axis) - (1 - dropout)) / (spread / np.sqrt(size))
        assert np.abs(means).max() < 5
        assert abs(np.mean(means**2) - 1) < 5 * np.sqrt(2 / len(means))


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_entries_are_independent(dropout):
    """No pair at any distance up to 64 in a row, nor between rows and heads, moves together."""
    seeds = weight_seeds(jax.random.key(1), (1, 512, 4))
    keep = np.asarray(keep_weights(seeds, jnp.arange(1024), dropout)[0]) - (1 - dropout)
    variance = dropout * (1 - dropout)

    def correlation(a, b):
        return np.mean(a * b) / variance * np.sqrt(a.size)  # in standard deviations

    in_rows = [correlation(keep[..., i:], keep[..., :-i]) for i in range(1, 65)]
    between_rows = [correlation(keep[:, i:], keep[:, :-i]) for i in range(1, 65)]
    between_heads = [correlation(keep[i], keep[j]) for i in range(4) for j in range(i)]
    diagonal = [correlation(keep[:, i:, i:], keep[:, :-i, :-i]) for i in range(1, 65)]
    for found in (in_rows, between_rows, between_heads, diagonal):
        assert np.abs(found).max() < 5
        assert np.mean(np.square(found)) < 1 + 5 * np.sqrt(2 / len(found))


def test_eight_neighbours_take_every_pattern_equally_often():
    keep = np.asarray(keep_mask(jax.random.key(6), (256, 8192), 0.5)).reshape(-1, 8)
    counts = np.bincount(keep @ 2 ** np.arange(8), minlength=256)
    expected = len(keep) / 256
    deviation = (np.sum((counts - expected) ** 2 / expected) - 255) / np.sqrt(2 * 255)
    assert abs(deviation) < 5  # of chi squared with 255 degrees of freedom


def test_other_keys_and_examples_draw_other_masks():
    keys = jax.random.split(jax.random.key(7), 20)
    masks = np.asarray(keep_mask(keys, (20, 64, 64), 0.5)) - 0.5
    correlation = 4 * np.einsum("aij,bij->ab", masks, masks) / 64**2
    np.testing.assert_allclose(correlation, np.eye(20), atol=5 / 64)


@pytest.mark.parametrize("key", [jax.random.key(8), jax.random.split(jax.random.key(8), 3)])
def test_a_shorter_sequence_draws_the_same_weights(key):
    whole, part = (
        keep_weights(weight_seeds(key, (3, keys, 2)), jnp.arange(queries), 0.3)
        for keys, queries in ((40, 50), (13, 21))
    )
    np.testing.assert_array_equal(whole[:, :, :13, :21], part)


@pytest.mark.parametrize("columns", [1, 3, 37])
def test_any_number_of_columns(columns):
    for shape in ((2, 3, columns), (columns,)):
        assert keep_mask(jax.random.key(2), shape, 0.1).shape == shape


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


def test_dropout_zeroes_and_scales_by_the_mask():
    x = jax.random.normal(jax.random.key(0), (50, 40))
    keep = keep_mask(jax.random.key(1), x.shape, 0.25)
    expected = np.where(keep, x / keep_probability(0.25), 0)
    np.testing.assert_allclose(dropout(x, 0.25, jax.random.key(1)), expected, rtol=1e-6)
    half = dropout(jnp.ones((50, 40), jnp.bfloat16), 0.15, jax.random.key(1))
    assert half.dtype == jnp.bfloat16
    assert float(jnp.max(half)) == jnp.bfloat16(1 / 0.85)  # not 1 / bfloat16(0.85)
    assert dropout(x, 0.25, None) is x
    assert dropout(x, 0.0, jax.random.key(1)) is x


@pytest.mark.parametrize("key", [jax.random.key(9), jax.random.split(jax.random.key(9), 3)])
def test_each_key_and_head_of_each_example_draws_weights_of_its_own(key):
    seeds = weight_seeds(key, (3, 50, 2))
    assert len(np.unique(seeds)) == 3 * 50 * 2


def test_the_rate_of_dropout_is_rounded_as_its_threshold():
    assert keep_probability(0.3) == 1 - 19_661 / 2**16
    assert keep_probability(0.99999) == 2**-16


def test_keys_are_those_of_the_examples():
    keys = jax.random.split(jax.random.key(0), 1)
    with pytest.raises(ValueError, match="1 keys for 2 examples"):
        row_seeds(keys, (2, 3))
