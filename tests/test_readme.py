"""Accuracies in the pages written by hand are those of the rows."""

import pathlib
import statistics

import pytest

from lra import records
from lra.published import TABLE3, TASKS
from lra.row import Row

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {
    "standard": "Standard",
    "reformer": "Reformer",
    "linformer": "Linformer",
    "performer": "Performer",
    "nystrom": "Nyströmformer",
}


def of_table(attention: str, task: str) -> list[Row]:
    """The committed results of a cell of the table, by seed."""
    rows = records.latest(records.read(ROOT / "results" / "accuracy.jsonl"))
    own = [row for row in rows if (row.task, row.attention) == (task, attention)]
    assert all(row.protocol == "table3" and row.status == "ok" for row in own)
    return sorted(own, key=lambda row: row.seed)


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def cell(attention: str, task: str) -> str:
    """`36.60 ± 1.41 (2) / 37.15`: ours, its spread over seeds and their number, published."""
    found = [row.test_accuracy for row in of_table(attention, task)]
    spread = f" ± {percent(statistics.stdev(found))}" if len(found) > 1 else ""
    ours = f"{percent(statistics.mean(found))}{spread} ({len(found)})" if found else "–"
    return f"{ours} / {TABLE3[attention][task]:.2f}"


def assert_has_line(page: str, line: str) -> None:
    assert line in (ROOT / page).read_text().splitlines(), f"{page} needs this line:\n{line}"


@pytest.mark.parametrize("attention", NAMES)
def test_the_table_of_the_readme_is_that_of_the_rows(attention):
    cells = [NAMES[attention], *(cell(attention, task) for task in TASKS)]
    assert_has_line("README.md", f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("attention", NAMES)
def test_the_seeds_of_listops_are_those_of_the_rows(attention):
    published = TABLE3[attention]["listops"]
    for row in of_table(attention, "listops"):
        best, last = percent(row.test_accuracy), percent(row.test_accuracy_last)
        line = f"| {NAMES[attention]} | {row.seed} | {best} | {last} | {published:.2f} |"
        assert_has_line("results/LISTOPS.md", line)
