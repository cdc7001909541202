"""Of several runs: which one a cell of cost shows, and what is compared with what."""

import pytest

from lra.report.costs.fits import fit
from lra.report.costs.savings import savings
from lra.report.costs.sheets import sheets
from lra.report.costs.tables import paper_tables
from tests.lra.cost_row_factory import cost_row, line, linformer, only, sections_of, standard

LATER = {"run": "two", "finished": "2026-02-01T00:00:00+00:00"}


@pytest.mark.parametrize("latest_first", [True, False])
def test_of_runs_with_as_many_cells_the_latest_is_shown(latest_first):
    latest, other = [standard(9.0, **LATER), cost_row(0.1, **LATER)], [standard(3.0), cost_row(1.5)]
    time, memory = paper_tables(only(latest + other if latest_first else other + latest))
    assert line(time, "Standard (xla)") == ["9,000 (1.00×)"]
    assert line(time) == ["100 (90.0×)"]
    assert not any("another run" in note for table in (time, memory) for note in table.notes)


def test_of_several_rows_of_a_run_the_last_is_shown():
    time, _ = paper_tables(only([standard(9.0), cost_row(1.5), standard(3.0)]))
    assert line(time, "Standard (xla)") == ["3,000 (1.00×)"]


def test_cells_are_of_the_run_that_has_most_of_them_and_others_are_marked():
    rows = [
        *(standard(3.0, length=n) for n in (512, 1024)),
        *(cost_row(1.5, length=n) for n in (512, 1024)),
        standard(9.0, length=512, **LATER),
        linformer(256, 1.0, 5.0, length=512, **LATER),
        linformer(256, 1.0, 5.0, length=2048, **LATER),
    ]
    time, memory = paper_tables(only(rows))
    assert line(time, "Standard (xla)") == ["3,000 (1.00×)", "3,000 (1.00×)"]
    assert line(time) == ["1,500 (2.00×)", "1,500 (2.00×)"]
    # Its ratio is to 9 s, of its own run.
    assert line(time, "Linformer-256") == ["1,000† (9.00×)", "1,000†"]
    assert line(memory, "Linformer-256") == ["5.00† (8.00×)", "5.00†"]
    for table in (time, memory):
        assert (
            "† Of another run than most cells: its ratio is to Standard (xla) of its own run; do "
            "not divide it by another cell."
        ) in table.notes


def test_a_ratio_is_of_the_run_of_its_cell():
    rows = [
        cost_row(1.0),
        cost_row(1.0, length=2048),
        standard(3.0, **LATER),
        cost_row(1.5, **LATER),
    ]
    sheet = only([*rows, cost_row(1.0, length=4096)])
    ((figure,),) = (section.figures for section in sections_of([*rows, cost_row(1.0, length=4096)]))
    assert "Points are of several runs" in figure.caption
    assert line(paper_tables(sheet)[0]) == ["1,000", "1,000", "1,000"]


def test_linformers_table_is_of_the_run_that_has_most_of_it():
    rows = [standard(4.0), linformer(256, 1.0), cost_row(), cost_row(length=2048)]
    rows += [standard(3.0, **LATER), linformer(256, 1.0, **LATER), linformer(128, 0.5, **LATER)]
    (found,) = sheets(rows).values()
    assert line(paper_tables(*found)[0], "Linformer-256") == ["1,000 (4.00×)"]
    of_1024 = next(cells for cells in savings(found)[0].lines if cells[0] == "1,024")
    assert of_1024[1:3] == ["6.00× (1.7×)", "3.00× (1.6×)"]


def test_exponents_are_of_one_run():
    rows = [cost_row(n / 1024, length=n) for n in (1024, 2048, 4096)]
    rows += [cost_row(100.0, length=n, **LATER) for n in (4096, 8192)]
    sheet = only(rows)
    found = fit(sheet, sheet.lines[0], "seconds")
    assert (found.low, found.high, found.exponent) == (1024, 4096, pytest.approx(1.0))
    sheet = only([*rows, cost_row(100.0, length=65536, **LATER)])  # as many, up to longer ones
    assert fit(sheet, sheet.lines[0], "seconds") == (pytest.approx(0.0), 4096, 65536)


def test_of_runs_of_the_same_lengths_the_one_that_the_cells_show_has_the_exponent():
    """The slower of two would win if times broke the tie."""
    main = [cost_row(n, length=1024 * n, run="main") for n in (4, 8, 16)]
    slow = [cost_row(9 * n**2, length=1024 * n, run="slow") for n in (4, 8, 16)]
    sheet = only([*slow, *main, linformer(256, run="main")])
    nystrom = next(line for line in sheet.lines if line.method == "nystrom")
    assert fit(sheet, nystrom, "seconds").exponent == pytest.approx(1)


def test_exponents_of_memory_are_of_one_way_to_take_it():
    rows = [cost_row(None, n / 100, length=n) for n in (4096, 8192, 16384)]
    process = {"memory_source": "process"}
    rows += [cost_row(None, 1e-5 * n**2, length=n, **process) for n in (32768, 65536)]
    sheet = only(rows)
    # The slope of the first three says nothing of the last two.
    assert fit(sheet, sheet.lines[0], "peak_memory_mb") is None
    sheet = only([*rows[:-2], cost_row(None, 0.1, length=1024, **process)])
    found = fit(sheet, sheet.lines[0], "peak_memory_mb")
    assert (found.low, found.high, found.exponent) == (4096, 16384, pytest.approx(1.0))


def test_exponents_of_memory_are_of_the_way_of_the_longest_sequences():
    rows = [cost_row(None, n / 100, length=n) for n in (512, 1024, 2048)]
    rows += [
        cost_row(None, n**2 / 1e4, length=n, memory_source="process") for n in (4096, 8192, 16384)
    ]
    sheet = only(rows)
    found = fit(sheet, sheet.lines[0], "peak_memory_mb")
    assert (found.low, found.high, found.exponent) == (4096, 16384, pytest.approx(2.0))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((512, 1024, 2048, 4096, 8192, 16384), (4096, 16384, 1.0)),
        ((512, 1024, 2048, 4096, 8192), (2048, 8192, 1.0)),
        ((512, 1024, 2048), (512, 2048, 0.0)),
    ],
)
def test_exponents_are_of_three_long_sequences_at_least(lengths, expected):
    rows = [cost_row(n if n >= 2048 else 2048.0, length=n) for n in lengths]
    sheet = only(rows)
    found = fit(sheet, sheet.lines[0], "seconds")
    assert (found.low, found.high, found.exponent) == (*expected[:2], pytest.approx(expected[2]))


@pytest.mark.parametrize(
    ("lengths", "has_exponent"), [((8192, 16384), False), ((8192, 16384, 32768), True)]
)
def test_three_times_of_which_one_scatters_have_no_exponent(lengths, has_exponent):
    noisy = {"seconds_min": 0.9, "seconds_max": 1.25}
    rows = [cost_row(1.0, length=4096, **noisy), *(cost_row(1.0, length=n) for n in lengths)]
    sheet = only(rows)
    assert (fit(sheet, sheet.lines[0], "seconds") is not None) == has_exponent
    assert fit(sheet, sheet.lines[0], "peak_memory_mb") is not None


def test_two_lengths_have_no_exponent():
    sheet = only([cost_row(n, length=n) for n in (4096, 8192)])
    assert fit(sheet, sheet.lines[0], "seconds") is None


def test_what_another_run_measured_stands_before_an_extrapolation():
    rows = [cost_row(0.5, length=n) for n in (512, 1024)]
    rows += [cost_row(1.0, length=n, status="extrapolated") for n in (2048, 4096)]
    rows += [cost_row(3.0, length=2048, **LATER), standard(9.0, length=2048, **LATER)]
    sheet = only([*rows, standard(4.0, length=2048)])
    time = paper_tables(sheet)[0]
    assert line(time) == ["500", "500", "3,000† (3.00×)", "~1,000"]
    # The run of most cells ran out of memory, which is no number that may be taken for one.
    rows[2] = cost_row(None, None, length=2048, status="out_of_memory")
    assert line(paper_tables(only(rows[:5]))[0])[2] == "OOM"
    # But what was measured is more than a prediction that it would not fit.
    limits = {"peak_memory_mb": 3000.0, "memory_limit_mb": 2000.0}
    rows[2] = cost_row(None, length=2048, status="out_of_memory", **limits)
    assert line(paper_tables(only(rows[:5]))[0])[2] == "3,000†"
