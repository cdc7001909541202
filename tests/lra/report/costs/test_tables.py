"""Tables of cost, from rows written by hand."""

import pytest

from lra.published_efficiency import LRA_MEMORY, LRA_STEPS, TABLE1_MEMORY, TABLE1_TIME
from lra.report.costs.ratios import Ratio
from lra.report.costs.savings import savings
from lra.report.costs.tables import paper_tables, ratio_text, short
from tests.lra.cost_row_factory import PEER, cost_row, line, linformer, only, standard


def test_time_and_memory_are_absolute_and_relative_to_exact_attention():
    time, memory = paper_tables(only([standard(), cost_row()]))
    assert line(time, "Standard (xla)") == ["3,000 (1.00×)"]
    assert line(time) == ["1,000 (3.00×)"]
    assert line(memory) == ["10.0 (4.00×)"]
    assert "faster than Standard (xla) in the same run" in time.caption
    assert "a device, 1 thread; d = 64, 2 heads, float32, forward, batch 1." in time.caption


def test_a_backslash_in_a_name_is_one():
    time, _ = paper_tables(only([cost_row(method=r"my\cat", label=r"my\cat-1")]))
    assert line(time, r"my\cat-1") == ["1,000"]


@pytest.mark.parametrize(("digits", "size"), [("64", 64), ("9" * 5000, None)])
def test_a_size_that_python_would_not_read_is_none(digits, size):
    (line,) = only([cost_row(label=f"nystrom-{digits}")]).lines
    assert line.size == size


def test_published_numbers_stand_beneath_ours():
    time, memory = paper_tables(only([standard(), cost_row()]))
    assert [cells[0] for cells in time.lines] == [
        "Standard (xla)",
        "Transformer, published",
        "Nyströmformer-64",
        "Nyströmformer-64, published",
    ]
    assert time.header[1:] == ["512", "1,024", "2,048", "4,096", "8,192"]
    assert time.lines[1][3] == "10.0 (1.0×)"
    assert memory.lines[3][5] == "450 (22.8×)"
    assert any("Nvidia 1080 Ti" in note for note in time.notes)
    backward = paper_tables(only([cost_row(mode="forward_backward")]))[0]
    assert [cells[0] for cells in backward.lines] == ["Nyströmformer-64"]


def test_published_numbers_of_one_input_are_not_beside_filled_batches():
    time, memory = paper_tables(only([standard(filled=True), cost_row(filled=True)]))
    for table in (time, memory):
        assert [cells[0] for cells in table.lines] == ["Standard (xla)", "Nyströmformer-64"]


def test_published_lines_without_one_of_ours_are_left_out():
    time, _ = paper_tables(only([linformer(128, length=16384)]))
    assert [cells[0] for cells in time.lines] == ["Linformer-128"]
    assert time.header == ["Attention", "16,384"]
    assert not any("Published" in note for note in time.notes)


def test_published_ratios_are_those_of_the_published_numbers():
    for table in (TABLE1_TIME, TABLE1_MEMORY):
        for published in table:
            for length, times in published.times.items():
                ratio = table[0].values[length] / published.values[length]
                assert ratio == pytest.approx(times, abs=0.051, rel=0.13)
    for table in (LRA_STEPS, LRA_MEMORY):
        assert [each.method for each in table] == [
            *("standard", "linformer", "reformer", "linear", "performer")
        ]
        assert all(list(each.values) == [1024, 2048, 3072, 4096] for each in table)


def test_costs_are_per_input():
    filled = {"batch": 4, "filled": True}
    time, memory = paper_tables(only([standard(8.0, batch=2, filled=True), cost_row(**filled)]))
    assert (line(time), line(memory)) == (["250 (16.0×)"], ["2.50 (8.00×)"])
    assert time.title == "Time, forward, batches that fill the device"
    assert "the largest power of two that fits in memory" in time.caption
    assert "it is 1 where one input takes as long" in memory.caption


@pytest.mark.parametrize(
    ("fastest", "slowest", "shown"),
    [(0.9, 1.21, "1,000‡"), (0.9, 1.19, "1,000"), (None, None, "1,000")],
)
def test_times_whose_repeats_scatter_are_marked(fastest, slowest, shown):
    time, memory = paper_tables(only([cost_row(seconds_min=fastest, seconds_max=slowest)]))
    assert (line(time), line(memory)) == ([shown], ["10.0"])
    note = "differ by more than 30 % of their median."
    assert any(text.endswith(note) for text in time.notes) == shown.endswith("‡")
    assert note not in memory.notes


def test_what_was_not_measured_is_marked():
    rows = [
        standard(None, 34_400.0, status="out_of_memory", memory_limit_mb=16_000.0),
        standard(12.0, length=512, status="extrapolated"),
        cost_row(length=512),
        cost_row(None, None, status="unsupported", note="multiples of 64 only"),
        cost_row(None, 5.0, length=2048),
    ]
    time, memory = paper_tables(only(rows))
    assert line(time, "Standard (xla)") == ["~12,000 (~1.00×)", "OOM (needs 34.4 GB)"]
    assert line(time) == ["1,000 (~12.0×)", "unsupported"]
    assert "Unsupported: Nyströmformer-64: multiples of 64 only." in time.notes
    # XLA's analysis is exact whether or not the program was run.
    assert line(memory, "Standard (xla)") == ["40.0 (1.00×)", "OOM (needs 34.4 GB)"]
    assert line(memory) == ["10.0 (4.00×)", "unsupported", "5.00"]


def test_memory_needed_is_shown_where_it_is_more_than_there_was():
    out = {"status": "out_of_memory", "memory_limit_mb": 18_700.0}
    rows = [
        standard(None, None, **out),
        standard(None, 68_900.0, length=2048, **out),
        # XLA's analysis fell short of what was tried.
        cost_row(None, 7_924.0, length=2048, **out),
    ]
    for table in paper_tables(only(rows)):
        assert line(table, "Standard (xla)") == ["OOM", "OOM (needs 68.9 GB)"]
        assert line(table) == ["OOM"]
        assert (
            "OOM: out of memory; predicted, and not run, where an estimate is in brackets, else "
            "tried."
        ) in table.notes


def test_what_was_extrapolated_beyond_the_memory_is_told():
    beyond = {"status": "extrapolated", "memory_limit_mb": 100.0, "memory_source": "process"}
    rows = [
        standard(1.0, 90.0, length=512, **beyond),
        standard(None, None, status="out_of_memory"),
        standard(3.0, 60.0, length=2048, **beyond),
        standard(3.0, 60.0, length=4096, **beyond),
        linformer(128, 1.0, 99.0, length=2048, **beyond),
        linformer(256, 1.0, 101.0, length=4096, **beyond),
    ]
    said = (
        "Extrapolated beyond what fits in memory: Standard (xla) at 2,048, 4,096; Linformer-256 "
        "at 4,096."
    )
    sheet = only(rows)
    for table in (*paper_tables(sheet), *savings([sheet])):
        assert said in table.notes
    kept = only([row for row in rows if row.length == 512])
    assert not any("beyond" in note for table in paper_tables(kept) for note in table.notes)


def test_memory_is_compared_as_taken_in_the_same_way():
    device = PEER | {"memory_source": "device"}
    rows = [
        standard(process_memory_mb=90.0),
        cost_row(1.0, 30.0, **PEER),
        standard(1.0, 50.0, length=2048, memory_source="process"),
        cost_row(1.0, 30.0, length=2048, **device),
    ]
    _, memory = paper_tables(only(rows))
    assert line(memory, "Nyströmformer-64 (transformers)") == ["30.0§ (3.00×)", "30.0§"]


def test_the_mark_of_a_source_is_of_the_few():
    """Of those of ours, although the first of them is one and peers are more."""
    odd = {"memory_source": "process"}
    peers = [cost_row(length=n, **PEER) for n in (512, 1024, 2048)]
    rows = [standard(**odd), *(cost_row(1.0, 10.0, length=n) for n in (512, 1024)), *peers]
    _, memory = paper_tables(only(rows))
    assert line(memory, "Standard (xla)") == ["40.0§ (1.00×)"]
    assert line(memory) == ["10.0", "10.0 (4.00×)"]
    assert any(note.startswith("Memory: XLA's analysis") for note in memory.notes)
    assert any(note.startswith("§ From the growth of the process. ") for note in memory.notes)


def test_memory_predicted_from_processes_is_compared_as_such():
    """What was too long to be run has no growth of its own; XLA had missed most of it."""
    predicted = {"status": "extrapolated", "memory_source": "process", "xla_memory_mb": 5.0}
    rows = [standard(12.0, 400.0, **predicted), cost_row(1.0, 20.0, process_memory_mb=18.0)]
    _, memory = paper_tables(only(rows))
    assert line(memory)[0].startswith("20.0")
    assert line(memory)[0].endswith("(~20.0×)")


def test_lras_efficiency_table():
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32, "length": 4096}
    rows = [standard(10.0, **model), linformer(256, 2.0, 5.0, **model)]
    steps, memory = paper_tables(only(rows))
    assert line(steps, "Linformer-256") == ["0.500 (5.00×)"]
    assert line(steps, "Linformer, published")[-1] == "7.7 (5.5×)"
    assert line(memory, "Linformer-256") == ["5.00 (8.00×)"]
    assert line(memory, "Transformer, published")[-1] == "9,480 (1.0×)"
    assert any("compare ratios only" in note for note in steps.notes)


def test_a_fixed_number_of_tokens_is_one_sheet():
    fixed = {"benchmark": "fixed_tokens"}
    rows = [
        *(standard(n / 1024, length=n, batch=8192 // n, **fixed) for n in (1024, 4096)),
        *(cost_row(0.5, length=n, batch=8192 // n, **fixed) for n in (1024, 4096)),
    ]
    time, _ = paper_tables(only(rows))
    assert line(time) == ["500 (2.00×)", "500 (8.00×)"]
    assert time.title == "Time, forward, 8,192 tokens at each length"


def test_short():
    shown = {0.08412: "0.0841", 0.5: "0.500", 0.9996: "1.00", 1.234: "1.23", 9.996: "10.0"}
    shown |= {12.34: "12.3", 99.96: "100", 1234.5: "1,234"}
    assert {value: short(value) for value in shown} == shown


def test_a_ratio_tells_what_it_rests_on():
    ratios = [Ratio(0.5), Ratio(0.08412, measured=False), Ratio(2, scatters=True)]
    assert [ratio_text(ratio) for ratio in ratios] == ["0.500×", "~0.0841×", "2.00×‡"]
    assert ratio_text(None) == "–"
