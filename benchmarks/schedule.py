"""Cost rows of contenders, measured in turns case by case, or predicted if too expensive."""

import dataclasses
import statistics

from benchmarks.cases import Case, Contender
from benchmarks.measured import Measured
from benchmarks.memory_figures import estimate_fields, filling_batch, largest_batch, memory_fields
from benchmarks.worker import Worker, WorkerError
from lra.efficiency import CostRow

# A call that takes fewer seconds than `_SHORT` is repeated within a turn.
_SHORT = 0.05
_CALLS_IF_SHORT = 5
# Maximum number of calls before the timed turns.
_FIRST_CALLS = 3
# Batches from whose difference the memory of an example is taken if that of 1 and 2 is unreliable.
_LARGER_BATCHES = (4, 8)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of measuring.

    Attributes:
        repeats: Number of timed turns.
        max_seconds: Maximum seconds of one contender's case, warm-up and repeats together.
        fill_seconds: Seconds that a call with a filled batch should take.
        memory: Bytes that count as fitting.
    """

    repeats: int
    max_seconds: float
    fill_seconds: float
    memory: int


@dataclasses.dataclass
class _Measurement:
    """A contender's case that is ready for timing, with answers to `first` and `prepare`."""

    contender: Contender
    case: Case
    first: dict
    analysis: dict
    seconds: list[float] = dataclasses.field(default_factory=list)


class _Failure(Exception):
    """Raised if trying a batch failed; `row` records why."""

    def __init__(self, row: CostRow):
        super().__init__(row.note)
        self.row = row


class Schedule:
    """Measures cases; within each, contenders take turns.

    Args:
        workers: Workers by label of their contender.
        limits: Limits of measuring.
        facts: Fields that all rows of the run share.
        ceilings: Peak `flops_per_second` and `bytes_per_second` of the device, by dtype.
        platform: `cpu`, `gpu` or `tpu`.
    """

    def __init__(
        self, workers: dict[str, Worker], limits: Limits, facts: dict, ceilings: dict, platform: str
    ):
        self._workers, self._limits = workers, limits
        self._facts, self._ceilings, self._platform = facts, ceilings, platform
        self._measured = Measured()

    def rows(self, contenders: list[Contender], case: Case) -> list[CostRow]:
        """Measure one case with every contender; return a row for each."""
        begin = self._begin_filled if case.filled else self._begin
        rows: dict[str, CostRow] = {}
        waiting: list[_Measurement] = []
        for contender in contenders:
            result = begin(contender, case)
            if isinstance(result, CostRow):
                rows[contender.label] = result
            elif self._is_large(result, len(contenders)):
                # Timed at once, as its process occupies much of the device's memory.
                rows[contender.label] = self._in_turns([result])[0]
                self._workers[contender.label].close()
            else:
                waiting.append(result)
        for measurement, row in zip(waiting, self._in_turns(waiting), strict=True):
            rows[measurement.contender.label] = row
        for row in rows.values():
            self._measured.remember(row)
        return [rows[contender.label] for contender in contenders]

    def _begin(self, contender: Contender, case: Case) -> CostRow | _Measurement:
        """Compile and first run a case; return a row instead if there is nothing to time."""
        worker, predicted = self._workers[contender.label], self._measured.memory(contender, case)
        analysis = {}
        try:
            worker.ask("check", case=case)
            # What XLA needs is better known from the analysis of this case.
            if predicted and predicted[1] != "xla" and predicted[0] > self._limits.memory:
                return self._too_large(contender, case, *predicted)
            analysis = worker.ask("prepare", case=case)
            needed = analysis.get("memory")
            if needed and needed > self._limits.memory:
                return self._too_large(contender, case, needed, "xla")
            seconds = self._measured.seconds(contender, case, analysis.get("flops"))
            if seconds and self._total_seconds(seconds) > self._limits.max_seconds:
                return self._extrapolated(contender, case, seconds, analysis, predicted)
            first = worker.ask("first")
        except WorkerError as error:
            return self._failed(contender, case, error, estimate_fields(analysis, predicted))
        fields = memory_fields(analysis, first)
        if (taken := 1e6 * fields.get("peak_memory_mb", 0)) > self._limits.memory:
            return self._too_large(contender, case, taken, fields["memory_source"])
        return _Measurement(contender, case, first, analysis)

    def _begin_filled(self, contender: Contender, case: Case) -> CostRow | _Measurement:
        """Like `_begin`, with a batch that fills the device, chosen from the row with batch 1.

        A batch that runs but takes more than the limit is tried again smaller; one that fails to
        run is out of memory.
        """
        one = self._measured.of_one(contender, case)
        if one.status in ("unsupported", "out_of_memory") or one.seconds is None:
            return dataclasses.replace(one, filled=True)
        if one.peak_memory_mb is None:
            note = "what a batch needs cannot be told on this system"
            return dataclasses.replace(one, filled=True, note=note)
        first, memory = one.peak_memory_mb * 1e6, self._limits.memory
        if one.status == "extrapolated" and first > memory:  # not even one example fits
            return self._too_large(contender, case, first, one.memory_source)
        try:
            each = self._memory_of_another(contender, case, one)
        except _Failure as failure:
            if failure.row.status != "out_of_memory":
                return failure.row
            each = first  # an upper bound
        # Contenders that wait for their turns may hold half of a device's memory (`_is_large`).
        usable, target = (
            memory if self._platform == "cpu" else memory / 2,
            self._limits.fill_seconds,
        )
        batch = filling_batch(one.seconds, largest_batch(usable, first, each), target)
        while batch > 1 and one.status != "extrapolated":
            filled = dataclasses.replace(case, batch=batch)
            predicted = first + (batch - 1) * each, one.memory_source
            try:
                analysis, first_call = self._try(contender, filled, predicted, always=True)
            except _Failure as failure:
                return failure.row
            # Operations whose memory XLA does not see may occur only in large batches.
            peak = memory_fields(analysis, first_call)["peak_memory_mb"] * 1e6
            each = max(each, (peak - first) / (batch - 1))
            largest = largest_batch(memory, first, each)
            if batch <= largest:
                analysis |= {"largest_batch": largest}
                return _Measurement(contender, filled, first_call, analysis)
            batch = filling_batch(one.seconds, largest_batch(usable, first, each), target)
        largest = largest_batch(memory, first, each)
        return dataclasses.replace(one, filled=True, largest_batch=largest)

    def _try(
        self, contender: Contender, case: Case, predicted: tuple[float, str], *, always: bool
    ) -> tuple[dict, dict]:
        """Compile a batch and call it; return its analysis and first call, {} if not called.

        It is called if `always`, otherwise only on a CPU and if its memory fits.

        Raises:
            _Failure: If that failed, with the row to record.
        """
        worker, analysis = self._workers[contender.label], {}
        try:
            analysis = worker.ask("prepare", case=case)
            cpu, limit = self._platform == "cpu", self._limits.memory
            runs = always or (cpu and analysis["memory"] <= limit)
            return analysis, worker.ask("first") if runs else {}
        except WorkerError as error:
            estimate = estimate_fields(analysis, predicted)
            raise _Failure(self._failed(contender, case, error, estimate)) from error

    def _memory_of_another(self, contender: Contender, case: Case, one: CostRow) -> float:
        """Return the bytes that one more example needs than `one`, the row with batch 1.

        That is the difference between batches 1 and 2, unless it is less than the example's arrays
        (their programs may differ in other ways) or memory is that of the process: then it is taken
        from batches 4 and 8. It is at least the example's arguments and outputs.
        """
        first = one.peak_memory_mb * 1e6
        if contender.framework == "torch":
            return first  # an upper bound
        if one.status == "extrapolated" and self._platform == "cpu":  # takes too long to run
            return self._measured.memory_of_another(contender, case) or first
        two, source = self._memory_of(contender, case, 2, one)
        each = two - first
        if each < case.example_bytes or source == "process":
            fewer, more = _LARGER_BATCHES
            low, high = (self._memory_of(contender, case, n, one)[0] for n in (fewer, more))
            each = (high - low) / (more - fewer)
        each = max(each, case.example_bytes)
        self._measured.remember_another(contender, case, each)
        return each

    def _memory_of(
        self, contender: Contender, case: Case, batch: int, one: CostRow
    ) -> tuple[float, str]:
        """Return the bytes that a batch needs, and how they were measured.

        On a CPU it is run too, since XLA's analysis does not see all memory there.
        """
        upper_bound = batch * one.peak_memory_mb * 1e6, one.memory_source
        sizes = dataclasses.replace(case, batch=batch)
        fields = memory_fields(*self._try(contender, sizes, upper_bound, always=False))
        return fields["peak_memory_mb"] * 1e6, fields["memory_source"]

    def _total_seconds(self, seconds: float) -> float:
        """Return the seconds that a whole case takes if one call takes `seconds`."""
        return seconds * (self._limits.repeats + _FIRST_CALLS)

    def _in_turns(self, measurements: list[_Measurement]) -> list[CostRow]:
        """Time measurements in turns; return a row for each."""
        failed: dict[int, CostRow] = {}
        for turn in range(self._limits.repeats):
            for index, measurement in enumerate(measurements):
                seconds = measurement.first["seconds"]
                # A call that is slower than predicted gets fewer turns.
                if index in failed or (turn and turn * seconds > self._limits.max_seconds):
                    continue
                calls = _CALLS_IF_SHORT if seconds < _SHORT else 1
                worker = self._workers[measurement.contender.label]
                try:
                    answer = worker.ask("time", calls=calls)
                    measurement.seconds += answer["seconds"]
                except WorkerError as error:
                    contender, case = measurement.contender, measurement.case
                    fields = memory_fields(measurement.analysis, measurement.first)
                    failed[index] = self._failed(contender, case, error, fields)
        return [failed.get(index) or self._timed_row(m) for index, m in enumerate(measurements)]

    def _timed_row(self, measurement: _Measurement) -> CostRow:
        analysis, first, seconds = measurement.analysis, measurement.first, measurement.seconds
        median = statistics.median(seconds) if seconds else None
        flops, moved = analysis.get("flops"), analysis.get("bytes_accessed")
        ceilings = self._ceilings[measurement.case.dtype]
        return self._row(
            measurement.contender,
            measurement.case,
            status="ok",
            seconds=median,
            seconds_min=min(seconds, default=None),
            seconds_max=max(seconds, default=None),
            repeats=len(seconds),
            flops=flops,
            bytes_accessed=moved,
            flops_per_second=flops / median if flops and median else None,
            bytes_per_second=moved / median if moved and median else None,
            peak_flops_per_second=ceilings["flops_per_second"],
            peak_bytes_per_second=ceilings["bytes_per_second"],
            parts=analysis.get("parts"),
            largest_batch=analysis.get("largest_batch"),
            **memory_fields(analysis, first),
        )

    def _too_large(self, contender, case, needed: float, source: str) -> CostRow:
        limit = self._limits.memory
        note = f"needs about {needed / 1e6:,.1f} MB of {limit / 1e6:,.1f}"
        estimate = {"peak_memory_mb": needed / 1e6, "memory_source": source}
        return self._row(contender, case, status="out_of_memory", note=note, **estimate)

    def _extrapolated(self, contender, case, seconds: float, analysis, predicted) -> CostRow:
        fields = memory_fields(analysis, {}) | estimate_fields(analysis, predicted)
        flops, moved = analysis.get("flops"), analysis.get("bytes_accessed")
        fields |= {"flops": flops, "bytes_accessed": moved, "parts": analysis.get("parts")}
        total = f"{self._total_seconds(seconds):,.0f} s in all"
        note = f"from shorter lengths: {total} is more than {self._limits.max_seconds:g}"
        row = {"status": "extrapolated", "seconds": seconds, "note": note}
        return self._row(contender, case, **row, **fields)

    def _failed(self, contender, case, error: WorkerError, estimate: dict) -> CostRow:
        fields = estimate if error.kind == "out_of_memory" else {}
        return self._row(contender, case, status=error.kind, note=str(error), **fields)

    def _row(self, contender: Contender, case: Case, **values) -> CostRow:
        sizes = dataclasses.asdict(case) | {"head_dim": case.head_dim}
        return CostRow(
            method=contender.method,
            options=contender.options,
            label=contender.label,
            source=contender.source,
            memory_limit_mb=self._limits.memory / 1e6,
            **sizes,
            **self._facts,
            **values,
        )

    def _is_large(self, measurement: _Measurement, contenders: int) -> bool:
        if self._platform == "cpu":
            return False
        needed = measurement.analysis.get("memory") or measurement.first.get("device_memory") or 0
        return needed > self._limits.memory / (2 * contenders)
