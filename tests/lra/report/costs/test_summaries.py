"""What tables of cost come to: exponents, ceilings, ours against peers."""

import pytest
from matplotlib import pyplot

from lra.report.costs.drawing import draw_costs, draw_races
from lra.report.costs.figures import _one_size_each, cost_figures, races, series
from lra.report.costs.fits import fit
from lra.report.costs.summaries import best_peers, ceilings, exponents, peer_table
from lra.report.costs.tables import paper_tables
from tests.lra.cost_row_factory import PEER, cost_row, line, linformer, only, standard


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


def test_exponents_are_of_lengths_up_to_65536():
    lengths = [4096 * 2**i for i in range(6)]
    sheet = only([cost_row(min(n, 65536) / 1000, length=n) for n in lengths])
    assert fit(sheet, sheet.lines[0], "seconds") == (pytest.approx(1.0), 4096, 65536)


def test_exponents_say_which_lengths_were_measured():
    rows = [standard(n**2.0, length=n) for n in (512, 1024, 4096)]
    rows.append(standard(1.0, None, length=8192, status="extrapolated"))
    assert line(exponents([only(rows)]), "Standard (xla)")[0] == "2.00 (512–4,096)"
    assert fit(only(rows[:1]), only(rows).lines[0], "seconds") is None
    assert exponents([only(rows[:1])]).lines == []


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
    extrapolated = "~ From what was extrapolated or estimated."
    assert table.notes == [extrapolated, "Versions: torch 2.0."]
    assert peer_table(sheet, "peak_memory_mb").notes[-2:] == [
        "Ratios of memory from different sources are by the growth of the process, or by XLA's "
        "analysis where that is larger.",
        "Versions: torch 2.0.",
    ]
    assert best_peers([sheet]).lines[0][:2] == ["Nyströmformer-64", "3.16× (2.00×)"]
    (race,) = races(sheet)
    assert [mark.value for mark in race.time] == [1.0, 2.0, 5.0]


def test_peers_of_another_run_are_not_compared():
    assert peer_table(only([cost_row(), cost_row(run="two", **PEER)]), "seconds").lines == []


@pytest.mark.parametrize(
    ("parts", "note"),
    [
        (
            (8, 16),
            "The batch was taken in parts (8 at 1,024, 16 at 2,048, 16 at 4,096) that fit",
        ),
        ((None, None), "On a CPU the batch is taken in parts that fit the caches"),
    ],
)
def test_a_batch_in_parts_is_told_and_has_no_exponent_of_memory(parts, note):
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32}
    short, long = parts
    rows = [
        cost_row(length=1024, parts=short, **model),
        cost_row(2.0, length=2048, parts=long, **model),
        cost_row(4.0, length=4096, parts=long, **model),
    ]
    sheet = only(rows)
    for table in paper_tables(sheet):
        assert any(text.startswith(note) for text in table.notes)
    assert exponents([sheet]).header == ["Attention", "Time, forward and backward"]
    assert line(exponents([sheet])) == ["1.00 (1,024–4,096)"]
    assert series(sheet, sheet.lines)[0].fits[1] is None


def test_a_batch_as_a_whole_has_an_exponent_of_memory():
    model = {"benchmark": "model", "mode": "forward_backward", "batch": 32, "parts": 1}
    rows = [cost_row(n, n, length=n, **model) for n in (1024, 2048, 4096)]
    too_long = model | {"length": 8192, "status": "out_of_memory", "parts": None}
    sheet = only([*rows, cost_row(None, 9e9, **too_long)])
    assert not any("parts" in note for table in paper_tables(sheet) for note in table.notes)
    assert line(exponents([sheet])) == ["1.00 (1,024–4,096)"] * 2


@pytest.mark.parametrize(
    ("flops", "shown"),
    [(3e9, "30"), (9.6e8, "10"), (9.4e8, "9"), (2.4e7, "0.2"), (2e10, "200")],
)
def test_fractions_of_ceilings(flops, shown):
    reached = {"flops_per_second": flops, "bytes_per_second": 4e8}
    limits = {"peak_flops_per_second": 1e10, "peak_bytes_per_second": 1e10}
    table = ceilings(only([cost_row(**reached, **limits), cost_row(length=2048)]))
    assert table.lines == [["Nyströmformer-64", f"{shown} / 4", "–"]]


def test_bytes_that_xla_does_not_see_are_no_fraction_of_a_ceiling():
    reached = {"flops_per_second": 5e9, "bytes_per_second": 4e8}
    limits = {"peak_flops_per_second": 1e10, "peak_bytes_per_second": 1e10}
    table = ceilings(only([cost_row(memory_source="process", **reached, **limits)]))
    assert table.lines == [["Nyströmformer-64", "50 / –"]]


def test_the_plain_form_of_exact_attention_has_no_race_beside_another():
    chunked = {"method": "standard", "label": "standard (chunked)", "options": {}}
    peer = {"source": "torch", "label": "standard (torch, sdpa)", "options": {}}
    rows = [standard(4.0), cost_row(2.0, **(PEER | peer | {"method": "standard"}))]
    (race,) = races(only(rows))
    assert race.line.label == "standard (xla)"
    (race,) = races(only([*rows, cost_row(1.0, **chunked)]))
    assert race.line.label == "standard (chunked)"
    assert [mark.value for mark in race.time] == [2.0]


def test_the_least_ratio_is_of_what_was_measured():
    rows = [cost_row(length=n) for n in (2048, 4096)]
    rows += [
        cost_row(2.0, length=2048, **PEER),
        cost_row(1.5, length=4096, status="extrapolated", **PEER),
    ]
    assert best_peers([only(rows)]).lines[0][1] == "2.00× (2.00×)"


def test_time_is_drawn_above_memory_on_logarithmic_axes():
    sheet = only([cost_row(0.5, 8.0), cost_row(1.0, 16.0, length=65536)])
    drawn = draw_costs(series(sheet, sheet.lines))
    scales = [(axis.get_xscale(), axis.get_yscale()) for axis in drawn.axes]
    values = [list(axis.lines[0].get_ydata()) for axis in drawn.axes]
    labels = [label.get_text() for label in drawn.axes[-1].get_xticklabels()]
    pyplot.close(drawn)
    assert scales == [("log", "log")] * 2
    assert values == [[500.0, 1000.0], [8.0, 16.0]]  # milliseconds, megabytes
    assert labels == ["1k", "64k"]


def test_points_of_different_runs_are_not_joined():
    rows = [cost_row(n, length=1024 * n, run="one") for n in (1, 2)]
    rows += [cost_row(9.0 * n, length=1024 * n, run="two") for n in (4, 8)]
    rows.append(cost_row(99.0, length=16384, run="two", status="extrapolated"))
    sheet = only(rows)
    drawn = draw_costs(series(sheet, sheet.lines))
    lines = [[float(y) for y in line.get_ydata()] for line in drawn.axes[0].lines]
    pyplot.close(drawn)
    # The last two are the dotted line to what was extrapolated, and its hollow mark.
    assert lines == [[1e3, 2e3], [36e3, 72e3], [72e3, 99e3], [99e3]]
    (figure,) = cost_figures("slug", [sheet])
    assert "several runs (†); a curve has a gap where its run changes" in figure.caption
    assert "its source changes" not in figure.caption


def test_ratios_to_times_that_scatter_are_marked_and_so_are_their_means():
    unsteady = {"seconds_min": 1.0, "seconds_max": 3.0}
    rows = [cost_row(length=n) for n in (2048, 4096)]
    rows += [cost_row(2.0, length=2048, **PEER), cost_row(2.0, length=4096, **unsteady, **PEER)]
    table = peer_table(only(rows), "seconds")
    assert table.lines[0][2:] == ["2.00×", "2.00×‡", "2.00×‡", "2.00×‡"]
    assert table.notes[0].startswith("‡ The fastest and the slowest repeats")
    best = best_peers([only(rows)])
    assert best.lines[0][1] == "2.00×‡ (2.00×)"
    assert best.notes == table.notes[:1]
    memory = peer_table(only(rows), "peak_memory_mb")
    assert not any("‡" in text for text in [*memory.lines[0], *memory.notes])


def test_races_are_drawn_of_time_above_those_of_memory():
    drawn = draw_races(races(only([cost_row(), cost_row(2.0, 40.0, **PEER)])))
    values = [list(axis.lines[0].get_ydata()) for axis in drawn.axes]
    pyplot.close(drawn)
    assert values == [[2.0], [4.0]]


def test_figures_show_the_sizes_of_table_3():
    small = cost_row(label="nystrom-32", options={"num_landmarks": 32})
    sheet = only([small, cost_row(), linformer(128), linformer(256)])
    assert [line.label for line in _one_size_each(sheet)] == ["linformer-256", "nystrom-64"]
    layerwise = {"label": "linformer-256 layerwise", "run": "two"}
    rows = [cost_row(), cost_row(label="nystrom-64 conv_kernel=0"), linformer(256)]
    sheet = only([*rows, linformer(256, **layerwise)])
    assert [line.label for line in _one_size_each(sheet)] == [
        "linformer-256",
        "nystrom-64",
        "nystrom-64 conv_kernel=0",
    ]
