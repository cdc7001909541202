"""Hard 32 x 32 images against 600 that the published generator made with LRA's parameters.

The numbers are of those 600 (github.com/drewlinsley/pathfinder as of 2019; grey levels as in
`pathfinder_rendering`); the tolerances cover their sampling error.
"""

import numpy as np
import pytest
from scipy import stats

from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import parameters

COUNT = 6000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Mean grey level of blocks of 4 x 4 pixels.
BLOCKS = [
    [4.9, 18.6, 19.6, 19.0, 18.5, 18.1, 16.4, 6.4],
    [22.3, 22.3, 23.6, 26.4, 23.4, 19.5, 14.4, 14.5],
    [20.4, 24.1, 25.9, 31.6, 22.7, 18.4, 15.0, 13.5],
    [17.3, 25.9, 28.6, 61.9, 29.2, 23.0, 18.0, 11.5],
    [16.3, 22.7, 23.4, 29.4, 24.8, 23.5, 18.2, 11.1],
    [15.9, 20.5, 20.8, 22.8, 24.1, 18.3, 15.6, 10.3],
    [14.3, 17.5, 15.9, 19.5, 18.2, 16.8, 12.6, 9.9],
    [4.0, 14.1, 16.0, 14.2, 12.0, 11.2, 9.7, 2.5],
]


@pytest.fixture(scope="module")
def made():
    return joined(list(batches(parameters(32, "hard"), seed=0, count=COUNT, workers=2)))


def joined(parts):
    """Named tuples of arrays, or of such, one after the other."""
    if isinstance(parts[0], tuple):
        return type(parts[0])(*map(joined, zip(*parts, strict=True)))
    return np.concatenate(parts)


def distance(points):
    """Between the two points of each image: int [n, 2, 2] to float [n]."""
    return np.hypot(*(points[:, 0] - points[:, 1]).T)


def same_distribution(values, reference):
    """Two-sample chi-square against counts of the 600 images, {value: count}."""
    assert set(values) <= set(reference)
    ours = [np.count_nonzero(values == value) for value in reference]
    table = np.array([ours, list(reference.values())])
    table = table[:, table.sum(axis=0) > 0]
    return stats.chi2_contingency(table).pvalue > 1e-3


def logistic_accuracy(feature, labels):
    """In-sample accuracy of a logistic regression on one feature."""
    design = np.stack([np.ones(len(feature)), stats.zscore(feature)], axis=1)
    weights = np.zeros(2)
    for _ in range(20):
        chance = 1 / (1 + np.exp(-design @ weights))
        curvature = design.T * (chance * (1 - chance)) @ design
        weights += np.linalg.solve(curvature, design.T @ (labels - chance))
    return np.mean((design @ weights > 0) == labels)


def test_labels_are_a_fair_coin(made):
    assert abs(made.labels.mean() - 0.5) < 4 * 0.5 / COUNT**0.5
    assert abs(made.layout.marked.mean() - 0.5) < 4 * 0.5 / COUNT**0.5


def test_discs_are_on_a_start_and_on_the_end_that_the_label_says(made):
    for index in range(200):
        marked = made.layout.marked[index]
        ended = marked if made.labels[index] == 1 else 1 - marked
        assert (made.discs[index, 0] == made.starts[index, marked]).all()
        assert (made.discs[index, 1] == made.ends[index, ended]).all()


def test_mean_level(made):
    assert made.images.mean() == pytest.approx(18.77, abs=0.3)
    by_label = [made.images[made.labels == label].mean() for label in (0, 1)]
    assert by_label == pytest.approx([18.8, 18.74], abs=0.3)


@pytest.mark.parametrize(
    ("level", "fraction", "tolerance"),
    [
        (0, 0.363, 0.03),
        (16, 0.158, 0.03),
        (64, 0.121, 0.03),
        (128, 0.067, 0.03),
        (192, 0.0137, 0.06),
        (254, 0.0017, 0.05),
    ],
)
def test_levels(made, level, fraction, tolerance):
    assert np.mean(made.images > level) == pytest.approx(fraction, rel=tolerance)


def test_brightest_pixel_is_white(made):
    assert (made.images.max(axis=(1, 2)) == 255).all()


def test_mean_map(made):
    """It is lopsided: moves are rounded upwards, and first dashes point up and to the left."""
    blocks = made.images.reshape(-1, 8, 4, 8, 4).mean(axis=(0, 2, 4))
    np.testing.assert_allclose(blocks, BLOCKS, atol=3.2)


def test_frames(made):
    """The outermost two rows and columns, the next ones, and the third."""
    mean = made.images.mean(axis=0)
    found = [(mean[[i, -1 - i]].mean() + mean[:, [i, -1 - i]].mean()) / 2 for i in range(3)]
    assert found == pytest.approx([0.4, 2.5, 24.3], rel=0.1)


def test_distractors(made):
    reference = {0: 159, 1: 230, 2: 160, 3: 44, 4: 7, 5: 0}
    assert same_distribution(made.layout.distractors, reference)


def test_first_starts(made):
    assert same_distribution(made.starts[:, 0, 0], {14: 182, 15: 208, 16: 210})
    assert same_distribution(made.starts[:, 0, 1], {14: 107, 15: 252, 16: 241})


def test_distance_of_the_starts(made):
    apart = distance(made.starts)
    assert apart.min() == pytest.approx(6.40, abs=0.01)
    assert apart.max() == pytest.approx(7.62, abs=0.01)
    assert apart.mean() == pytest.approx(7.05, abs=0.05)


def test_ends(made):
    assert made.ends.min() == 2
    assert made.ends.max() == 29
    assert made.ends.mean(axis=(0, 1)) == pytest.approx([17.1, 16.7], abs=1)
    assert made.ends.std(axis=(0, 1)) == pytest.approx([8.9, 8.9], abs=0.5)


def test_distance_from_start_to_end(made):
    ways = np.stack([made.starts, made.ends], axis=2).reshape(-1, 2, 2)
    found = np.quantile(distance(ways), QUANTILES)
    np.testing.assert_allclose(found, [4.5, 9.9, 14.0, 17.2, 21.9], atol=1.2)


@pytest.mark.parametrize(
    ("label", "expected"),
    [(0, [4.9, 9.8, 13.0, 16.1, 21.0]), (1, [5.1, 9.9, 13.9, 17.3, 22.8])],
)
def test_distance_of_the_discs(made, label, expected):
    found = np.quantile(distance(made.discs[made.labels == label]), QUANTILES)
    np.testing.assert_allclose(found, expected, atol=2.2)


def test_label_does_not_leak(made):
    """What a glance tells says nothing about the label; the discs' distance a little."""
    for feature in (made.images.mean(axis=(1, 2)), made.layout.distractors):
        assert logistic_accuracy(feature, made.labels) == pytest.approx(0.5, abs=0.02)
    assert logistic_accuracy(distance(made.discs), made.labels) <= 0.56


def test_attempts(made):
    """One attempt at two targets in 307 succeeds."""
    assert made.layout.attempts.mean() == pytest.approx(307, rel=0.1)
