"""Number formats: never averaged over, one of them in each place of a table, and it is said."""

from lra.report.cells import divide_into_cells, number_format
from lra.report.formats import plain
from lra.report.groups import group
from lra.report.table import Table
from lra.report.tables import tables
from tests.lra.report.test_averages import published_line
from tests.lra.report.test_tables import first, five, line
from tests.lra.row_factory import HALF, diverged_row, failed_row, make_row


def apart(rows) -> Table:
    """The table of the cells that are set apart."""
    return next(t for t in tables(group(rows)[0]) if t.title == "Other number formats")


def test_number_formats_are_never_averaged_over():
    for other in ({"dtype": "bfloat16"}, {"matmul_precision": "tensorfloat32"}):
        rows = [make_row(0.5), make_row(0.3, seed=1, **other)]
        assert [cell.stat() for cell in divide_into_cells(rows)] == [(0.5, None, 1), (0.3, None, 1)]
    both = {"dtype": "bfloat16", "matmul_precision": "tensorfloat32"}
    assert {number_format(cell) for cell in divide_into_cells([make_row(), make_row(**both)])} == {
        "float32",
        "bfloat16, tensorfloat32 products",
    }


def test_of_as_many_results_the_format_of_most_in_the_table_is_shown():
    rows = [*five("nystrom", 0.5, **HALF), make_row(0.4)]
    assert line(rows).split()[3:5] == ["50.00", "(1)"]
    assert line(rows).endswith(" 50.00 (1) |")
    assert "37.15 (+12.85) |" in published_line(rows)
    assert "58.95 (-8.95) |" in published_line(rows)
    assert apart(rows).lines == [["Nyströmformer", "40.00 (1) [float32]", *"––––"]]
    for said in (
        "All in bfloat16.",
        "Where a cell has results in several number formats, those in the format with the most "
        "seeds are shown (bfloat16 before float32 in a tie); the others are in the table 'Other "
        "number formats'.",
    ):
        assert said in first(rows)


def test_results_elsewhere_do_not_replace_more_seeds_in_a_place():
    rows = [make_row(0.4), make_row(0.5, seed=1), *five("nystrom", 0.3, **HALF)]
    assert "| 45.00 ± 7.07 (2) [float32] |" in line(rows)
    assert apart(rows).lines == [["Nyströmformer", "30.00 (1) [bfloat16]", *"––––"]]


def test_of_as_many_results_everywhere_float32_is_shown():
    rows = [make_row(0.4, **HALF), make_row(0.5)]
    assert "| 50.00 (1) |" in line(rows)
    assert apart(rows).lines[0][1] == "40.00 (1) [bfloat16]"


def test_seeds_that_diverged_do_not_choose_the_format():
    rows = [make_row(0.5, **HALF), *(diverged_row(seed=s) for s in (1, 2))]
    assert group(rows)[0].number_formats == ("bfloat16", "float32")


def test_a_result_comes_before_a_format_without():
    rows = [*five("nystrom", 0.5, **HALF)[1:], make_row(0.4)]
    for without in (failed_row(**HALF), diverged_row(**HALF)):
        assert "| 40.00 (1) [float32] |" in line([*rows, without])
        assert apart([*rows, without]).lines[0][1].endswith("(0 of 1 seeds) [bfloat16]")
        assert line([*rows, without]).endswith(" 48.00 (1) [float32 and bfloat16] |")


def test_what_is_set_apart_has_its_cost_and_its_end_told():
    rows = [*five("nystrom", 0.5, **HALF), make_row(0.4), diverged_row(seed=1)]
    found = {table.title: table.lines for table in tables(group(rows)[0])}
    assert [cells[7] for cells in found["Cost"]].count("a device, float32") == 1
    assert found["Seeds without a result"] == [
        ["ListOps", "Nyströmformer", "1", "diverged at step 7"]
    ]


def test_without_several_formats_nothing_is_apart():
    titles = [table.title for table in tables(group(five("nystrom", 0.5, **HALF))[0])]
    assert "Other number formats" not in titles


def test_a_number_format_is_said_of_a_cell_that_stands_alone():
    fast = {"matmul_precision": "tensorfloat32", "task": "text"}
    one = make_row(0.4, **HALF)
    assert "All in bfloat16." in first([one])
    shown = line([one, make_row(0.5, task="image"), make_row(0.6, **fast)])
    assert "40.00 (1) [bfloat16]" in shown
    assert "60.00 (1) [tensorfloat32 products]" in shown
    assert "50.00 (1) |" in shown
    steps = make_row(0.3, steps=2500, seed=1, **HALF)
    rows = [one, steps, make_row(0.5, task="image")]
    assert "40.00 (1) [5,000 steps] / 30.00 (1) [2,500 steps]" in line(rows)
    assert "50.00 (1) [float32]" in line(rows)
    assert "In bfloat16 where nothing else is said." in first(rows)
    published = plain(tables(group(rows)[0])[1])
    assert "Ours in bfloat16 where nothing else is said." in published
    rows += [make_row(0.5, task=task) for task in ("text", "retrieval")]
    assert "40.00 (1) [bfloat16, 5,000 steps] / 30.00 (1) [bfloat16, 2,500 steps]" in line(rows)
