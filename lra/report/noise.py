"""Marks of differences from published accuracies that are larger than chance explains."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from lra.published import TABLE3, TASKS
from lra.report.cells import Cell, task_title
from lra.report.groups import Group
from lra.tasks import TASKS as ALL_TASKS

BELOW = "▼"
ABOVE = "▲"


class Spread(NamedTuple):
    """Standard deviation over seeds, a fraction, and its degrees of freedom."""

    std: float
    freedom: int


def spreads(group: Group) -> dict[str, Spread]:
    """By task the spread over seeds, pooled over the cells of its column.

    It is sqrt(sum (n - 1) s^2 / sum (n - 1)) over all cells with n > 1 results of standard
    deviation s, since that of one cell with two or three seeds may be far off. Columns without such
    a cell are left out, and so are those without published numbers and those on data that are not
    LRA's: nothing is compared there.
    """
    found = {}
    for task in group.tasks:
        if task not in TASKS or group.data_of(task):
            continue
        parts = [cell for line in group.lines for cell in line.cells.get(task, [])]
        several = [cell.stat() for cell in parts if len(cell.ok) > 1]
        freedom = sum(one.n - 1 for one in several)
        if freedom:
            squares = sum((one.n - 1) * one.std**2 for one in several)
            found[task] = Spread(math.sqrt(squares / freedom), freedom)
    return found


def standard_error(ours: Sequence[Cell], spread: dict[str, Spread]) -> float | None:
    """Standard deviation to expect of our mean minus the published one; None where it is unknown.

    Accuracies vary by chance with the test set and with the seed. Let p be the published accuracy,
    of one run, m our mean over n seeds, N the number of test examples and s the spread over seeds
    of the column. The variance of the difference in one cell is

        p (1 - p) / N + m (1 - m) / N + s^2 (1 + 1 / n)

    On LRA's own test set the second term is left out: both sides answer the same examples, and one
    term allows for those that only one of them gets right. Pathfinder keeps both terms, since the
    published code split its data anew in every run. The variance of the mean of five cells is the
    sum of theirs over 25.

    Args:
        ours: cells with results and a published number.
        spread: over seeds, by task; the result is None if it lacks the task of a cell.

    Returns:
        A fraction.
    """
    variance = 0.0
    for cell in ours:
        row, mean = cell.ok[0], cell.stat().mean
        if row.task not in spread:
            return None
        published = TABLE3[row.attention][row.task] / 100
        of_test_sets = published * (1 - published)
        if row.data != "official" or row.task == "pathfinder":
            of_test_sets += mean * (1 - mean)
        variance += of_test_sets / ALL_TASKS[row.task].counts["test"]
        variance += spread[row.task].std ** 2 * (1 + 1 / len(cell.ok))
    return math.sqrt(variance) / len(ours)


def mark_of_noise(difference: float, error: float | None) -> str:
    """▼ or ▲ if a difference exceeds twice its standard deviation, else nothing."""
    if error is None or abs(difference) <= 2 * error:
        return ""
    return BELOW if difference < 0 else ABOVE


def on_marks(group: Group, spread: dict[str, Spread]) -> str:
    """A note: what the marks mean, and how well the spread behind them is known."""
    if not spread:
        return "No difference is judged: no column on LRA's data has a cell of two seeds."
    told = ", ".join(_on_spread(group, task, *spread[task]) for task in spread)
    return (
        f"{BELOW} below, {ABOVE} above the published value by more than two standard deviations of "
        "the difference. These count the binomial noise of the test sets and the spread over "
        "seeds, of the published run (one seed) and of our mean. The spread is pooled over all "
        "cells of a column with two or more seeds; in brackets its degrees of freedom, and the "
        f"least difference that would be marked: {told}. With few degrees of freedom chance alone "
        "marks more than one cell in twenty; where seeds of one cell end far apart, small "
        "differences of the others are not marked either. No marks in other columns; the average "
        "is judged likewise where all five columns are."
    )


def _on_spread(group: Group, task: str, std: float, freedom: int) -> str:
    """`ListOps 5.27 (9, 12.4)`, in percent."""
    compared = (line for line in group.lines if line.attention in TABLE3)
    cells = [cell for line in compared if (cell := line.cell(task))]
    errors = [standard_error([cell], {task: Spread(std, freedom)}) for cell in cells]
    least = f", {200 * min(errors):.1f}" if errors else ""
    return f"{task_title(task)} {100 * std:.2f} ({freedom}{least})"
