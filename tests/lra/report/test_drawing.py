"""Legends and labels of figures, that nothing is cut off and nothing touches."""

import itertools

import pytest
from matplotlib import pyplot

from lra.report import axes, drawing
from lra.report.cells import Stat
from lra.report.curve_points import Curve
from lra.report.curves import History
from lra.report.dots import Dot
from lra.report.figures import figures
from lra.report.groups import group
from lra.report.styles import STYLES
from lra.report.sweep_points import Sweep
from tests.lra.cost_row_factory import PEER, cost_row, linformer, sections_of, standard
from tests.lra.report.drawn_texts import check_legend, draw, plain_texts
from tests.lra.report.swept_rows import sweep_rows
from tests.lra.row_factory import make_row
from tests.lra.run_folder import write_run

pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.mark.parametrize("more", ["", ", warmup_steps=100, learning_rate=0.0003, dropout=0.25"])
def test_a_legend_of_long_titles_is_within_its_figure(more):
    curve = Curve([10, 20], [0.1, 0.2], [[0.1], [0.2]])
    title = f"Nyströmformer, num_landmarks=8, eval_every=10, steps=20{more}"
    drawn = drawing.draw_histories([History("nystrom", title, curve, curve)] * 6, STYLES)
    drawn.draw_without_rendering()
    (legend,) = drawn.legends
    extent = legend.get_window_extent()
    assert [text.get_text().replace("\n", " ") for text in legend.texts] == [title] * 6
    assert extent.width <= drawn.bbox.width
    assert drawn.bbox.x0 <= extent.x0
    assert extent.x1 <= drawn.bbox.x1
    assert min(text.get_fontsize() for text in legend.texts) >= 5.5
    panels = [72 * axis.get_window_extent().height / drawn.dpi for axis in drawn.axes]
    assert min(panels) > 80


@pytest.mark.parametrize("curves", [2, 4, 6])
def test_a_tall_legend_leaves_the_panels_of_a_sweep_their_height(curves):
    dots = {value: Dot(Stat(0.5, None, 1), 12_000.0) for value in (16, 64, 256)}
    shares = "['heads', 'kv', 'layers']"
    fixed = [{"share": f"{shares} {n}", "projection": f"mean_pool_{n}"} for n in range(curves)]
    sweeps = [Sweep(each, (*each,), {"listops": dots}, {}, {}) for each in fixed]
    drawn = drawing.draw_sweep("proj_dim", sweeps, STYLES["linformer"])
    drawn.draw_without_rendering()
    check_legend(drawn, least=50)
    upper, lower = (axis.yaxis.label.get_window_extent() for axis in drawn.axes)
    assert upper.y0 > lower.y1


@pytest.mark.parametrize(("steps", "marked"), [([10], True), ([10, 20], False)])
def test_a_single_loss_is_visible(steps, marked):
    losses = [2.3 for _ in steps]
    loss = Curve(steps, losses, [[value] for value in losses])
    accuracy = Curve([20], [0.1], [[0.1]])
    drawn = drawing.draw_histories([History("nystrom", "a run", loss, accuracy)], STYLES)
    (line,) = drawn.axes[0].lines
    assert (line.get_marker() == STYLES["nystrom"].marker) == marked


@pytest.mark.parametrize(("slowest", "joined"), [(None, True), (77.0, True), (76.0, False)])
def test_speeds_that_other_work_held_up_are_not_joined(slowest, joined):
    dots = {size: Dot(Stat(0.5, None, 1), 100.0) for size in (16, 64)}
    dots[16] = dots[16]._replace(slowest=slowest)
    drawn = drawing.draw_sweep(
        "proj_dim", [Sweep({}, (), {"listops": dots}, {}, {})], STYLES["linformer"]
    )
    upper, lower = drawn.axes
    assert (lower.lines[0].get_linestyle() != "None") == joined
    assert upper.lines[0].get_linestyle() != "None"
    assert lower.lines[0].get_marker() == upper.lines[0].get_marker()


def test_every_value_of_the_default_sweep_has_its_label():
    dots = {size: Dot(Stat(0.3655, 0.0012, 3), 1e6 / size) for size in (16, 32, 64, 128, 256, 512)}
    sweep = Sweep({}, (), {"listops": dots, "image": dots}, {}, {})
    drawn = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"])
    drawn.set_dpi(300)
    drawn.draw_without_rendering()
    for axis in drawn.axes[2:]:
        labels = axis.get_xticklabels()
        assert [label.get_text() for label in labels] == [f"{size}" for size in dots]
        extents = [label.get_window_extent() for label in labels]
        gaps = [after.x0 - before.x1 for before, after in itertools.pairwise(extents)]
        assert min(gaps) > 300 / 72


def test_an_axis_has_ticks_only_where_there_is_room_for_labels():
    drawn = draw_sweep(range(1, 20))
    labels = [text.get_text() for text in drawn.axes[1].get_xticklabels()]
    assert labels == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "13", "16", "19"]


def draw_sweep(values, tasks=("listops",)):
    """A figure of one sweep over these values, laid out."""
    dots = {value: Dot(Stat(0.5, None, 1), 12_000.0) for value in values}
    sweep = Sweep({}, (), dict.fromkeys(tasks, dots), {}, {})
    drawn = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"])
    drawn.draw_without_rendering()
    return drawn


def test_single_seeds_have_open_marks_and_noise_does_not_fill_an_axis():
    stats = {16: Stat(0.363, None, 1), 32: Stat(0.368, None, 1), 64: Stat(0.37, 0.003, 2)}
    dots = {value: Dot(stat, 100.0) for value, stat in stats.items()}
    dots[64] = dots[64]._replace(seeds=(0.368, 0.372))
    sweep = Sweep({}, (), {"listops": dots}, {}, {})
    drawn = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"])
    low, high = drawn.axes[0].get_ylim()
    assert high - low == pytest.approx(5)
    assert (low + high) / 2 == pytest.approx(36.75, abs=0.1)
    (line, *_, seeds) = drawn.axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([36.3, 36.8, 37.0])
    assert list(seeds.get_xydata().ravel()) == pytest.approx([64, 36.8, 64, 37.2])
    hollow = [line for line in drawn.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[16, 32]]


def test_a_panel_without_speeds_says_so():
    timed = {value: Dot(Stat(0.5, None, 1), 100.0) for value in (16, 32)}
    untimed = {value: dot._replace(speed=None) for value, dot in timed.items()}
    sweep = Sweep({}, (), {"listops": timed, "image": untimed}, {}, {})
    *_, listops, image = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"]).axes
    assert not listops.texts
    assert [text.get_text() for text in image.texts] == ["no speeds known"]
    assert not image.get_yticks().size
    assert [label.get_text() for label in image.get_xticklabels()] == ["16", "32"]


@pytest.mark.parametrize("tasks", [("listops",), ("listops", "image")])  # of two widths
@pytest.mark.parametrize(
    "values",
    [
        (16, 32, 64, 128, 256, 512, 1024),
        (32, 64, 128, 256, 512, 1024, 2048),
        (1e-5, 1e-4, 3e-4, 1e-3),
        (0, 1e-6, 1e-5, 1e-4),
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    ],
)
def test_labels_of_ticks_do_not_touch(values, tasks):
    drawn = draw_sweep(values, tasks)
    for axis in drawn.axes[len(tasks) :]:
        boxes = [text.get_window_extent() for text in axis.get_xticklabels()]
        assert len(boxes) >= 3
        for one, two in itertools.pairwise(boxes):
            assert two.x0 - one.x1 > 2 * drawn.dpi / 72  # points


def test_a_zero_among_powers_has_a_place_of_its_own():
    axis = draw_sweep((0.0, 1e-6, 1e-4)).axes[1]
    places = axis.transScale.transform([(value, 0.5) for value in (0.0, 1e-6, 1e-4)])[:, 0]
    labels = [text.get_text() for text in axis.get_xticklabels()]
    assert labels == ["0", "1e-06", "0.0001"]
    assert places[1] - places[0] > 0.3 * (places[2] - places[1]) > 0


def test_no_formula_is_written_out(tmp_path):
    """Of every kind of figure; exponents in a legend are drawn as such."""
    of_groups, of_runs = figures(
        group([*sweep_rows(), make_row(0.5, attention="standard")]),
        [str(write_run(tmp_path / "run"))],
    )
    lengths = (1024, 2048, 4096)
    rows = [standard(n / 1024, n / 10, length=n) for n in lengths]
    rows += [cost_row(1e-3, 1, length=n) for n in lengths]
    rows += [cost_row(2e-3, 2, length=n, **PEER) for n in lengths]
    rows += [linformer(128, length=n, batch=4096 // n, benchmark="fixed_tokens") for n in lengths]
    of_costs = [section.figures for section in sections_of(rows)]
    found = [figure for of_section in (*of_groups, of_runs, *of_costs) for figure in of_section]
    assert len(found) == 6
    for figure in found:
        texts = plain_texts(draw(figure))
        assert len(texts) > 5
        assert not [text for text in texts if "$" in text or "mathdefault" in text], figure.name


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, "0"),
        (0.01, "0.01"),
        (10.0**-4, "0.0001"),
        (10.0**-9, "10⁻⁹"),
        (2e-9, "2·10⁻⁹"),
        (500, "500"),
        (2500, "2.5k"),
        (-20_000, "-20k"),
        (1e6, "1M"),
        (1e12, "10¹²"),
    ],
)
def test_labels_of_ticks_fit(value, label):
    assert axes.tick_label(value) == label


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.3, 3.5, ["0.5", "1", "2"]),
        (0.9, 6, ["1", "1.5", "2", "3", "5"]),
        (0.8, 1.44, ["0.8", "0.9", "1", "1.1", "1.2", "1.3", "1.4"]),
        (1900, 4400, ["2k", "2.5k", "3k", "4k"]),
        (0.02, 20, ["0.1", "1", "10"]),
        (1e-12, 1e3, ["10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰", "10³"]),
    ],
)
def test_a_logarithmic_axis_has_labels_of_one_kind(low, high, expected):
    drawn, axis = pyplot.subplots(figsize=(2, 1.5))
    axis.set_ylim(low, high)
    axes.logarithmic(axis)
    drawn.draw_without_rendering()
    ticks = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
    assert [label.get_text() for place, label in ticks if low <= place <= high] == expected
    assert not any(label.get_text() for label in axis.get_yticklabels(minor=True))
