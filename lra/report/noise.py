"""Marks for differences from published accuracies that are larger than chance explains."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lra.published import TABLE3, TABLE_TASKS
from lra.report.cells import Cell
from lra.row import LRA_DATA
from lra.tasks import TASKS

BELOW = "▼"
ABOVE = "▲"
# Probability that a normal variable is less than two standard deviations above its mean.
_UP_TO_TWO = 0.5 * (1 + math.erf(math.sqrt(2)))


class Noise(NamedTuple):
    """Expected standard deviation of a difference (a fraction), and how many of them are marked."""

    std: float
    multiple: float

    @property
    def least(self) -> float:
        """The smallest difference that is marked, a fraction."""
        return self.std * self.multiple


def noise(ours: Sequence[Cell]) -> Noise | None:
    """Estimate the noise of our mean accuracy minus the published one; None if unknown.

    Accuracies vary by chance with the test set and with the seed. Let p be the published accuracy
    of one run, m our mean over n seeds, s their standard deviation and N the number of test
    examples. The variance of the difference in one cell is

        p (1 - p) / N + m (1 - m) / N + s^2 (1 + 1 / n)

    On LRA's own test set the second term is dropped: both models answer the same examples, and one
    term allows for those that only one of them gets right. Pathfinder keeps both terms, since the
    published code split its data anew in every run. The variance of the mean of five cells is the
    sum of their variances divided by 25.

    This is an upper estimate, since s^2 has a part of what the binomial terms count: the examples
    that only some of the seeds get right.

    As many standard deviations are marked as chance exceeds about as rarely as a normal variable
    exceeds two. For the noise of the test sets this is 2, for s^2, which n seeds estimate, it is
    Student's quantile of n - 1 degrees of freedom, and for their sum the mean of both, weighted by
    the variances (Cochran and Cox). The degrees of freedom of Welch and Satterthwaite would mark
    more than twice as often with two seeds: where these happen to agree, they take s^2 for known.

    Args:
        ours: Cells on LRA's data with a published accuracy. The result is None if one of them has
            fewer than two seeds with a result.
    """
    variance, multiples = 0.0, 0.0
    for cell in ours:
        row, stat = cell.ok[0], cell.stat()
        if stat.std is None:
            return None
        published = TABLE3[row.attention][row.task] / 100
        binomial = published * (1 - published)
        if row.data != "official" or row.task == "pathfinder":
            binomial += stat.mean * (1 - stat.mean)
        seed_variance = stat.std**2 * (1 + 1 / stat.n)
        test_variance = binomial / TASKS[row.task].counts["test"]
        variance += test_variance + seed_variance
        multiples += 2 * test_variance + _quantile(stat.n - 1) * seed_variance
    return Noise(math.sqrt(variance) / len(ours), multiples / variance)


def _quantile(freedom: int) -> float:
    """Student's quantile that is exceeded as rarely as two standard deviations of a normal one."""
    from scipy.special import stdtrit  # imported only when differences are judged

    return float(stdtrit(freedom, _UP_TO_TWO))


def mark_of_noise(difference: float, chance: Noise | None) -> str:
    """Return ▼ or ▲ if chance rarely causes a difference this large, else an empty string."""
    if chance is None or abs(difference) <= chance.least:
        return ""
    return BELOW if difference < 0 else ABOVE


def on_marks(cells: Iterable[Cell]) -> str:
    """Return a note on what the marks mean, for a table whose cells with results are `cells`."""
    if not any(_is_judged(cell) for cell in cells):
        return "No difference is judged: no cell on LRA's data has two seeds."
    return (
        f"{BELOW} below, {ABOVE} above the published value by more than two standard deviations of "
        "the difference. These combine the binomial noise of the test sets and the spread over the "
        "seeds of the cell, once for the published run (one seed) and once for our mean. As few "
        "seeds leave the spread uncertain, Student's quantile of the same probability takes the "
        "place of 2 for it; the two are averaged with the variances as weights (Cochran and Cox). "
        "Chance marks about one of twenty cells at most if seeds vary normally; where some learn "
        "and others do not, few seeds that agree are marked too often. Cells of one seed are not "
        "judged, and the average only where all five cells are."
    )


def _is_judged(cell: Cell) -> bool:
    row = cell.rows[0]
    compared = row.attention in TABLE3 and row.task in TABLE_TASKS and row.data in LRA_DATA
    return compared and len(cell.ok) > 1
