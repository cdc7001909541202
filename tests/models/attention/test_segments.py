"""Segments against `numpy.array_split`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.segments import (
    check_segments,
    segment_any,
    segment_max,
    segment_means,
    segment_reduce,
)

SIZES = [(12, 4), (13, 4), (15, 4), (7, 7), (7, 1), (5, 3)]

every_size = pytest.mark.parametrize(("length", "segments"), SIZES)


def inputs(length):
    x = np.random.default_rng(0).normal(size=(3, length, 2, 4))
    mask = np.random.default_rng(1).random((3, length)) < 0.5
    mask[2] = False
    return x, mask


def by_numpy(x, mask, segments, reduce):
    """`reduce` over the real tokens of each segment; 0 where there are none."""
    out = np.zeros((len(x), segments, *x.shape[2:]))
    for row, real in enumerate(mask):
        for segment, positions in enumerate(np.array_split(np.arange(x.shape[1]), segments)):
            positions = positions[real[positions]]
            if len(positions):
                out[row, segment] = reduce(x[row, positions], axis=0)
    return out


@every_size
def test_sums_are_those_of_array_split(length, segments):
    x, _ = inputs(length)
    expected = [part.sum(axis=1) for part in np.array_split(x, segments, axis=1)]
    found = segment_reduce(jnp.asarray(x), segments, jnp.sum)
    np.testing.assert_allclose(found, np.stack(expected, axis=1), atol=1e-6)


@every_size
@pytest.mark.parametrize(("function", "reduce"), [(segment_means, np.mean), (segment_max, np.max)])
def test_only_real_tokens_count(function, reduce, length, segments):
    x, mask = inputs(length)
    filled = jnp.asarray(np.where(mask[:, :, None, None], x, np.nan), jnp.float32)
    found = function(filled, jnp.asarray(mask), segments)
    np.testing.assert_allclose(found, by_numpy(x, mask, segments, reduce), atol=1e-6)


@every_size
def test_which_segments_have_a_real_token(length, segments):
    _, mask = inputs(length)
    expected = [part.any(axis=1) for part in np.array_split(mask, segments, axis=1)]
    found = segment_any(jnp.asarray(mask), segments)
    np.testing.assert_array_equal(found, np.stack(expected, axis=1))


def test_means_of_bfloat16_are_summed_in_float32():
    """257 ones: in 8 bits their sum is 256."""
    x, mask = jnp.ones((1, 257, 1, 1), jnp.bfloat16), jnp.ones((1, 257), bool)
    means = segment_means(x, mask, 1)
    assert means.dtype == jnp.bfloat16
    assert means.item() == 1


def test_nothing_is_gathered_or_scattered():
    x, mask = inputs(13)

    def loss(x):
        means = segment_means(x, jnp.asarray(mask), 4)
        return jnp.sum(jnp.square(means)) + jnp.sum(segment_max(x, jnp.asarray(mask), 4))

    program = str(jax.make_jaxpr(jax.grad(loss))(jnp.asarray(x)))
    assert "gather" not in program
    assert "scatter" not in program


def test_more_segments_than_positions_are_refused():
    with pytest.raises(ValueError, match="num_landmarks = 9 exceeds the length 8; choose at most"):
        check_segments(9, 8, "num_landmarks")
    with pytest.raises(ValueError, match="num_segments must be a positive integer, not 0"):
        segment_any(jnp.ones((1, 8), bool), 0)


def test_means_of_bfloat16_are_rounded_once():
    x = jax.random.uniform(jax.random.key(0), (2, 515, 3, 4), minval=1.0, maxval=2.0).astype(
        jnp.bfloat16
    )
    mask = jnp.ones((2, 515), bool)
    exact = segment_means(x.astype(jnp.float32), mask, 2)
    np.testing.assert_array_equal(segment_means(x, mask, 2), exact.astype(jnp.bfloat16))
