"""Colours and markers tell attentions apart, in every figure of a report alike."""

import math

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgb

from lra.report.figures import figures
from lra.report.groups import group
from lra.report.styles import (
    LINES,
    RC,
    STYLES,
    area_of_marker,
    contrasting,
    shade,
    styles,
)
from tests.lra.row_factory import make_row


def test_attentions_differ_in_colour_and_marker():
    looks = STYLES.values()
    assert len({colour for colour, _, _ in looks}) == len(looks)
    assert len({marker for _, marker, _ in looks}) == len(looks)


def test_attentions_without_a_style_differ_from_all_others():
    names = [f"attention {number:02}" for number in range(30)]
    looks = styles([*reversed(names), "nystrom"])
    assert looks["nystrom"] == STYLES["nystrom"]
    assert len({looks[name][:2] for name in names}) == 30
    own = {part for look in STYLES.values() for part in look[:2]}
    assert not own & {part for name in names for part in looks[name][:2]}
    # The same in every figure of a report.
    rows = [make_row(attention=name) for name in ("one", "two")]
    rows += [
        make_row(attention="two", config_overrides={"model.attention.size": n}) for n in (1, 2)
    ]
    (_, of_options), _ = figures(group(rows), [])
    drawn = of_options[0].draw()
    colour = drawn.axes[0].lines[0].get_color()
    pyplot.close(drawn)
    assert colour == styles(["one", "two"])["two"][0]


@pytest.mark.parametrize("attention", STYLES)
def test_lines_of_one_attention_alone_have_colours_of_no_attention(attention):
    own, *others = contrasting(STYLES[attention], 30)
    assert own == STYLES[attention]
    assert len({own, *others}) == 30
    assert not {other.colour for other in others} & {style.colour for style in STYLES.values()}
    assert len({other.colour for other in others[:5]}) == 5
    assert contrasting(own, 0) == []


@pytest.mark.parametrize("attention", STYLES)
def test_shades_of_an_attention_look_like_no_other(attention):
    looks = [shade(STYLES[attention], nth) for nth in range(36)]
    assert looks[0] == STYLES[attention]
    assert len(set(looks)) == 36
    assert all(min(to_rgb(colour)) < 0.85 for colour, *_ in looks)  # none is nearly white
    assert len({colour for colour, *_ in looks}) == 36
    assert not {look.marker for look in looks[1:]} & {look.marker for look in STYLES.values()}


def test_shades_of_different_attentions_differ():
    looks = [shade(own, nth) for own in STYLES.values() for nth in range(12)]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize(("marker", "area"), [("o", math.pi / 4), ("s", 1), ("D", 1), ("^", 0.5)])
def test_areas_of_markers(marker, area):
    assert area_of_marker(marker) == pytest.approx(area, rel=1e-3)


@pytest.mark.parametrize("line", LINES[1:])
def test_a_legend_shows_gaps_of_a_line_that_its_marker_leaves_free(line):
    width, middle = RC["lines.linewidth"], RC["legend.handlelength"] * RC["legend.fontsize"] / 2
    ends = np.cumsum(np.tile(line[1], 9)) * width  # of dashes and gaps in turns
    before_marker = ends[ends < middle - RC["lines.markersize"] / 2]
    assert len(before_marker) >= 2
