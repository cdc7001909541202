"""Tables of cost, from rows written by hand."""

import pytest

from lra.published_efficiency import LRA_MEMORY, LRA_STEPS, TABLE1_MEMORY, TABLE1_TIME
from lra.report.cost_figures import races, series
from lra.report.cost_fits import fit
from lra.report.cost_ratios import geometric_mean
from lra.report.cost_savings import savings
from lra.report.cost_sections import sections
from lra.report.cost_summaries import best_peers, ceilings, exponents, peer_table
from lra.report.cost_tables import paper_tables, ratio, short
from lra.report.costs import sheets
from lra.report.formats import latex
from tests.lra.cost_row_factory import PEER, cost_row, line, linformer, only, standard

OWN_PEER = {"source": "mine", "label": "nystrom-64 (mine)"}


def test_time_and_memory_are_absolute_and_relative_to_exact_attention():
    time, memory = paper_tables(only([standard(), cost_row()]))
    assert line(time, "Standard (xla)") == ["3,000 (1.00×)"]
    assert line(time) == ["1,000 (3.00×)"]
    assert line(memory) == ["10.0 (4.00×)"]
    assert "faster than Standard (xla) in the same run" in time.caption
    assert "a device, 1 thread; d = 64, 2 heads, float32, forward, batch 1." in time.caption


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
    note = "‡ The fastest and the slowest of its repeats differ by more than 30 % of their median."
    assert (note in time.notes) == shown.endswith("‡")
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


def test_memory_predicted_from_processes_is_compared_as_such():
    """What was too long to be run has no growth of its own; XLA had missed most of it."""
    predicted = {"status": "extrapolated", "memory_source": "process", "xla_memory_mb": 5.0}
    rows = [standard(12.0, 400.0, **predicted), cost_row(1.0, 20.0, process_memory_mb=18.0)]
    _, memory = paper_tables(only(rows))
    assert line(memory)[0].startswith("20.0")
    assert line(memory)[0].endswith("(~20.0×)")


@pytest.mark.parametrize("process", [None, 1.0, 15.0])
def test_a_process_that_grows_by_less_than_it_needs_does_not_count(process):
    rows = [cost_row(1.0, 10.0, process_memory_mb=process), cost_row(1.0, 30.0, **PEER)]
    expected = "2.00×" if process == 15.0 else "3.00×"
    assert peer_table(only(rows), "peak_memory_mb").lines[0][2] == expected


def test_exponents_of_a_power_law():
    lengths = [512 * 2**i for i in range(8)]
    steep = [cost_row(3 * n**1.25, 2.0 * n, length=n) for n in lengths if n >= 4096]
    sheet = only([cost_row(1.0, 1.0, length=n) for n in lengths if n < 4096] + steep)
    found = fit(sheet, sheet.lines[0], "seconds")
    assert found.exponent == pytest.approx(1.25)
    assert (found.low, found.high) == (4096, 65536)
    assert exponents([sheet]).lines == [["Nyströmformer-64", "1.25", "1.00"]]


def test_exponents_say_which_lengths_were_measured():
    rows = [standard(n**2.0, length=n) for n in (512, 1024, 4096)]
    rows.append(standard(1.0, None, length=8192, status="extrapolated"))
    assert line(exponents([only(rows)]), "Standard (xla)")[0] == "2.00 (512–4,096)"
    assert fit(only(rows[:1]), only(rows).lines[0], "seconds") is None


def test_ours_against_peers():
    others = {"source": "nystrom-attention", "label": "nystrom-64 (nystrom-attention)"}
    wide = {"source": "transformers", "label": "nystrom-32 (transformers)"}
    rows = []
    for length, peer, other in ((1024, 1.0, 3.0), (2048, 2.0, 4.0), (4096, 8.0, 5.0)):
        rows += [
            cost_row(1.0, length=length),
            cost_row(peer, length=length, versions={"torch": "2.0", "x": None}, **PEER),
            cost_row(other, length=length, **others),
            cost_row(0.1, length=length, options={"num_landmarks": 32}, **wide),
        ]
    rows.append(cost_row(1.0, length=8192))
    rows.append(cost_row(99.0, length=8192, status="extrapolated", **PEER))
    sheet = only(rows)
    table = peer_table(sheet, "seconds")
    assert table.header[-2:] == ["Mean, 2,048 to 8,192", "Mean, all lengths"]
    of_ours = {cells[1]: cells[2:] for cells in table.lines}
    assert of_ours["Nyströmformer-64 (transformers)"] == (
        ["1.00×", "2.00×", "8.00×", "~99.0×", "4.00×", "2.52×"]
    )
    # At 8,192 the best of 4,096 is missing.
    assert of_ours["best peer"] == ["1.00×", "2.00×", "5.00×", "–", "3.16×", "2.15×"]
    assert len(of_ours) == 3
    assert table.notes == ["Versions: torch 2.0."]
    assert best_peers([sheet]).lines[0][:2] == ["Nyströmformer-64", "3.16× (2.00×)"]
    (race,) = races(sheet)
    assert [mark.value for mark in race.time] == [1.0, 2.0, 5.0]


def test_peers_of_another_run_are_not_compared():
    assert peer_table(only([cost_row(), cost_row(run="two", **PEER)]), "seconds").lines == []


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None


def test_linformers_table_both_ways():
    filled = {"length": 512, "filled": True, "memory_limit_mb": 16_000.0}
    rows = [
        standard(length=512),
        linformer(128, 2.0, 10.0, length=512),
        standard(12.0, batch=4, largest_batch=10, **filled),
        linformer(128, 2.0, batch=2, largest_batch=25, **filled),
        standard(None, 50_000.0, status="out_of_memory", **filled | {"length": 1024}),
        linformer(128, 2.0, batch=2, largest_batch=7, **filled | {"length": 1024}),
        # Of another batch than 1 this tells nothing.
        standard(None, 50_000.0, status="out_of_memory", batch=4, **filled | {"length": 2048}),
        linformer(128, 2.0, batch=2, largest_batch=7, **filled | {"length": 2048}),
    ]
    (found,) = sheets(rows).values()
    time, memory, filled_time, largest = savings(found)
    assert time.lines[0] == ["512", "1.50× (1.5×)", "– (1.3×)", "–", "–", "–"]
    assert memory.lines[0][1] == "4.00× (1.7×)"
    assert filled_time.lines[0][1] == "3.00× (1.5×)"
    first = [cells[1] for cells in largest.lines[:3]]
    assert first == ["2.50× (1.7×)", "> 7.00× (3.0×)", "– (6.1×)"]
    assert largest.lines[-1] == ["65,536", "– (60×)", "– (52×)", "– (40×)", "– (20×)", "– (18×)"]
    assert "Memory that the batch had to fit in: 16.0 GB." in largest.notes


def test_lras_efficiency_table():
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32, "length": 4096}
    rows = [standard(10.0, **model), linformer(256, 2.0, 5.0, **model)]
    steps, memory = paper_tables(only(rows))
    assert line(steps, "Linformer-256") == ["0.500 (5.00×)"]
    assert line(steps, "Linformer, published")[-1] == "7.7 (5.5×)"
    assert line(memory, "Linformer-256") == ["5.00 (8.00×)"]
    assert line(memory, "Transformer, published")[-1] == "9,480 (1.0×)"
    assert any("compare ratios only" in note for note in steps.notes)


@pytest.mark.parametrize(
    ("parts", "note"),
    [
        ((8, 16), "The batch was taken in parts (8 at 1,024, 16 at 2,048) that fit the caches"),
        ((None, None), "On a CPU the batch is taken in parts that fit the caches"),
    ],
)
def test_a_batch_in_parts_is_told_and_has_no_exponent_of_memory(parts, note):
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32}
    short, long = parts
    rows = [
        cost_row(length=1024, parts=short, **model),
        cost_row(2.0, length=2048, parts=long, **model),
    ]
    sheet = only(rows)
    for table in paper_tables(sheet):
        assert any(text.startswith(note) for text in table.notes)
    assert exponents([sheet]).header == ["Attention", "Time, forward and backward"]
    assert line(exponents([sheet])) == ["1.00 (1,024–2,048)"]
    assert series(sheet, sheet.lines)[0].fits[1] is None


def test_a_batch_as_a_whole_has_an_exponent_of_memory():
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32, "parts": 1}
    rows = [cost_row(n, n, length=n, **model) for n in (1024, 2048)]
    too_long = model | {"length": 4096, "status": "out_of_memory", "parts": None}
    sheet = only([*rows, cost_row(None, 9e9, **too_long)])
    assert not any("parts" in note for table in paper_tables(sheet) for note in table.notes)
    assert line(exponents([sheet])) == ["1.00 (1,024–2,048)"] * 2


def test_a_fixed_number_of_tokens_is_one_sheet():
    fixed = {"benchmark": "fixed_tokens"}
    rows = [
        *(standard(n / 1024, length=n, batch=8192 // n, **fixed) for n in (1024, 4096)),
        *(cost_row(0.5, length=n, batch=8192 // n, **fixed) for n in (1024, 4096)),
    ]
    time, _ = paper_tables(only(rows))
    assert line(time) == ["500 (2.00×)", "500 (8.00×)"]
    assert time.title == "Time, forward, 8,192 tokens at each length"


@pytest.mark.parametrize(
    ("flops", "shown"),
    [(3e9, "30"), (9.6e8, "10"), (9.4e8, "9"), (2.4e7, "0.2"), (2e10, "200")],
)
def test_fractions_of_ceilings(flops, shown):
    reached = {"flops_per_second": flops, "bytes_per_second": 4e8}
    limits = {"peak_flops_per_second": 1e10, "peak_bytes_per_second": 1e10}
    table = ceilings(only([cost_row(**reached, **limits), cost_row(length=2048)]))
    assert table.lines == [["Nyströmformer-64", f"{shown} / 4", "–"]]


def test_settings_have_sections_of_their_own():
    rows = [cost_row(**values) for values in ({}, {"threads": None}, {"device": "another"})]
    rows += [cost_row(dtype="bfloat16"), cost_row(matmul_precision="tensorfloat32")]
    found = sections(sheets(rows))
    assert [section.title.partition(": ")[2] for section in found] == [
        "d = 64, 2 heads, float32; a device, 1 thread",
        "d = 64, 2 heads, float32 (tensorfloat32 products); a device, 1 thread",
        "d = 64, 2 heads, bfloat16; a device, 1 thread",
        "d = 64, 2 heads, float32; a device",
        "d = 64, 2 heads, float32; another, 1 thread",
    ]
    names = [figure.name for section in found for figure in section.figures]
    assert len(set(names)) == len(names) == 5


def test_numbers_of_tokens_have_sections_of_their_own():
    rows = [cost_row(benchmark="fixed_tokens", batch=batch) for batch in (8, 16)]
    assert [section.title for section in sections(sheets(rows))] == [
        "Cost at a fixed number of tokens (8,192): d = 64, 2 heads, float32; a device, 1 thread",
        "Cost at a fixed number of tokens (16,384): d = 64, 2 heads, float32; a device, 1 thread",
    ]


def test_series_show_one_size_of_each_method_and_what_was_not_measured():
    rows = [
        *(linformer(size, length=n) for size in (128, 256) for n in (512, 1024)),
        standard(2.0, length=512),
        standard(8.0, length=1024, status="extrapolated"),
    ]
    ((figure,),) = (section.figures for section in sections(sheets(rows)))
    assert figure.name == "cost-module-d64-float32-forward"
    exact, projected = series(only(rows), only(rows).lines[:2])
    assert [mark.measured for mark in exact.time] == [True, False]
    assert [mark.value for mark in projected.memory] == [10.0, 10.0]
    assert (projected.line.title, projected.nth) == ("Linformer-128", 0)


def test_summaries_come_first_and_other_tables_are_folded():
    rows = [*(cost_row(n, length=n) for n in (2048, 4096)), cost_row(1.0, length=2048, **PEER)]
    (section,) = sections(sheets([*rows, standard(length=2048), linformer(256, length=2048)]))
    assert [(table.title, table.folded) for table in section.tables] == [
        ("Ours against the best peer", False),
        ("Fitted exponents", False),
        ("Time, forward, batch 1", True),
        ("Memory, forward, batch 1", True),
        ("Linformer, time saved, forward, batch 1", True),
        ("Linformer, peak memory saved at equal batch, forward, batch 1", True),
        ("Ours against peers: time, forward, batch 1", True),
        ("Ours against peers: memory, forward, batch 1", True),
    ]


def test_a_legend_tells_what_names_mean():
    rows = [standard(), cost_row(), cost_row(**PEER), linformer(256), cost_row(**OWN_PEER)]
    assert sections(sheets(rows))[0].legend == (
        "Standard is exact attention: (xla) keeps all scores in memory. The number behind a name: "
        "projected positions of Linformer, landmarks of Nyströmformer. Peers, by others, have "
        "their package in brackets: mine, transformers (Hugging Face). Lines called published are "
        "numbers of papers, from other devices."
    )
    alone = cost_row(method="linear", label="linear", options={}, mode="forward_backward")
    assert sections(sheets([alone]))[0].legend == ""


def test_short():
    shown = {0.08412: "0.0841", 0.5: "0.500", 0.9996: "1.00", 1.234: "1.23", 9.996: "10.0"}
    shown |= {12.34: "12.3", 99.96: "100", 1234.5: "1,234"}
    assert {value: short(value) for value in shown} == shown
    assert [ratio((value, True)) for value in (0.5, 0.08412)] == ["0.500×", "0.0841×"]


def test_latex_escapes():
    text = latex(paper_tables(only([standard(status="extrapolated")]))[0])
    assert r"\textasciitilde{}3,000 (\textasciitilde{}1.00$\times$)" in text
