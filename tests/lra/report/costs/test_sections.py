"""Sections of cost: their titles, their order, their legend."""

from matplotlib import pyplot

from lra.report.costs.figures import series
from tests.lra.cost_row_factory import PEER, cost_row, linformer, only, sections_of, standard

OWN_PEER = {"source": "mine", "label": "nystrom-64 (mine)"}


def test_settings_have_sections_of_their_own():
    rows = [cost_row(**values) for values in ({}, {"threads": None}, {"device": "another"})]
    rows += [cost_row(dtype="bfloat16"), cost_row(matmul_precision="tensorfloat32")]
    rows += [cost_row(threads=8, versions={"jax": jax}) for jax in ("0.9.2", "0.10", "0.10.2")]
    found = sections_of(rows)
    assert [section.title.partition(": ")[2] for section in found] == [
        "d = 64, 2 heads, float32; a device, 1 thread",
        "d = 64, 2 heads, float32 (tensorfloat32 products); a device, 1 thread",
        "d = 64, 2 heads, bfloat16; a device, 1 thread",
        "d = 64, 2 heads, float32; a device, 8 threads, JAX 0.10.2",
        "d = 64, 2 heads, float32; a device, 8 threads, JAX 0.10",
        "d = 64, 2 heads, float32; a device, 8 threads, JAX 0.9.2",
        "d = 64, 2 heads, float32; a device",
        "d = 64, 2 heads, float32; another, 1 thread",
    ]
    names = [figure.name for section in found for figure in section.figures]
    assert len(set(names)) == len(names) == 8


def test_numbers_of_tokens_have_sections_of_their_own():
    rows = [cost_row(benchmark="fixed_tokens", batch=batch) for batch in (8, 16)]
    assert [section.title for section in sections_of(rows)] == [
        "Cost at a fixed number of tokens (8,192): d = 64, 2 heads, float32; a device, 1 thread",
        "Cost at a fixed number of tokens (16,384): d = 64, 2 heads, float32; a device, 1 thread",
    ]


def test_series_show_one_size_of_each_method_and_what_was_not_measured():
    rows = [
        *(linformer(size, length=n) for size in (128, 256) for n in (512, 1024)),
        standard(2.0, length=512),
        standard(8.0, length=1024, status="extrapolated"),
    ]
    ((figure,),) = (section.figures for section in sections_of(rows))
    assert figure.name == "cost-module-d64-float32-forward"
    exact, projected = series(only(rows), only(rows).lines[:2])
    assert [mark.measured for mark in exact.time] == [True, False]
    assert [mark.value for mark in projected.memory] == [10.0, 10.0]
    assert (projected.line.title, projected.nth) == ("Linformer-128", 0)


def test_points_that_were_not_measured_are_hollow_at_the_end_of_a_dotted_line():
    rows = [standard(2.0, length=512), standard(8.0, length=1024, status="extrapolated")]
    ((figure,),) = (section.figures for section in sections_of(rows))
    drawn = figure.draw()
    filled, dotted, hollow = drawn.axes[0].get_lines()
    assert [list(line.get_xdata()) for line in (filled, dotted)] == [[512], [512, 1024]]
    assert list(hollow.get_xdata()) == [1024]
    assert hollow.get_markerfacecolor() == "white"
    pyplot.close(drawn)


def test_summaries_come_first_and_other_tables_are_folded():
    rows = [
        *(cost_row(n, length=n) for n in (1024, 2048, 4096)),
        cost_row(1.0, length=2048, **PEER),
    ]
    (section,) = sections_of([*rows, standard(length=2048), linformer(256, length=2048)])
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
    assert sections_of(rows)[0].legend == (
        "Standard is exact attention: (xla) is not computed in blocks. The number behind a name: "
        "projection dimension of Linformer, landmarks of Nyströmformer. Peers, by others, have "
        "their package in brackets: mine, transformers (Hugging Face). Lines called published are "
        "numbers of papers, from other devices."
    )
    alone = cost_row(method="linear", label="linear", options={}, mode="forward_backward")
    assert sections_of([alone])[0].legend == ""
