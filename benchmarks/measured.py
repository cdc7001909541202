"""What was measured of each series of lengths, and what it predicts for another length."""

import math
import statistics

from benchmarks.cases import Case, Contender
from lra.efficiency import CostRow

# What predictions are fitted to: lengths from here on, and so many points at least.
_LONG, _FITTED = 1024, 3

_Points = dict[tuple, list[tuple[float, float]]]  # per series [(length, value)]


class Measured:
    """The rows of a run so far, as far as later cases need them."""

    def __init__(self):
        self._seconds: _Points = {}
        self._memory: _Points = {}
        self._memory_source: dict[tuple, str] = {}  # of the last of these
        self._of_one: dict[tuple, CostRow] = {}
        self._of_another: _Points = {}

    def remember(self, row: CostRow) -> None:
        """Keeps what a row tells about others; a filled one has a batch of its own, so nothing."""
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
        """Keeps the bytes that an example more needs."""
        key = _series(contender.label, case)
        self._of_another.setdefault(key, []).append((case.length, memory))

    def of_one(self, contender: Contender, case: Case) -> CostRow:
        """The row of batch 1, for a filled case."""
        return self._of_one[_series(contender.label, case), case.length]

    def seconds(self, contender: Contender, case: Case) -> float | None:
        """Predicted seconds of a call, from shorter lengths.

        A power law through all of them may be below the longest: its own time, grown with the
        least exponent, is what the prediction is at least.
        """
        known = self._seconds.get(_series(contender.label, case), [])
        least = least_exponent(contender.method == "standard", case.benchmark)
        fitted = power_law(known, case.length, least)
        if fitted is None:
            return None
        length, seconds = max(known)
        return max(fitted, seconds * (case.length / length) ** least)

    def memory(self, contender: Contender, case: Case) -> tuple[float, str] | None:
        """Bytes by shorter lengths, and who said those.

        At least those of the longest, grown with the least exponent.
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
        """Bytes that an example more needs, by shorter lengths."""
        return power_law(self._of_another.get(_series(contender.label, case), []), case.length)


def _series(label: str, case: Case | CostRow) -> tuple:
    """What a prediction is made within: all but the length, and the batch that follows from it."""
    batch = None if case.benchmark == "fixed_tokens" else case.batch
    return label, case.benchmark, case.mode, case.dtype, case.dim, batch


def least_exponent(of_pairs: bool, benchmark: str) -> int:
    """With which power of the length time or memory grow in the end, at least.

    With a fixed number of tokens longer sequences are fewer.

    Args:
        of_pairs: whether they go to all pairs of positions, as the time of exact attention does,
            and its memory where it `holds_scores`; else to each position so many times.
        benchmark: as in `lra.efficiency.CostRow`.
    """
    of_a_sequence = 2 if of_pairs else 1
    return of_a_sequence - 1 if benchmark == "fixed_tokens" else of_a_sequence


def power_law(points: list[tuple[float, float]], at: float, least: float = 0) -> float | None:
    """The value at `at` on the power law fitted to `points` (length, value).

    Least squares of the logarithms over all lengths from 1,024 on, the three longest if there are
    fewer: two alone would tell the noise of both. None with fewer than two points.

    Args:
        points: of one series, in any order.
        at: a length.
        least: bound of the exponent from below: what is known of the method (`least_exponent`).
            Where projections still rule the lengths measured, the value is then an upper estimate.
            From above 2 bounds it, since nothing here grows faster than all pairs of positions.
    """
    points = sorted(point for point in points if point[1] > 0)
    if len(points) < 2:
        return None
    long = [point for point in points if point[0] >= _LONG]
    chosen = long if len(long) >= _FITTED else points[-_FITTED:]
    xs, ys = ([math.log(point[axis]) for point in chosen] for axis in (0, 1))
    exponent = min(max(statistics.linear_regression(xs, ys).slope, least), 2)
    # Whatever the exponent, the line that fits best goes through the mean of the points.
    return math.exp(statistics.fmean(ys) + exponent * (math.log(at) - statistics.fmean(xs)))
