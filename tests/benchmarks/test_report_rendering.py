"""Rendering many rows: that it is measured, and what becomes of ten thousand."""

import pytest

from benchmarks.report_rendering import main, make_rows, render
from lra import records


def test_few_rows_are_rendered_and_timed(capsys):
    assert main(["--seeds=1", "--values=0"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["rows", "25"]
    assert said[1].startswith("rendering ")


def test_a_sweep_adds_rows_for_each_value():
    rows = make_rows(seeds=1, values=2)
    assert len(rows) == 25 + 2 * 25


@pytest.mark.slow
def test_ten_thousand_rows_fill_every_cell(tmp_path):
    rows = make_rows(seeds=20, values=19)
    assert len(rows) == 10_000
    records.write_once(tmp_path / "rows.jsonl", rows)
    render(tmp_path / "rows.jsonl", tmp_path / "out")
    # Of 25 cells and the five averages over tasks, with selection and without; and of as many cells
    # for each value of the sweep (the default's are those of the table once more), on validation
    # sets as well.
    shown = (tmp_path / "out" / "RESULTS.md").read_text()
    assert shown.count("50.00 ± 0.00 (20)") == 2 * (25 + 5) + 3 * 25 * 20
    assert len(list((tmp_path / "out" / "figures").glob("*.png"))) == 6
