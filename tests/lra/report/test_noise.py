"""Marks of differences from published numbers: by hand on both sides of their limit."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from lra.published import TABLE3, TABLE_TASKS
from lra.report.cells import divide_into_cells
from lra.report.groups import group
from lra.report.noise import Noise, noise
from lra.report.table import Table
from lra.report.tables import tables
from tests.lra.row_factory import diverged_row, make_row
from tests.suites import slow_but

NOT_JUDGED = "No difference is judged: no cell on LRA's data has two seeds."


def published(rows) -> Table:
    """The table of published accuracies."""
    return tables(group(rows)[0])[1]


def pair(low: float, high: float, **values) -> list:
    """Two seeds of a cell."""
    return [make_row(low, seed=0, **values), make_row(high, seed=1, **values)]


def of_standard(*accuracies: float, task: str = "listops", data: str = "official") -> Noise | None:
    """The noise of a cell of Standard, a seed for each accuracy."""
    values = {"attention": "standard", "task": task, "data": data}
    (cell,) = divide_into_cells(
        make_row(each, seed=seed, **values) for seed, each in enumerate(accuracies)
    )
    return noise([cell])


@pytest.mark.parametrize(("data", "ours"), [("official", 0.0), ("generated", 0.39 * 0.61)])
def test_the_noise_counts_test_sets_and_seeds(data, ours):
    found = of_standard(0.38, 0.40, data=data)  # variance 0.0002
    variance = (0.371 * 0.629 + ours) / 2000 + 0.0002 * 1.5
    assert found.std == pytest.approx(math.sqrt(variance))
    of_seeds = 0.0002 * 1.5 / variance
    multiple = 2 * (1 - of_seeds) + stats.t.isf(stats.norm.sf(2), 1) * of_seeds
    assert found.multiple == pytest.approx(multiple)


def test_a_spread_over_more_seeds_is_known_better():
    found = of_standard(0.36, 0.37, 0.38, 0.39)  # variance 0.0005 / 3
    of_seeds = 0.0005 / 3 * (1 + 1 / 4)
    variance = 0.371 * 0.629 / 2000 + of_seeds
    assert found.std == pytest.approx(math.sqrt(variance))
    quantile = stats.t.isf(stats.norm.sf(2), 3)
    multiple = (2 * (variance - of_seeds) + quantile * of_seeds) / variance
    assert found.multiple == pytest.approx(multiple)


def test_the_test_set_of_pathfinder_is_another_draw_even_from_the_official_files():
    found = of_standard(0.74, 0.76, task="pathfinder")
    variance = (0.7416 * 0.2584 + 0.75 * 0.25) / 20_000 + 0.0002 * 1.5
    assert found.std == pytest.approx(math.sqrt(variance))


def test_a_cell_of_one_seed_has_no_known_noise():
    assert of_standard(0.4) is None
    values = {"attention": "standard", "data": "official"}
    (cell,) = divide_into_cells([make_row(0.4, **values), diverged_row(seed=1, **values)])
    assert noise([cell]) is None


@pytest.mark.parametrize(
    ("seeds", "spread"),
    slow_but([(2, 0.002), (3, 0.01), (7, 0.03)], itertools.product((2, 3, 7), (0.002, 0.01, 0.03))),
)
def test_chance_exceeds_the_least_difference_about_as_rarely_as_two_deviations(seeds, spread):
    """Of models without a difference, by simulation: 4.6 % with a known spread, here 6 % at most.

    With 2 in place of Student's quantile it is up to 22 %, with the degrees of freedom of Welch
    and Satterthwaite up to 12 %.
    """
    draws = np.random.default_rng(0)
    binomial = 0.371 * 0.629 / 2000
    marked = 0
    for _ in range(2000):
        accuracies = 0.371 + spread * draws.standard_normal(seeds)
        of_test_set, of_published = draws.standard_normal(2) * (math.sqrt(binomial), spread)
        chance = of_standard(*np.clip(accuracies, 0, 1))
        marked += abs(accuracies.mean() + of_test_set - 0.371 - of_published) > chance.least
    assert marked / 2000 < 0.06


def test_seeds_that_agree_leave_the_noise_of_the_test_sets():
    found = of_standard(0.38, 0.38)
    assert found.multiple == 2
    assert found.least == pytest.approx(2 * math.sqrt(0.371 * 0.629 / 2000))


# Two seeds of Standard, 2 % apart, against 37.1 %. With w = 0.0002 * 1.5 of them and
# v = 0.371 * 0.629 / 2000 + w = 0.00041668, Student's quantile 13.9677 counts for w / v of them
# and 2 for the rest, together 10.6165, and the least difference is 10.6165 sqrt(v) = 0.21671.
@pytest.mark.parametrize(
    ("ours", "mark"), [(0.1542, "▼"), (0.1544, ""), (0.5876, ""), (0.5878, "▲")]
)
def test_a_difference_is_marked_from_the_least_on(ours, mark):
    rows = pair(ours - 0.01, ours + 0.01, attention="standard", data="official")
    assert published(rows).lines[0][1] == f"37.10 ({100 * ours - 37.1:+.2f}){mark}"


def test_other_cells_of_a_column_do_not_count():
    # Nyström's seeds are far apart; Standard's are not, and 3 points below are marked.
    near = [make_row(0.34 + s / 1000, attention="standard", seed=s) for s in (0, 1, 2)]
    rows = [*near, *pair(0.2, 0.4)]
    table = published(rows)
    assert table.lines[0][1] == "37.10 (-3.00)"
    assert table.lines[4][1] == "37.15 (-7.15)"
    lower = [make_row(0.33 + s / 1000, attention="standard", seed=s) for s in (0, 1, 2)]
    assert published([*lower, *pair(0.2, 0.4)]).lines[0][1] == "37.10 (-4.00)▼"


def test_cells_of_one_seed_are_not_judged():
    table = published([make_row(0.9), *pair(0.9, 0.91, task="text")])
    assert table.lines[4][1:3] == ["37.15 (+52.85)", "65.52 (+24.98)▲"]
    assert any(note.startswith("▼ below, ▲ above") for note in table.notes)
    table = published([make_row(0.9)])
    assert table.lines[4][1] == "37.15 (+52.85)"
    assert table.notes[-1] == NOT_JUDGED
    on_other_data = pair(0.9, 0.91, task="text", data="mine")
    assert published([make_row(0.9), *on_other_data]).notes[-1] == NOT_JUDGED


@pytest.mark.parametrize("task", ["pathx", "parity"])
def test_columns_without_published_numbers_are_not_judged(task):
    assert published([make_row(0.36), *pair(0.6, 0.7, task=task)]).notes[-1] == NOT_JUDGED


def test_an_average_is_marked_where_all_five_cells_are_judged():
    rows = [row for task in TABLE_TASKS for row in pair(0.59, 0.61, task=task)]
    five = [divide_into_cells([row for row in rows if row.task == task])[0] for task in TABLE_TASKS]
    alone = [noise([cell]) for cell in five]
    together = noise(five)
    assert together.std == pytest.approx(math.sqrt(sum(one.std**2 for one in alone)) / 5)
    weighted = sum(one.multiple * one.std**2 for one in alone)
    assert together.multiple == pytest.approx(weighted / sum(one.std**2 for one in alone))
    average = sum(TABLE3["nystrom"].values()) / 500
    for times, mark in ((0.97, ""), (1.03, "▲"), (-1.03, "▼")):
        # A shift in all cells alike hardly changes the noise of their test sets.
        by = average + times * together.least - 0.6
        rows = [row for task in TABLE_TASKS for row in pair(0.59 + by, 0.61 + by, task=task)]
        shown = f"58.95 ({100 * times * together.least:+.2f}){mark}"
        assert published(rows).lines[4][6] == shown
    # One cell with one seed.
    assert published(rows[:-1]).lines[4][6].endswith(", 1 to 2)")
