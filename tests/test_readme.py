"""The README's numbers of accuracy are those of the rows."""

import pathlib

import pytest

from lra import records
from lra.published import TABLE3
from lra.row import Row

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {
    "standard": "Standard",
    "nystrom": "Nyström",
    "linformer": "Linformer",
    "performer": "Performer",
    "reformer": "Reformer",
}


def joined(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def line(attention: str, rows: list[Row]) -> str:
    """What the README's table of ListOps says of an attention."""
    seeds = f", seeds {joined([str(row.seed) for row in rows])}" if len(rows) > 1 else ""
    best, last = (
        joined([f"{100 * getattr(row, field):.2f}" for row in rows])
        for field in ("test_accuracy", "test_accuracy_last")
    )
    minutes = joined([f"{row.wall_seconds / 60:.0f}" for row in rows])
    published = f"{TABLE3[attention]['listops']:.2f}"
    cells = f"{NAMES[attention]}{seeds}", f"{best} %", f"{last} %", f"{published} %"
    return f"| {' | '.join(cells)} | {minutes} min |"


@pytest.mark.parametrize("attention", NAMES)
def test_the_table_of_listops_is_that_of_the_rows(attention):
    rows = records.latest(records.read(ROOT / "results" / "accuracy.jsonl"))
    own = [row for row in rows if (row.task, row.attention) == ("listops", attention)]
    assert all(row.protocol == "table3" and row.status == "ok" for row in own)
    lines = (ROOT / "README.md").read_text().splitlines()
    assert not own or line(attention, sorted(own, key=lambda row: row.seed)) in lines
