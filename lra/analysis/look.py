"""Styles that distinguish data and sizes in the figures of an analysis.

As in `lra.report.drawing`, figures fit a column of a paper and are readable without colour.
"""

from typing import Any

COLOURS = "cividis"  # uniform in lightness, and looks the same to colour-blind readers
DATA = {"trained": "trained q, k, v", "random": "random q, k, v"}
RANDOM_LINE = (0, (5, 1.5))

Rows = list[dict[str, Any]]


def kinds(rows: Rows) -> list[str]:
    """Return the kinds of data that rows have, in the order of `DATA`."""
    present = {row.get("data") for row in rows}
    return [data for data in DATA if data in present]


def shade(index: int, number: int) -> Any:
    """Return the colour of the line with this index among a number of ordered lines."""
    from matplotlib import colormaps

    # The lightest fifth of the colour map is too pale for lines.
    return colormaps[COLOURS](0.8 * index / max(1, number - 1))
