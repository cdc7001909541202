"""Spectra of attention matrices, and Linformer's Theorem 1."""

import math

import numpy as np
import pytest

from lra.analysis.inputs import random_inputs
from lra.analysis.matrix_pictures import _epsilons_and_ranks
from lra.analysis.page import _on_ranks, _theorem_table
from lra.analysis.spectrum import cumulative, spectrum_rank, spectrum_rows
from lra.analysis.theorem import (
    failure_bound,
    projected_rank,
    random_projection,
    theorem_rows,
)

INPUTS = random_inputs(examples=2, length=12, heads=2, head_dim=8)


def test_cumulative_shares():
    np.testing.assert_allclose(cumulative(np.array([3.0, 1.0, 0.0])), [0.75, 1, 1])
    assert spectrum_rank(512) == 128
    assert spectrum_rank(63) == 16
    assert spectrum_rank(1) == 1


def test_a_matrix_of_equal_rows_has_rank_one(float64):
    """q = 0: every row is uniform, all is in the first singular value."""
    rows = list(spectrum_rows(INPUTS._replace(q=np.zeros_like(INPUTS.q))))
    assert len(rows) == 2
    for row in rows:
        np.testing.assert_allclose(row["cumulative"], 1, atol=1e-6)
        assert row["rank_of_90_percent"] == 1
        assert row["at_128"] is None


def test_shares_are_named_by_their_ranks(float64):
    """The rank i is at index i - 1."""
    (row,) = spectrum_rows(random_inputs(examples=2, length=136, heads=1, head_dim=8))
    shares, rank = row["cumulative"], row["rank_of_90_percent"]
    assert shares[rank - 2] < 0.9 <= shares[rank - 1]
    assert row["at_quarter"] == pytest.approx(shares[33], abs=1e-6)
    assert row["at_128"] == pytest.approx(shares[127], abs=1e-6)
    assert shares[127] < shares[128] - 1e-5


def test_masked_positions_do_not_count(float64):
    """As without them, ranks scaled: their rows and columns add singular values 0."""
    mask = np.ones((2, 12), bool)
    mask[:, [2, 7]] = False
    real = mask[0]
    masked = next(spectrum_rows(INPUTS._replace(mask=mask)))
    fewer = INPUTS._replace(
        mask=mask[:, real], **{x: getattr(INPUTS, x)[:, :, real] for x in ("q", "k", "v")}
    )
    expected = next(spectrum_rows(fewer))["cumulative"]
    scaled = np.interp(np.arange(1, 13) * 10 / 12, np.arange(11), [0, *expected])
    np.testing.assert_allclose(masked["cumulative"], scaled, atol=2e-6)
    assert masked["at_quarter"] == pytest.approx((expected[1] + expected[2]) / 2, abs=2e-6)


def test_the_rank_of_the_proof():
    assert projected_rank(512, 0.5) == math.ceil(40 * math.log(512))
    # 4 n e^(-5 log(n) / 4)
    assert failure_bound(4096, projected_rank(4096, 0.5), 0.5) <= 4 * 4096**-0.25
    # e^(-0.125 320 / 4) = e^-10
    assert failure_bound(1000, 320, 0.5) == pytest.approx(4000 * math.exp(-10))
    assert failure_bound(64, 1, 0.5) == 1


def test_a_random_projection_fails_no_more_often_than_its_lemma_allows():
    """Of 2,000 inner products of two unit vectors, as cheap as they come: one row, one column."""
    rng = np.random.default_rng(0)
    p, w = rng.normal(size=(1, 1, 30)), rng.normal(size=(1, 30, 1))
    for epsilon, rank in ((0.5, 60), (0.3, 200), (0.5, 120)):
        _, proven = random_projection(p, w, rank, draws=2_000)
        assert proven.shape == (2_000, 1, 1)
        assert np.mean(proven > epsilon) <= failure_bound(1, rank, epsilon) < 1


def test_the_spread_of_a_random_projection():
    """u R^T R w has variance (|u|^2 |w|^2 + (u w)^2) / k around u w."""
    p, w = np.ones((1, 1, 4)) / 4, np.array([1.0, 2.0, 3.0, -1.0]).reshape(1, 4, 1)
    printed, _ = random_projection(p, w, 50, draws=4_000)
    expected = (0.25 * 15 + 1.25**2) / 50
    measured = np.mean((printed * 1.25) ** 2)
    # The fourth moment of the error puts 4,000 draws within 3 % (one sigma).
    assert measured == pytest.approx(expected, rel=0.12)


def test_the_error_of_the_proof_is_that_of_the_worst_row():
    """It is relative to |u| |w|; its square has the mean (1 + cos^2) / k."""
    p = np.array([[[1.0, 1, 1, 1], [-2, 1, 0, 3]]])
    w = np.array([1.0, 2.0, 3.0, -1.0]).reshape(1, 4, 1)
    both, *single = (
        random_projection(rows, w, 50, draws=4_000)[1] for rows in (p, p[:, :1], p[:, 1:])
    )
    np.testing.assert_allclose(both, np.maximum(*single), rtol=1e-12)
    for row, proven in zip(p[0], single, strict=True):
        cosine = row @ w[0, :, 0] / (np.linalg.norm(row) * np.linalg.norm(w))
        assert np.mean(proven**2) == pytest.approx((1 + cosine**2) / 50, rel=0.12)


def test_the_theorem_is_shown_with_the_real_positions_of_each_data(float64):
    mask = np.ones((2, 12), bool)
    mask[:, 5:] = False
    rows = list(theorem_rows(INPUTS, draws=2))
    trained = INPUTS._replace(data="trained", mask=mask)
    rows += theorem_rows(trained, draws=2)
    lines = _theorem_table(rows).lines
    shown = {(line[0], line[1], line[3]) for line in lines if line[2] == "0.5"}
    assert shown == {("random", "12", "100"), ("trained", "5", "65")}
    ticks, label = _epsilons_and_ranks(rows)
    assert ticks[3] == "0.5\n65\n100"
    assert label == "ε, and k below it: trained q, k, v, random q, k, v"
    ticks, label = _epsilons_and_ranks(
        [*rows[:10], *(row | {"data": "trained"} for row in rows[:10])]
    )
    assert (ticks[3], label) == ("0.5\n100", "ε, and k below it")


def test_the_theorem_is_about_the_first_example_with_most_positions(float64):
    mask = np.ones((3, 12), bool)
    mask[0, 5:] = mask[1, 9:] = mask[2, 9:] = False
    inputs = random_inputs(examples=3, length=12, heads=2, head_dim=8)
    found = list(theorem_rows(inputs._replace(mask=mask), draws=2))
    second = inputs._replace(
        mask=mask[1:2], **{x: getattr(inputs, x)[:, 1:2] for x in ("q", "k", "v")}
    )
    assert found == list(theorem_rows(second, draws=2))
    assert found[0]["length"] == 9


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((12, 12), ""),
        ((13, 12), " Here k is above n at ε = 0.2, where it bounds no rank."),
        ((20, 13), " Here k is above n at every ε, where it bounds no rank."),
    ],
)
def test_ranks_above_the_number_of_positions_are_told(ranks, told):
    row = {"kind": "theorem1", "length": 12}
    rows = [row | {"epsilon": e, "rank": k} for e, k in zip((0.2, 0.3), ranks, strict=True)]
    assert _on_ranks([*rows, {"kind": "spectrum"}]) == told


def test_rows_of_the_theorem(float64):
    rows = list(theorem_rows(INPUTS, draws=20))
    assert len(rows) == 10
    for row in rows:
        assert row["proven_failures"] < 0.05  # the bound is 1 for so few positions
        assert row["proven_errors"] == sorted(row["proven_errors"])
    # Values of mean 0, whose average nearly cancels: the printed statement fails.
    assert max(row["printed_failures"] for row in rows) > 0.3
