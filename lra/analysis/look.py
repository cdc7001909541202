"""How the pictures of an analysis tell data and sizes apart.

In the style of `lra.report.drawing`: for a column of a paper, readable without colour.
"""

from typing import Any

COLOURS = "cividis"  # even in lightness, the same for colour-blind readers
DATA = {"trained": "trained q, k, v", "random": "random q, k, v"}
RANDOM_LINE = (0, (5, 1.5))

Rows = list[dict[str, Any]]


def kinds(rows: Rows) -> list[str]:
    """Which data the rows are of, in the order of `DATA`."""
    found = {row.get("data") for row in rows}
    return [data for data in DATA if data in found]


def shade(index: int, number: int) -> Any:
    """The colour of one of a number of ordered lines."""
    from matplotlib import colormaps

    # Without the lightest fifth, which is too pale for lines.
    return colormaps[COLOURS](0.8 * index / max(1, number - 1))
