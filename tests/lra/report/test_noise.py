"""Marks of differences from published numbers: by hand on both sides of their limit."""

import math

import pytest

from lra.published import TABLE3, TASKS
from lra.report.cells import cells
from lra.report.groups import group
from lra.report.noise import Spread, spreads, standard_error
from lra.report.tables import Table, tables
from tests.lra.row_factory import diverged_row, make_row


def published(rows) -> Table:
    """The table of published accuracies."""
    return tables(group(rows)[0])[1]


def pair(low: float, high: float, **values) -> list:
    """Two seeds of a cell."""
    return [make_row(low, seed=0, **values), make_row(high, seed=1, **values)]


def test_the_spread_is_pooled_over_the_cells_of_a_column():
    rows = [
        *pair(0.30, 0.32),  # variance 0.0002
        *(make_row(0.40 + s / 100, attention="standard", seed=s) for s in (0, 1, 2)),  # 0.0001
        make_row(0.9, attention="linformer"),
        diverged_row(attention="linformer", seed=1),
        make_row(0.6, task="text"),
        *pair(0.7, 0.8, task="image", data="mine"),
    ]
    found = spreads(group(rows)[0])
    assert list(found) == ["listops"]
    assert found["listops"].std == pytest.approx(math.sqrt((0.0002 + 2 * 0.0001) / 3))
    assert found["listops"].freedom == 3


@pytest.mark.parametrize("task", ["pathx", "parity"])
def test_columns_without_published_numbers_are_not_judged(task):
    rows = [*pair(0.36, 0.38), *pair(0.6, 0.7, task=task)]
    assert list(spreads(group(rows)[0])) == ["listops"]
    (note,) = (note for note in published(rows).notes if note.startswith("▼ below, ▲ above"))
    assert "that would be marked: ListOps 1.41 (1, " in note


def test_cells_in_another_format_have_no_part_in_the_spread():
    fast = {"dtype": "bfloat16"}
    rows = [*pair(0.30, 0.32), *pair(0.2, 0.4, **fast), *pair(0.5, 0.52, attention="standard")]
    (table,) = group(rows)
    assert len(table.apart) == 1
    assert spreads(table)["listops"] == Spread(pytest.approx(math.sqrt(0.0002)), 2)


def test_the_least_difference_that_is_marked_is_that_of_the_best_known_cell():
    official = {"data": "official"}
    # Standard with one seed, Nyström with two: only the second number is the least.
    rows = [make_row(0.37, attention="standard", **official), *pair(0.36, 0.38, **official)]
    least = 200 * math.sqrt(0.3715 * 0.6285 / 2000 + 0.0002 * 1.5)
    (note,) = (note for note in published(rows).notes if "that would be marked" in note)
    assert f"ListOps 1.41 (1, {least:.1f})" in note


def test_the_error_to_expect_counts_test_sets_and_seeds():
    spread = {"listops": Spread(0.01, 4)}
    of_published = 0.371 * 0.629
    for data, ours in (("official", 0.0), ("generated", 0.39 * 0.61)):
        (cell,) = cells(pair(0.38, 0.40, attention="standard", data=data))
        expected = math.sqrt((of_published + ours) / 2000 + 0.0001 * 1.5)
        assert standard_error([cell], spread) == pytest.approx(expected)
    (alone,) = cells([make_row(0.4, attention="standard", data="official")])
    expected = math.sqrt(of_published / 2000 + 0.0001 * 2)
    assert standard_error([alone], spread) == pytest.approx(expected)
    assert standard_error([alone], {"text": Spread(0.01, 4)}) is None
    # A seed that diverged is no part of the mean.
    (one_of_two,) = cells(
        [
            make_row(0.4, attention="standard", data="official"),
            diverged_row(attention="standard", data="official", seed=1),
        ]
    )
    assert standard_error([one_of_two], spread) == pytest.approx(expected)


def test_the_test_set_of_pathfinder_is_another_draw_even_from_the_official_files():
    row = make_row(0.75, task="pathfinder", attention="standard", data="official")
    (alone,) = cells([row])
    expected = math.sqrt((0.7416 * 0.2584 + 0.75 * 0.25) / 20_000 + 0.0001 * 2)
    found = standard_error([alone], {"pathfinder": Spread(0.01, 4)})
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ours", "mark"), [(0.3255, "▼"), (0.3256, ""), (0.4164, ""), (0.4165, "▲")]
)
def test_a_difference_is_marked_from_two_standard_deviations_on(ours, mark):
    # The only spread is Nyström's, whose seeds have variance 0.0002. Two standard deviations are
    # 2 sqrt(0.371 0.629 / 2000 + 2 0.0002) = 2 sqrt(0.00011668 + 0.0004) = 0.04546 for one seed of
    # Standard, which is published with 0.371.
    official = {"data": "official"}
    rows = [make_row(ours, attention="standard", **official), *pair(0.36, 0.38, **official)]
    assert published(rows).lines[0][1] == f"37.10 ({100 * ours - 37.1:+.2f}){mark}"


def test_without_two_seeds_in_a_column_nothing_is_marked():
    rows = [make_row(0.9), *pair(0.9, 0.91, task="text")]
    table = published(rows)
    assert table.lines[4][1:3] == ["37.15 (+52.85)", "65.52 (+24.98)▲"]
    (note,) = (note for note in table.notes if note.startswith("▼ below, ▲ above"))
    # 2 sqrt(p (1 - p) / N + m (1 - m) / N + s^2 (1 + 1 / 2)), p = 65.52 and m = 90.5 %, N = 25,000
    assert "that would be marked: Text 0.71 (1, 1.9). With few" in note
    table = published([make_row(0.9)])
    assert table.lines[4][1] == "37.15 (+52.85)"
    assert table.notes[-1] == (
        "No difference is judged: no column on LRA's data has a cell of two seeds."
    )


def test_an_average_is_marked_where_all_its_columns_are():
    rows = [row for task in TASKS for row in pair(0.59, 0.61, task=task)]
    five = [cells([row for row in rows if row.task == task])[0] for task in TASKS]
    spread = spreads(group(rows)[0])
    alone = [standard_error([cell], spread) for cell in five]
    together = math.sqrt(sum(error**2 for error in alone)) / 5
    assert standard_error(five, spread) == pytest.approx(together)
    average = sum(TABLE3["nystrom"].values()) / 500
    for shift, mark in ((1.9, ""), (2.1, "▲"), (-2.1, "▼")):
        # A shift in all cells alike hardly changes the noise of their test sets.
        by = average + shift * together - 0.6
        rows = [row for task in TASKS for row in pair(0.59 + by, 0.61 + by, task=task)]
        assert published(rows).lines[4][6] == f"58.95 ({100 * shift * together:+.2f}){mark}"
    # One column without two seeds.
    assert published(rows[:-1]).lines[4][6].endswith(", 1 to 2)")
