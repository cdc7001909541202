"""Marks of differences from published accuracies that are larger than chance explains."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lra.published import TABLE3, TASKS
from lra.report.cells import Cell
from lra.report.groups import LRA_DATA
from lra.tasks import TASKS as ALL_TASKS

BELOW = "▼"
ABOVE = "▲"
# How often a normal variable is below two standard deviations.
_UP_TO_TWO = 0.5 * (1 + math.erf(math.sqrt(2)))


class Noise(NamedTuple):
    """The standard deviation to expect of a difference, a fraction, and its degrees of freedom."""

    std: float
    freedom: float

    @property
    def least(self) -> float:
        """The least difference that is marked, a fraction.

        Student's quantile takes the place of 2: chance exceeds it as rarely as a normal variable
        exceeds two standard deviations.
        """
        from scipy.special import stdtrit  # not needed to read rows

        return self.std * float(stdtrit(self.freedom, _UP_TO_TWO))


def noise(ours: Sequence[Cell]) -> Noise | None:
    """What chance does to our mean minus the published one; None where that is unknown.

    Accuracies vary by chance with the test set and with the seed. Let p be the published accuracy,
    of one run, m our mean over n seeds, s their standard deviation and N the number of test
    examples. The variance of the difference in one cell is

        p (1 - p) / N + m (1 - m) / N + s^2 (1 + 1 / n)

    On LRA's own test set the second term is left out: both sides answer the same examples, and one
    term allows for those that only one of them gets right. Pathfinder keeps both terms, since the
    published code split its data anew in every run. The variance of the mean of five cells is the
    sum of theirs over 25.

    s^2 has n - 1 degrees of freedom, the noise of a test set arbitrarily many. Those of the sum are
    Welch and Satterthwaite's: its square over the sum of [s^2 (1 + 1 / n)]^2 / (n - 1).

    Args:
        ours: cells on LRA's data with a published number; the result is None if one of them has
            fewer than two seeds with a result.
    """
    variance, uncertain = 0.0, 0.0
    for cell in ours:
        row, found = cell.ok[0], cell.stat()
        if found.std is None:
            return None
        published = TABLE3[row.attention][row.task] / 100
        of_test_sets = published * (1 - published)
        if row.data != "official" or row.task == "pathfinder":
            of_test_sets += found.mean * (1 - found.mean)
        of_seeds = found.std**2 * (1 + 1 / found.n)
        variance += of_test_sets / ALL_TASKS[row.task].counts["test"] + of_seeds
        uncertain += of_seeds**2 / (found.n - 1)
    freedom = variance**2 / uncertain if uncertain else math.inf
    return Noise(math.sqrt(variance) / len(ours), freedom)


def mark_of_noise(difference: float, of_chance: Noise | None) -> str:
    """▼ or ▲ if chance rarely makes a difference this large, else nothing."""
    if of_chance is None or abs(difference) <= of_chance.least:
        return ""
    return BELOW if difference < 0 else ABOVE


def on_marks(cells: Iterable[Cell]) -> str:
    """A note: what the marks mean, given the cells of the table that have results."""
    if not any(_is_judged(cell) for cell in cells):
        return "No difference is judged: no cell on LRA's data has two seeds."
    return (
        f"{BELOW} below, {ABOVE} above the published value by more than two standard deviations of "
        "the difference. These count the binomial noise of the test sets and the spread over the "
        "seeds of the cell, once for the published run (one seed) and once for our mean. Where few "
        "seeds make this spread uncertain, Student's quantile of the same probability takes the "
        "place of 2, with Welch and Satterthwaite's degrees of freedom. Cells of one seed are not "
        "judged, and the average only where all five cells are."
    )


def _is_judged(cell: Cell) -> bool:
    row = cell.rows[0]
    compared = row.attention in TABLE3 and row.task in TASKS and row.data in LRA_DATA
    return compared and len(cell.ok) > 1
