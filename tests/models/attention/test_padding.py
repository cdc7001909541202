"""Arrays padded along the length, the ends of sequences, masked positions as 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.padding import ends, largest_divisor, padded, padded_to, round_up, zeroed


def test_numbers_are_rounded_up_and_divided():
    assert [round_up(number, 8) for number in (0, 1, 8, 9)] == [0, 8, 8, 16]
    assert [largest_divisor(12, limit) for limit in (1, 5, 12, 99)] == [1, 4, 12, 12]
    assert largest_divisor(7, 6) == 1


def test_only_the_length_is_padded():
    x = jnp.arange(6.0).reshape(1, 3, 2)
    np.testing.assert_array_equal(padded(x, 4, -1)[0], [[0, 1], [2, 3], [4, 5], [-1, -1]])
    assert padded(x, 3) is x
    assert padded_to(jnp.ones((2, 3), bool), 5).sum() == 6


def test_a_sequence_ends_with_its_last_token():
    mask = jnp.array([[True, False, True, False], [False] * 4, [True] * 4])
    np.testing.assert_array_equal(ends(mask), [3, 0, 4])
    np.testing.assert_array_equal(ends(mask[None]), [[3, 0, 4]])


@pytest.mark.parametrize("features", [(), (2,), (2, 3)])
def test_masked_positions_are_zero_whatever_is_there(features):
    x = jnp.full((1, 3, *features), 7.0).at[:, 1].set(jnp.nan)
    mask = jnp.array([[True, False, True]])
    expected = jnp.full_like(x, 7.0).at[:, 1].set(0)
    np.testing.assert_array_equal(zeroed(x, mask), expected)
    gradient = jax.grad(lambda x: jnp.sum(zeroed(x, mask)))(x)
    np.testing.assert_array_equal(gradient, expected / 7)
