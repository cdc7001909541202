"""Figures of accuracy against speed: areas of dots, and legends."""

import math

import pytest

from lra.report.cells import Stat
from lra.report.dots import Dot
from lra.report.dots_drawing import draw_dots
from lra.report.groups import group
from lra.report.styles import STYLES, area_of_marker
from tests.lra.report.drawn_texts import check_legend
from tests.lra.report.swept_rows import figures_of
from tests.lra.row_factory import make_row

pytestmark = pytest.mark.usefixtures("figure_style")


@pytest.mark.parametrize("number", [6, 16])
@pytest.mark.parametrize("tasks", [("listops",), ("listops", "text", "image")])
def test_a_tall_legend_leaves_the_panels_of_dots_their_height(number, tasks):
    names = [f"my_very_long_attention_name_{n}_with_suffix" for n in range(number)]
    dots = {name: Dot(Stat(0.5, None, 1), 1e3, 1e6) for name in names}
    drawn = draw_dots(dict.fromkeys(tasks, dots), dict.fromkeys(names, STYLES["nystrom"]))
    drawn.draw_without_rendering()
    check_legend(drawn, least=50)
    (label,) = [text for text in drawn.texts if text.get_text() == "test accuracy (%)"]
    assert label.get_window_extent().y1 < drawn.axes[0].title.get_window_extent().y1


@pytest.mark.parametrize("attentions", [("linformer", "nystrom"), tuple(STYLES)])
def test_a_legend_is_within_its_figure(attentions):
    sizes = {"nystrom": 209_000}
    rows = [make_row(0.5, attention=name, params=sizes.get(name, 1_260_000)) for name in attentions]
    (figure,) = figures_of(group(rows)[0])
    drawn = figure.draw()
    drawn.draw_without_rendering()
    (legend,) = drawn.legends
    assert len(legend.texts) == len(attentions) + 2
    extent = legend.get_window_extent()
    assert drawn.bbox.x0 <= extent.x0
    assert extent.x1 <= drawn.bbox.x1


@pytest.mark.parametrize("attention", STYLES)
def test_the_area_of_a_dot_is_its_parameters(attention):
    other = "standard" if attention != "standard" else "linear"
    dots = {attention: Dot(Stat(0.2, None, 1), 1.0, 5e5), other: Dot(Stat(0.8, None, 1), 2.0, 1e6)}
    drawn = draw_dots({"listops": dots}, STYLES)
    sizes = [dot.get_sizes()[0] for dot in drawn.axes[0].collections]
    small, large = [handle.get_markersize() for handle in drawn.legends[0].legend_handles[-2:]]
    areas = [
        size * area_of_marker(STYLES[name].marker) for size, name in zip(sizes, dots, strict=True)
    ]
    assert areas[1] == pytest.approx(2 * areas[0], rel=1e-12)
    assert [math.pi / 4 * small**2, math.pi / 4 * large**2] == pytest.approx(areas, rel=1e-3)
