"""What Performer's epsilon covers of the keys' features."""

import numpy as np
from flax import nnx

from lra.analysis.features import EPSILONS, covered, feature_rows, from_mean
from lra.analysis.inputs import random_inputs
from models.attention import make

INPUTS = random_inputs(examples=2, length=24, heads=2, head_dim=8)
PROJECTION = np.random.default_rng(1).standard_normal((16, 8))


def test_the_share_is_that_of_exponentials_below_epsilon(float64):
    q, k, v, mask = INPUTS.layer(0)
    mask = mask.at[0, 20:].set(False)
    shares = []
    for example in range(2):
        real = np.asarray(k[example][np.asarray(mask[example])]) * 8**-0.25
        projected = np.einsum("nhd,md->hnm", real, PROJECTION)
        half = np.sum(real**2, axis=-1).T[:, :, None] / 2
        peak = np.max(projected, axis=(1, 2), keepdims=True)
        shares.append(np.mean(np.exp(projected - half - peak) < 1e-2, axis=(1, 2)))
    below, _ = covered(q, k, v, mask, PROJECTION, epsilon=1e-2)
    np.testing.assert_allclose(below, np.mean(shares, axis=0), rtol=1e-12)
    assert np.all((below > 0.1) & (below < 0.95))


def test_of_long_keys_an_epsilon_leaves_the_mean(float64):
    rows = list(feature_rows(INPUTS._replace(k=10 * INPUTS.k)))
    assert [(row["head"], row["epsilon"]) for row in rows[:3]] == [(0, 1e-4), (1, 1e-4), (0, 1e-6)]
    assert len(rows) == 2 * len(EPSILONS)
    for row in rows:
        assert row["features"] == 256
        if row["epsilon"]:
            assert row["below"] == 1
            assert row["from_mean"] < 1e-3
        else:
            assert row["below"] == 0
            assert row["from_mean"] > 0.5
        assert row["exact_from_mean"] > 0.5


def test_keys_of_zero_give_the_mean_by_every_epsilon(float64):
    """All keys then have the same features, with an exponential of 1, and the same weight."""
    rows = list(feature_rows(INPUTS._replace(k=0 * INPUTS.k)))
    assert all(max(row["from_mean"], row["exact_from_mean"]) < 1e-12 for row in rows)
    assert all(row["below"] == 0 for row in rows)


def test_an_output_of_zero_is_at_its_mean():
    _, _, v, mask = INPUTS.layer(0)
    np.testing.assert_array_equal(from_mean(0 * v, 0 * v, mask), np.zeros((2, 2)))


def test_a_performer_is_judged_by_its_own_projection(float64):
    sizes = {"length": 24, "heads": 2, "head_dim": 8}
    own = make("performer", **sizes, num_features=16, rngs=nnx.Rngs(attention=3))
    found = list(feature_rows(INPUTS, [own]))
    expected, _ = covered(*INPUTS.layer(0), own.projection[...], epsilon=1e-4)
    assert found[0]["features"] == 16
    assert [row["below"] for row in found[:2]] == [float(x) for x in expected]
    other = make("standard", **sizes, rngs=nnx.Rngs(0))
    assert next(feature_rows(INPUTS, [other])) == next(feature_rows(INPUTS))
