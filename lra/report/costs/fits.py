"""Growth of costs with length: exponents of power laws fitted to measured costs."""

import math
import statistics
from collections import defaultdict
from typing import NamedTuple

from lra.report.costs.ratios import cost, is_measured
from lra.report.costs.sheets import Line, Sheet

FIT = (4096, 65536)  # range of lengths to fit if it has enough points
_LEAST = 3  # points of a fit


class Fit(NamedTuple):
    """A power law: cost grows as length to this exponent, between lengths `low` and `high`."""

    exponent: float
    low: int
    high: int


def fit(sheet: Sheet, line: Line, field: str) -> Fit | None:
    """Fit a power law to a line's measured costs.

    It is fitted to the lengths within `FIT`, or to the three longest of all if fewer than three are
    in this range: the slope between two points would be their noise. All points come from one run,
    the one with most of them, and from one way to measure memory. None with fewer than three
    points, or for memory if the batch was processed in parts.
    """
    if field == "peak_memory_mb" and sheet.in_parts:
        return None
    points = max((_points(sheet, line, field, run) for run in sheet.runs), key=len)
    if len(points) < _LEAST:
        return None
    logarithms = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    slope = statistics.linear_regression(*logarithms).slope
    return Fit(slope, points[0][0], points[-1][0])


def _points(sheet: Sheet, line: Line, field: str, run: str) -> list[tuple[int, float]]:
    """Return the lengths and measured costs of a line in one run to which to fit.

    If memory was measured in several ways, the way with most points is taken, of two with equally
    many that of the longer sequences.
    """
    series: dict[str | None, list[tuple[int, float]]] = defaultdict(list)
    for length in sheet.lengths:
        for row in sheet.rows.get((line, length), ()):
            value = cost(row, field)
            if row.run == run and value and is_measured(row, field):
                source = row.memory_source if field == "peak_memory_mb" else None
                series[source].append((length, value))
    candidates = map(_select_points, series.values())
    return max(candidates, key=lambda points: (len(points), points[-1]), default=[])


def _select_points(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    in_range = [point for point in points if FIT[0] <= point[0] <= FIT[1]]
    return in_range if len(in_range) >= _LEAST else points[-_LEAST:]
