"""Cells: which rows they take, and averages of several."""

from lra.report.cells import average, divide_into_cells
from tests.lra.row_factory import failed_row, make_row


def test_the_seeds_of_an_average_are_the_fewest_of_a_cell():
    rows = [make_row(0.5), make_row(0.6, seed=1), make_row(0.5, task="text")]
    parts = [
        divide_into_cells(row for row in rows if row.task == task)[0]
        for task in ("listops", "text")
    ]
    assert [part.stat().n for part in parts] == [2, 1]
    assert average(parts).n == 1


def test_a_failure_on_other_data_joins_no_cell():
    rows = [make_row(data_sha256="a" * 64), failed_row(seed=1, data_sha256="b" * 64)]
    assert [len(cell.rows) for cell in divide_into_cells(rows)] == [1, 1]
