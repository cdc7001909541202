"""Measurements of a run by series of lengths, and predictions from them for longer sequences."""

import math
import statistics

from benchmarks.cases import Case, Contender
from lra.efficiency import CostRow

# Predictions are fitted to lengths of at least `_LONG`, and to at least `_MIN_POINTS` points.
_LONG, _MIN_POINTS = 1024, 3

_Points = dict[tuple, list[tuple[float, float]]]  # series -> pairs of length and value


class Measured:
    """Measurements of a run so far that predictions for later cases need."""

    def __init__(self):
        self._timed: dict[tuple, list[CostRow]] = {}
        self._memory: _Points = {}
        self._memory_source: dict[tuple, str] = {}  # that of each series' last row
        self._batch_one_rows: dict[tuple, CostRow] = {}
        self._memory_per_example: _Points = {}

    def remember(self, row: CostRow) -> None:
        """Store a row's measurements; rows with filled batches predict nothing and are ignored."""
        key = series_of(row.label, row)
        if row.filled:
            return
        if row.batch == 1:
            self._batch_one_rows[key, row.length] = row
        if row.status == "ok":
            if row.seconds:
                self._timed.setdefault(key, []).append(row)
            if row.peak_memory_mb:
                self._memory.setdefault(key, []).append((row.length, row.peak_memory_mb * 1e6))
                self._memory_source[key] = row.memory_source

    def remember_another(self, contender: Contender, case: Case, memory: float) -> None:
        """Store the bytes that one more example needs."""
        key = series_of(contender.label, case)
        self._memory_per_example.setdefault(key, []).append((case.length, memory))

    def of_one(self, contender: Contender, case: Case) -> CostRow:
        """Return the row with batch 1, from which a filled batch is chosen."""
        return self._batch_one_rows[series_of(contender.label, case), case.length]

    def seconds(self, contender: Contender, case: Case, flops: float | None) -> float | None:
        """Predict the seconds of a call from shorter lengths; None with fewer than two of them.

        From the longest of them on, time is taken to grow as the flops do, or, where they are not
        known, by the exponent fitted to all lengths.

        Args:
            contender: What is called.
            case: Sizes of the call.
            flops: Its floating-point operations, if known.
        """
        rows = self._timed.get(series_of(contender.label, case), [])
        if len(rows) < 2:
            return None
        last = max(rows, key=lambda row: row.length)
        if flops and last.flops:
            return last.seconds * flops / last.flops
        least = least_exponent(contender.method == "standard", case.benchmark)
        exponent = fitted_exponent([(row.length, row.seconds) for row in rows], least)
        return last.seconds * (case.length / last.length) ** exponent

    def memory(self, contender: Contender, case: Case) -> tuple[float, str] | None:
        """Predict the bytes of a call, and how they were measured; None without shorter lengths.

        The prediction is at least the memory at the longest length, scaled with the least exponent.
        """
        key = series_of(contender.label, case)
        points = self._memory.get(key, [])
        if not points:
            return None
        least = least_exponent(contender.holds_scores, case.benchmark)
        length, memory = max(points)
        scaled = memory * max(1, case.length / length) ** least
        return max(scaled, power_law(points, case.length) or 0), self._memory_source[key]

    def memory_of_another(self, contender: Contender, case: Case) -> float | None:
        """Predict the bytes of one more example from shorter lengths; None with too few of them."""
        points = self._memory_per_example.get(series_of(contender.label, case), [])
        return power_law(points, case.length)


def series_of(label: str, case: Case | CostRow) -> tuple:
    """Return what all rows of a prediction share: all but the length and a batch that it sets."""
    batch = None if case.benchmark == "fixed_tokens" else case.batch
    return label, case.benchmark, case.mode, case.dtype, case.dim, case.heads, batch


def least_exponent(of_pairs: bool, benchmark: str) -> int:
    """Return the least power of the length with which time or memory grow.

    It is 2 for what is computed or stored for all pairs of positions, else 1. With a fixed number
    of tokens it is one less, since there are fewer sequences if they are longer.

    Args:
        of_pairs: Whether the cost is per pair of positions: true for the time of exact attention,
            and for its memory if it `holds_scores`.
        benchmark: Name of the benchmark, as in `lra.efficiency.CostRow`.
    """
    per_sequence = 2 if of_pairs else 1
    return per_sequence - 1 if benchmark == "fixed_tokens" else per_sequence


def power_law(points: list[tuple[float, float]], at: float) -> float | None:
    """Fit a power law to `points` (length, value) and evaluate it at the length `at`.

    The exponent is that of `fitted_exponent`. None with fewer than two points.
    """
    points = [point for point in points if point[1] > 0]
    if len(points) < 2:
        return None
    xs, ys = _logarithms(points)
    # For any given exponent, the best fit passes through the mean of the points.
    shift = fitted_exponent(points) * (math.log(at) - statistics.fmean(xs))
    return math.exp(statistics.fmean(ys) + shift)


def fitted_exponent(points: list[tuple[float, float]], least: float = 0) -> float:
    """Fit a power law to at least two `points` (length, value), and return its exponent.

    Least squares of the logarithms over all lengths from 1,024 on, or over the three longest if
    there are fewer than three of them.

    Args:
        points: Points of one series, in any order.
        least: Least exponent (see `least_exponent`). If projections still take most of the time,
            the result is an upper estimate. The exponent is at most 2, since nothing here grows
            faster than the number of pairs of positions.
    """
    return min(max(statistics.linear_regression(*_logarithms(points)).slope, least), 2)


def _logarithms(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the logarithms of the lengths and values to which to fit."""
    points = sorted(points)
    long = [point for point in points if point[0] >= _LONG]
    fitted = long if len(long) >= _MIN_POINTS else points[-_MIN_POINTS:]
    xs, ys = ([math.log(point[axis]) for point in fitted] for axis in (0, 1))
    return xs, ys
