"""Legends and labels of figures, that nothing is cut off and nothing touches."""

import itertools

import matplotlib
import pytest
from matplotlib import pyplot

from lra.report import drawing
from lra.report.cells import Stat
from lra.report.curves import Curve, History
from lra.report.dots import Dot
from lra.report.styles import STYLES
from lra.report.sweep_points import Sweep


@pytest.fixture(autouse=True)
def _style():
    with matplotlib.rc_context(drawing.RC):
        yield
    pyplot.close("all")


@pytest.mark.parametrize("more", ["", ", warmup_steps=100, learning_rate=0.0003, dropout=0.25"])
def test_a_legend_of_long_titles_is_within_its_figure(more):
    curve = Curve([10, 20], [0.1, 0.2], [0.1, 0.2], [0.1, 0.2])
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


def test_every_value_of_the_default_sweep_has_its_label():
    dots = {size: Dot(Stat(0.3655, 0.0012, 3), 1e6 / size) for size in (16, 32, 64, 128, 256, 512)}
    sweep = Sweep("", {"listops": dots, "image": dots}, {}, {})
    drawn = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"])
    drawn.set_dpi(300)
    drawn.draw_without_rendering()
    for axis in drawn.axes[2:]:
        labels = axis.get_xticklabels()
        assert [label.get_text() for label in labels] == [f"{size}" for size in dots]
        extents = [label.get_window_extent() for label in labels]
        gaps = [after.x0 - before.x1 for before, after in itertools.pairwise(extents)]
        assert min(gaps) > 300 / 72
