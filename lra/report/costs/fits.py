"""Growth of costs with length: exponents of power laws fitted to measured costs."""

import math
import statistics
from collections import defaultdict
from typing import NamedTuple

from lra.report.costs.ratios import cost, is_measured, scatters
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
    the one with most of them, of several that with the longest sequences, of these the sheet's
    first, and from one way to measure memory, that of the longest sequences.
    None with fewer than three points (four if the repeats of one scatter), or for memory if the
    batch was processed in parts.
    """
    if field == "peak_memory_mb" and sheet.in_parts:
        return None
    of_runs = (_points(sheet, line, field, run) for run in sheet.runs)
    points = max(of_runs, key=lambda points: (len(points), points[-1].length if points else 0))
    noisy = any(point.scatters for point in points)
    if len(points) < _LEAST + noisy:
        return None
    lengths, costs = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    slope = statistics.linear_regression(lengths, costs).slope
    return Fit(slope, points[0].length, points[-1].length)


class _Point(NamedTuple):
    """A measured cost, and whether it is a time whose repeats scatter."""

    length: int
    cost: float
    scatters: bool


def _points(sheet: Sheet, line: Line, field: str, run: str) -> list[_Point]:
    """Return the measured costs of a line in one run to which to fit.

    If memory was measured in several ways, it is the way of the longest sequences: growth at short
    ones would say nothing of long ones.
    """
    series: dict[str | None, list[_Point]] = defaultdict(list)
    for length in sheet.lengths:
        for row in sheet.rows.get((line, length), ()):
            value = cost(row, field)
            if row.run == run and value and is_measured(row, field):
                source = row.memory_source if field == "peak_memory_mb" else None
                noisy = field == "seconds" and scatters(row)
                series[source].append(_Point(length, value, noisy))
    points = max(series.values(), key=lambda points: points[-1].length, default=[])
    in_range = [point for point in points if FIT[0] <= point.length <= FIT[1]]
    return in_range if len(in_range) >= _LEAST else points[-_LEAST:]
