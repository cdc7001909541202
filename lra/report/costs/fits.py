"""How costs grow with length: exponents of power laws fitted to what was measured."""

import math
import statistics
from collections import defaultdict
from typing import NamedTuple

from lra.report.costs.ratios import cost, is_measured
from lra.report.costs.sheets import Line, Sheet

# Exponents are fitted between these lengths where there are so many points.
FIT = (4096, 65536)
_LEAST = 3


class Fit(NamedTuple):
    """A power law: cost grows as length to this exponent, from one length to another."""

    exponent: float
    low: int
    high: int


def fit(sheet: Sheet, line: Line, what: str) -> Fit | None:
    """The exponent of a line's measured costs.

    It is fitted to the lengths within `FIT`, or to the three longest of all if fewer than three lie
    there: a line through two points would be their noise. All points are of one run, the one with
    most of them, and of one way to measure memory. None with fewer than three points, or for memory
    if the batch was taken in parts.
    """
    if what == "peak_memory_mb" and sheet.in_parts:
        return None
    points = max((_points(sheet, line, what, run) for run in sheet.runs), key=len)
    if len(points) < _LEAST:
        return None
    logarithms = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    slope = statistics.linear_regression(*logarithms).slope
    return Fit(slope, points[0][0], points[-1][0])


def _points(sheet: Sheet, line: Line, what: str, run: str) -> list[tuple[int, float]]:
    """Lengths and costs that a run has measured of a line, those to fit.

    If memory was measured in several ways, the way with most points.
    """
    series: dict[str | None, list[tuple[int, float]]] = defaultdict(list)
    for length in sheet.lengths:
        for row in sheet.rows.get((line, length), ()):
            value = cost(row, what)
            if row.run == run and value and is_measured(row, what):
                way = row.memory_source if what == "peak_memory_mb" else None
                series[way].append((length, value))
    return max(map(_to_fit, series.values()), key=len, default=[])


def _to_fit(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    inside = [point for point in points if FIT[0] <= point[0] <= FIT[1]]
    return inside if len(inside) >= _LEAST else points[-_LEAST:]
