"""The average over the five tasks: whether there is one, and what it says of its cells."""

import math

from lra.published import TABLE_TASKS
from lra.report.formats import plain
from lra.report.groups import group
from lra.report.tables import tables
from tests.lra.report.test_tables import first, five, line
from tests.lra.row_factory import HALF, diverged_row, failed_row, make_row


def published_line(rows) -> str:
    """Nyströmformer's line in the table of published accuracies."""
    text = plain(tables(group(rows)[0])[1])
    return next(text for text in text.splitlines() if text.startswith("| Nyströmformer"))


def test_an_average_needs_one_finished_cell_for_each_task():
    rows = five("nystrom", 0.5)
    assert line(rows).endswith(" 50.00 (1) |")
    other = make_row(0.4, data="official")
    for incomplete in (rows[1:], [*rows, other], [*rows, failed_row(seed=1)]):
        assert line(incomplete).split()[-2] == "–"
        assert "58.95 |" in published_line(incomplete)


def test_why_five_filled_cells_have_no_average_is_said():
    rows = five("nystrom", 0.5)
    changed = [
        ([], []),
        ([failed_row(seed=1)], ["a failed seed of ListOps is to be tried again"]),
        ([make_row(0.4, task="image", seed=1, steps=10)], ["seeds of Image differ"]),
        (
            [make_row(0.4, data="official"), failed_row(task="text", seed=1)],
            ["seeds of ListOps differ", "a failed seed of Text is to be tried again"],
        ),
    ]
    for more, reasons in changed:
        said = [text for text in first([*rows, *more]).splitlines() if "no average" in text]
        told = [f"Nyströmformer has no average: {', '.join(reasons)}."] if reasons else []
        assert said == told
    assert "no average: no result on ListOps." in first([*rows[1:], diverged_row()])
    # What is not there needs no reason.
    assert "no average" not in first(rows[1:])


def test_the_deviation_of_an_average_is_that_of_single_runs():
    rows = five("nystrom", 0.5)
    # Cells have standard deviations of 2, 2, 4, 1 and 0 points: sqrt(4 + 4 + 16 + 1 + 0) / 5 = 1.
    for task, points in zip(TABLE_TASKS, (2, 2, 4, 1, 0), strict=True):
        other = 0.5 + points / 100 * math.sqrt(2)
        # Whichever seed is the higher one: seeds of different tasks have nothing in common.
        rows.append(make_row(other, task=task, seed=1 if points % 4 else 7))
    mean = 50 + 9 * math.sqrt(2) / 10
    assert line(rows).endswith(f" {mean:.2f} ± 1.00 (2) |")
    said = "Average: ± is sqrt(s1^2 + ... + s5^2) / 5 of the five cells' standard deviations"
    assert said in first(rows)
    assert "Average:" not in first(rows[1:5])
    # A cell of one seed has no standard deviation.
    assert line(rows[:-1]).endswith(f" {mean:.2f} (1 to 2) |")
    assert said not in first(rows[:-1])


def test_an_average_over_unlike_numbers_of_seeds_says_so():
    rows = [*five("nystrom", 0.5), make_row(0.6, seed=1)]
    assert line(rows).endswith(" 51.00 (1 to 2) |")
    assert "58.95 (-7.95, 1 to 2) |" in published_line(rows)
    assert "k to n: the least and the most seeds of the five cells." in first(rows)
    assert "k to n" not in first(five("nystrom", 0.5))
    assert "n of m runs" not in first(rows)


def test_an_average_over_survivors_says_so():
    rows = [*five("nystrom", 0.5), diverged_row(seed=1)]
    assert line(rows).endswith(" 50.00 (5 of 6 runs) |")
    assert "n of m runs: seeds of some of the five cells diverged" in first(rows)
    assert "37.15 (+12.85, 1 of 2 seeds) |" in published_line(rows)
    assert "58.95 (-8.95, 5 of 6 runs) |" in published_line(rows)


def test_an_average_has_the_marks_of_its_cells():
    rows = [make_row(0.5, **HALF), *five("nystrom", 0.5)[1:]]
    assert line(rows).endswith(" 50.00 (1) [bfloat16 and float32] |")
    assert "37.15 (+12.85, bfloat16) |" in published_line(rows)
    assert "58.95 (-8.95, bfloat16 and float32) |" in published_line(rows)
    rows = five("nystrom", 0.5, **HALF)
    assert line(rows).endswith(" 50.00 (1) |")
    assert "Ours all in bfloat16." in plain(tables(group(rows)[0])[1])
    rows = [*five("nystrom", 0.5)[:-1], make_row(0.5, task="pathfinder", data="mine")]
    assert line(rows).endswith(" 50.00 (1)† |")
    assert "70.94† | 58.95† |" in " ".join(published_line(rows).split())


def test_an_average_without_selection_is_of_accuracies_without_selection():
    """Which are a point lower in these rows."""
    found = {table.title: table.lines for table in tables(group(five("nystrom", 0.5))[0])}
    texts = {line[0]: line[1:] for line in found["Test accuracy without selection"]}
    assert texts["Nyströmformer"] == ["49.00 (1)"] * 6
