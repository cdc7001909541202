"""What was measured in each series of lengths, and what it predicts for another length."""

import math
import statistics

from benchmarks.cases import Case, Contender
from lra.efficiency import CostRow

# What predictions are fitted to: lengths from here on, and so many points at least.
_LONG, _FITTED = 1024, 3

_Points = dict[tuple, list[tuple[float, float]]]  # by series, pairs of length and value


class Measured:
    """The rows of a run so far, as far as later cases need them."""

    def __init__(self):
        self._seconds: _Points = {}
        self._memory: _Points = {}
        self._memory_source: dict[tuple, str] = {}  # of the last row
        self._of_one: dict[tuple, CostRow] = {}
        self._of_another: _Points = {}

    def remember(self, row: CostRow) -> None:
        """Keeps what a row tells about longer sequences; rows with filled batches tell nothing."""
        key = _series(row.label, row)
        if row.filled:
            return
        if row.batch == 1:
            self._of_one[key, row.length] = row
        if row.status == "ok":
            if row.seconds:
                self._seconds.setdefault(key, []).append((row.length, row.seconds))
            if row.peak_memory_mb:
                self._memory.setdefault(key, []).append((row.length, row.peak_memory_mb * 1e6))
                self._memory_source[key] = row.memory_source

    def remember_another(self, contender: Contender, case: Case, memory: float) -> None:
        """Keeps the bytes that one more example needs."""
        key = _series(contender.label, case)
        self._of_another.setdefault(key, []).append((case.length, memory))

    def of_one(self, contender: Contender, case: Case) -> CostRow:
        """The row of batch 1 that a case with a filled batch starts from."""
        return self._of_one[_series(contender.label, case), case.length]

    def seconds(self, contender: Contender, case: Case) -> float | None:
        """Predicted seconds of a call, from shorter lengths.

        A power law fitted to all lengths may be too low at the longest. So the prediction is at
        least the time of the longest, grown with the least exponent.
        """
        known = self._seconds.get(_series(contender.label, case), [])
        least = least_exponent(contender.method == "standard", case.benchmark)
        fitted = power_law(known, case.length, least)
        if fitted is None:
            return None
        length, seconds = max(known)
        return max(fitted, seconds * (case.length / length) ** least)

    def memory(self, contender: Contender, case: Case) -> tuple[float, str] | None:
        """Predicted bytes, from shorter lengths, and how those were measured.

        They are at least those of the longest length, grown with the least exponent.
        """
        key = _series(contender.label, case)
        known = self._memory.get(key, [])
        if not known:
            return None
        least = least_exponent(contender.holds_scores, case.benchmark)
        length, memory = max(known)
        grown = memory * max(1, case.length / length) ** least
        return max(grown, power_law(known, case.length) or 0), self._memory_source[key]

    def memory_of_another(self, contender: Contender, case: Case) -> float | None:
        """Predicted bytes that one more example needs, from shorter lengths."""
        return power_law(self._of_another.get(_series(contender.label, case), []), case.length)


def _series(label: str, case: Case | CostRow) -> tuple:
    """What all rows of a prediction share: everything but the length and a batch set by it."""
    batch = None if case.benchmark == "fixed_tokens" else case.batch
    return label, case.benchmark, case.mode, case.dtype, case.dim, batch


def least_exponent(of_pairs: bool, benchmark: str) -> int:
    """The least power of the length with which time or memory grow.

    It is 2 for what is done or held for all pairs of positions, else 1; one less with a fixed
    number of tokens, since longer sequences are fewer then.

    Args:
        of_pairs: true for the time of exact attention, and for its memory if it `holds_scores`.
        benchmark: as in `lra.efficiency.CostRow`.
    """
    of_a_sequence = 2 if of_pairs else 1
    return of_a_sequence - 1 if benchmark == "fixed_tokens" else of_a_sequence


def power_law(points: list[tuple[float, float]], at: float, least: float = 0) -> float | None:
    """The value at `at` on the power law fitted to `points` (length, value).

    Least squares of the logarithms over all lengths from 1,024 on, or over the three longest if
    there are fewer than three of them. None with fewer than two points.

    Args:
        points: of one series, in any order.
        at: a length.
        least: the exponent is at least this (`least_exponent`); where projections still take most
            of the time, the result is an upper estimate. It is at most 2, since nothing here grows
            faster than the number of pairs of positions.
    """
    points = sorted(point for point in points if point[1] > 0)
    if len(points) < 2:
        return None
    long = [point for point in points if point[0] >= _LONG]
    chosen = long if len(long) >= _FITTED else points[-_FITTED:]
    xs, ys = ([math.log(point[axis]) for point in chosen] for axis in (0, 1))
    exponent = min(max(statistics.linear_regression(xs, ys).slope, least), 2)
    # With any exponent, the line that fits best goes through the mean of the points.
    return math.exp(statistics.fmean(ys) + exponent * (math.log(at) - statistics.fmean(xs)))
