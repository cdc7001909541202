"""How costs grow with length: exponents of power laws fitted to what was measured."""

import math
import statistics
from collections import defaultdict
from typing import NamedTuple

from lra.report.costs.ratios import cost, is_measured
from lra.report.costs.sheets import Line, Sheet

# Exponents are fitted between these lengths where there are enough.
FIT = (4096, 65536)


class Fit(NamedTuple):
    """A power law: cost grows as length to this exponent, from one length to another."""

    exponent: float
    low: int
    high: int


def fit(sheet: Sheet, line: Line, what: str) -> Fit | None:
    """The exponent of a line's measured costs, between the lengths of `FIT` if two are there.

    Of one run, memory taken in one way: those of which there are most. None with fewer points, and
    of memory where it is that of parts of a batch.
    """
    of_memory = what == "peak_memory_mb"
    if of_memory and sheet.in_parts:
        return None
    series: dict[tuple, list[tuple[int, float]]] = defaultdict(list)
    for length in sheet.lengths:
        for row in sheet.rows.get((line, length), ()):
            value = cost(row, what)
            if value and is_measured(row, what):
                series[row.run, of_memory and row.memory_source].append((length, value))
    points = max(map(_inside, series.values()), key=len, default=[])
    if len(points) < 2:
        return None
    logarithms = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    slope = statistics.linear_regression(*logarithms).slope
    return Fit(slope, points[0][0], points[-1][0])


def _inside(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Those of lengths inside `FIT` if two are there, else all."""
    inside = [point for point in points if FIT[0] <= point[0] <= FIT[1]]
    return inside if len(inside) > 1 else points
