"""Look of the figures: matplotlib settings, and a colour, marker and line for each attention.

matplotlib is imported only to draw.
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple


class Style(NamedTuple):
    """How an attention is drawn: colour, marker and line style, each as matplotlib takes it."""

    colour: str | tuple[float, float, float]
    marker: str
    line: str | tuple[int, tuple[float, ...]]


LINES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))

# Colours from Okabe and Ito, "Color Universal Design", 2008, without yellow, which is too pale for
# lines.
STYLES = {
    "standard": Style("#000000", "o", "-"),
    "reformer": Style("#CC79A7", "D", (0, (5, 1.5))),
    "linformer": Style("#0072B2", "s", (0, (3, 1, 1, 1))),
    "performer": Style("#009E73", "^", (0, (1, 1))),
    "nystrom": Style("#D55E00", "v", "-"),
    "longformer": Style("#E69F00", "P", (0, (5, 1.5))),
    "linear": Style("#56B4E9", "X", (0, (3, 1, 1, 1))),
}

# For attentions without a style, and figures of one attention. The numbers of colours, markers and
# lines differ, so that it takes long for a combination to repeat.
_OTHER_COLOURS = ("#7F7F7F", "#882255", "#332288", "#999933", "#8C564B")
# None of `STYLES` has one of these markers; shades of an attention use them too.
_OTHER_MARKERS = ("h", "<", "*", ">", "p", "d")
_SHADES = 6  # per colour
_LIGHT = 0.35  # luminance above which shades are darker, not paler

RC = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 3.2,  # a marker leaves gaps of the dashes to be seen
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a $ in a name starts no formula
    "svg.fonttype": "path",
    "svg.hashsalt": "lra",  # so that the same rows give the same bytes
}


def styles(attentions: Iterable[str]) -> dict[str, Style]:
    """Return `STYLES` extended by a style for each other attention, assigned in order of names."""
    others = sorted(set(attentions) - set(STYLES))
    return STYLES | {name: _other(number) for number, name in enumerate(others)}


def _other(number: int) -> Style:
    kinds = (_OTHER_COLOURS, _OTHER_MARKERS, LINES)
    return Style(*(kind[number % len(kind)] for kind in kinds))


def contrasting(own: Style, number: int) -> list[Style]:
    """Return styles of lines that are all of one attention, in a figure without others."""
    return [own, *map(_other, range(number - 1))][:number]


def shade(own: Style, nth: int) -> Style:
    """Return the style of the `nth` further line of an attention: another shade and marker.

    Shades are paler, those of a light colour darker: paler ones could not be told apart on white.
    `nth` counts from 1; for 0 the style is returned unchanged. A seventh shade would look like the
    sixth, so shades of other colours follow, which begin elsewhere for each attention.
    """
    from matplotlib.colors import to_rgb

    if not nth:
        return own
    colour_index, shade_index = divmod(nth, _SHADES)
    if colour_index:
        markers = (*(style.marker for style in STYLES.values()), *_OTHER_MARKERS)
        start = markers.index(own.marker)
        colour = _OTHER_COLOURS[(start + colour_index - 1) % len(_OTHER_COLOURS)]
    else:
        colour, start = own.colour, 0
    strength = max(0.3, 0.6 * 0.75 ** (shade_index - 1) + 0.1) if shade_index else 1.0
    full = to_rgb(colour)
    if _luminance(full) > _LIGHT:
        shaded = tuple(strength * part for part in full)
    else:
        shaded = tuple(1 - strength * (1 - part) for part in full)
    marker = _OTHER_MARKERS[(start + nth) % len(_OTHER_MARKERS)]
    return Style(shaded, marker, LINES[(LINES.index(own.line) + nth) % len(LINES)])


def _luminance(colour: tuple[float, float, float]) -> float:
    """Return the relative luminance of an sRGB colour: 0 is black, 1 is white (WCAG 2)."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def as_options(style: Style) -> dict[str, Any]:
    """Return a style as keyword arguments of matplotlib's line functions."""
    return {"color": style.colour, "marker": style.marker, "linestyle": style.line}


@functools.cache
def area_of_marker(marker: str) -> float:
    """Return the area of a marker of `markersize` 1, or of `s` 1: pi / 4 for a circle."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    style = MarkerStyle(marker)
    scale = 1000  # large, since curves become polygons only to the precision of a pixel
    outline = style.get_path().transformed(style.get_transform() + Affine2D().scale(scale))
    area = 0.0
    for corners in outline.to_polygons():
        x, y = corners.T
        # The shoelace formula; the last corner repeats the first.
        area += abs(x[:-1] @ y[1:] - x[1:] @ y[:-1]) / 2
    return area / scale**2
