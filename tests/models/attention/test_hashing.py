"""Buckets: against Hugging Face's arrays, blocks of positions, ties, two factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.hashing import lsh_buckets
from tests.models.attention.arrays import load, load_inputs


def random_case(seed, half_buckets=4):
    """Queries of two sequences, and rotations of two rounds."""
    rng = np.random.default_rng(seed)
    q, rotations = rng.normal(size=(2, 50, 2, 8)), rng.normal(size=(2, 8, 2, half_buckets))
    return jnp.asarray(q, jnp.float32), jnp.asarray(rotations, jnp.float32)


@pytest.mark.parametrize(("hashes", "mask"), [(2, "nomask"), (4, "nomask"), (2, "pad")])
def test_golden_buckets(hashes, mask, float64):
    golden = {name: jnp.asarray(array) for name, array in load("reformer").items()} | load_inputs()
    mask_of = {"nomask": golden["mask_ones"], "pad": golden["mask_pad"]}
    buckets = lsh_buckets(golden["q"], mask_of[mask], golden[f"h{hashes}_rotations"])
    # The reference numbers the rounds' buckets one after another; with a mask each round has a
    # seventeenth, for padding, which ours always has: sorted round by round, the order is the same.
    buckets_per_round = 16 if mask == "nomask" else 17
    offsets = np.arange(hashes)[:, None] * buckets_per_round
    np.testing.assert_array_equal(
        np.asarray(buckets) + offsets, golden[f"h{hashes}_{mask}_buckets"]
    )


def test_blocks_of_the_hash_change_nothing(monkeypatch):
    q, rotations = random_case(8)
    mask = jnp.ones((2, 50), bool)
    whole = lsh_buckets(q, mask, rotations)
    monkeypatch.setattr("models.attention.hashing.HASH_BLOCK", 16)
    np.testing.assert_array_equal(lsh_buckets(q, mask, rotations), whole)


def test_of_projections_as_large_the_first_is_the_bucket():
    q, mask = jnp.zeros((1, 3, 1, 4)), jnp.array([[True, True, False]])
    buckets = lsh_buckets(q, mask, jnp.ones((1, 4, 2, 8)))
    np.testing.assert_array_equal(buckets, np.broadcast_to([0, 0, 16], (1, 1, 2, 3)))


def test_without_a_largest_projection_the_bucket_is_none_of_padding():
    """As after a comparison with numbers that a compiler has computed anew."""
    q, mask = jnp.full((1, 2, 1, 4), jnp.nan), jnp.array([[True, False]])
    buckets = lsh_buckets(q, mask, jnp.ones((1, 4, 2, 8)))
    np.testing.assert_array_equal(buckets, np.broadcast_to([15, 16], (1, 1, 2, 2)))


def test_two_factors_number_pairs_of_buckets():
    q, rotations = random_case(12, half_buckets=6)
    mask = jnp.ones((2, 50), bool).at[1, 9].set(False)
    both = lsh_buckets(q, mask, rotations, factors=(4, 8))
    first = lsh_buckets(q, mask, rotations[..., :2])
    second = lsh_buckets(q, mask, rotations[..., 2:])
    padding = ~mask[:, None, None, :]
    np.testing.assert_array_equal(both, jnp.where(padding, 32, first + 4 * second))


def test_queries_in_bfloat16_have_the_buckets_of_their_values():
    q = jax.random.normal(jax.random.key(0), (2, 64, 2, 8)).astype(jnp.bfloat16)
    rotations = jax.random.normal(jax.random.key(1), (2, 8, 4, 16))
    mask = jnp.ones((2, 64), bool)
    exact = lsh_buckets(q.astype(jnp.float32), mask, rotations)
    np.testing.assert_array_equal(lsh_buckets(q, mask, rotations), exact)
