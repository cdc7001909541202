"""What was measured of each series of lengths, and what it predicts for another length."""

from benchmarks.cases import Case, Contender, least_exponent, power_law
from lra.efficiency import CostRow

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
