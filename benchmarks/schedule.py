"""Runs contenders over cases in turns, predicts what would take too long, and makes rows."""

import dataclasses
import statistics

from benchmarks.cases import Case, Contender, filling_batch, least_exponent, power_law
from benchmarks.memory_figures import largest_batch, memory_fields
from benchmarks.worker import Worker, WorkerError
from lra.efficiency import CostRow

# A call shorter than this is repeated within a turn, after one that only warms caches up.
_SHORT = 0.05
_CALLS_OF_SHORT = 5
# Calls before the turns, at most.
_FIRST_CALLS = 3
# Batches that tell what an example needs where 1 and 2 do not.
_LARGER = (4, 8)


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much is measured: turns, the seconds of a case, of a filling call, and bytes."""

    repeats: int
    max_seconds: float
    fill_seconds: float
    memory: int


@dataclasses.dataclass
class _Measurement:
    """A contender in a case, ready for its turns."""

    contender: Contender
    case: Case
    first: dict
    analysis: dict
    seconds: list[float] = dataclasses.field(default_factory=list)


class Schedule:
    """Measures cases, the contenders taking turns in each.

    Args:
        workers: of each label.
        limits: see `Limits`.
        facts: fields that every row of the run has, `ceilings` by dtype aside.
        ceilings: per dtype `flops_per_second` and `bytes_per_second` of the device.
        platform: `cpu`, `gpu` or `tpu`.
    """

    def __init__(
        self, workers: dict[str, Worker], limits: Limits, facts: dict, ceilings: dict, platform: str
    ):
        self._workers, self._limits = workers, limits
        self._facts, self._ceilings, self._platform = facts, ceilings, platform
        # Per series of lengths: what was measured, [(length, value)].
        self._seconds: dict[tuple, list[tuple[float, float]]] = {}
        self._memory: dict[tuple, list[tuple[float, float]]] = {}
        self._of_one: dict[tuple, CostRow] = {}  # rows of batch 1, for filled cases
        self._of_another: dict[tuple, list[tuple[float, float]]] = {}  # bytes, as above

    def rows(self, contenders: list[Contender], case: Case) -> list[CostRow]:
        """Measures one case with every contender."""
        begin = self._begin_filled if case.filled else self._begin
        found: dict[str, CostRow] = {}
        waiting: list[_Measurement] = []
        for contender in contenders:
            result = begin(contender, case)
            if isinstance(result, CostRow):
                found[contender.label] = result
            elif self._is_large(result, len(contenders)):
                # Its process keeps the device's memory while it lives: it cannot wait for turns.
                found[contender.label] = self._in_turns([result])[0]
                self._workers[contender.label].close()
            else:
                waiting.append(result)
        for measurement, row in zip(waiting, self._in_turns(waiting), strict=True):
            found[measurement.contender.label] = row
        for row in found.values():
            self._remember(row)
        return [found[contender.label] for contender in contenders]

    def _begin(self, contender: Contender, case: Case) -> CostRow | _Measurement:
        """Prepares a case and runs it once; a row where there is nothing to time."""
        worker, key = self._workers[contender.label], _series(contender.label, case)
        memory = self._predicted_memory(contender, case)
        if contender.framework == "torch" and memory and memory > self._limits.memory:
            return self._too_large(contender, case, memory, self._peer_memory)
        try:
            worker.ask("check", case=dataclasses.asdict(case))
            analysis = worker.ask("prepare", case=dataclasses.asdict(case))
            needed = analysis.get("memory")
            if needed and needed > self._limits.memory:
                return self._too_large(contender, case, needed, "xla")
            memory = memory or needed
            least = least_exponent(contender.method, case.benchmark)
            seconds = power_law(self._seconds.get(key, []), case.length, least)
            if seconds and self._in_all(seconds) > self._limits.max_seconds:
                return self._extrapolated(contender, case, seconds, analysis, memory)
            first = worker.ask("first")
        except WorkerError as error:
            return self._failed(contender, case, error, memory)
        taken = first.get(f"{self._peer_memory}_memory")
        if contender.framework == "torch" and taken and taken > self._limits.memory:
            return self._too_large(contender, case, taken, self._peer_memory)
        return _Measurement(contender, case, first, analysis)

    def _predicted_memory(self, contender: Contender, case: Case) -> float | None:
        """Bytes by shorter lengths.

        By a single one as if memory grew with the length; with a fixed number of tokens only that
        of exact attention does.
        """
        known = self._memory.get(_series(contender.label, case), [])
        if len(known) == 1:
            length, memory = known[0]
            grows = case.benchmark != "fixed_tokens" or contender.method == "standard"
            return memory * max(1, case.length / length) if grows else memory
        return power_law(known, case.length)

    def _begin_filled(self, contender: Contender, case: Case) -> CostRow | _Measurement:
        """As `_begin` with a batch of the contender's own, from what batch 1 has shown."""
        one = self._of_one[_series(contender.label, case), case.length]
        if one.status in ("unsupported", "out_of_memory") or one.seconds is None:
            return dataclasses.replace(one, filled=True)
        if one.peak_memory_mb is None:
            note = "what a batch needs cannot be told on this system"
            return dataclasses.replace(one, filled=True, note=note)
        first, memory = one.peak_memory_mb * 1e6, self._limits.memory
        try:
            each = self._memory_of_another(contender, case, one)
        except WorkerError as error:
            return self._failed(contender, case, error, None)
        largest = largest_batch(memory, first, each)
        # The contenders that wait may hold together half of a device's memory, see `_is_large`.
        mine = largest_batch(memory if self._platform == "cpu" else memory / 2, first, each)
        batch = filling_batch(one.seconds, mine, self._limits.fill_seconds)
        if batch == 1 or one.status == "extrapolated":
            return dataclasses.replace(one, filled=True, largest_batch=largest)
        filled = dataclasses.replace(case, batch=batch)
        worker = self._workers[contender.label]
        try:
            analysis = worker.ask("prepare", case=dataclasses.asdict(filled))
            first = worker.ask("first")
        except WorkerError as error:
            return self._failed(contender, filled, error, None)
        return _Measurement(contender, filled, first, analysis | {"largest_batch": largest})

    def _memory_of_another(self, contender: Contender, case: Case, one: CostRow) -> float:
        """Bytes that an example more needs than `one`, the row of batch 1.

        At least those of its arguments and outputs. Programs for batches 1 and 2 may differ by
        other things than the example; where less is between them, or where the process tells, whose
        products take other ways with few examples, larger batches do.
        """
        first, known = one.peak_memory_mb * 1e6, self._of_another
        if contender.framework == "torch":
            return first  # at most
        key = _series(contender.label, case)
        if one.status == "extrapolated" and self._platform == "cpu":  # too long to be run
            return power_law(known.get(key, []), case.length) or first
        two, source = self._memory_of(contender, case, 2)
        another = two - first
        if another < case.example_bytes or source == "process":
            fewer, more = (self._memory_of(contender, case, batch)[0] for batch in _LARGER)
            another = (more - fewer) / (_LARGER[1] - _LARGER[0])
        another = max(another, case.example_bytes)
        known.setdefault(key, []).append((case.length, another))
        return another

    def _memory_of(self, contender: Contender, case: Case, batch: int) -> tuple[float, str]:
        """Bytes that a batch needs, and who says so.

        On a CPU it is run, for what XLA's analysis does not see.
        """
        worker = self._workers[contender.label]
        sizes = dataclasses.asdict(dataclasses.replace(case, batch=batch))
        analysis = worker.ask("prepare", case=sizes)
        runs = self._platform == "cpu" and analysis["memory"] <= self._limits.memory
        first = worker.ask("first") if runs else {}
        fields = memory_fields(analysis, first)
        return fields["peak_memory_mb"] * 1e6, fields["memory_source"]

    def _in_all(self, seconds: float) -> float:
        """Seconds of a case whose call takes `seconds`."""
        return seconds * (self._limits.repeats + _FIRST_CALLS)

    def _in_turns(self, measurements: list[_Measurement]) -> list[CostRow]:
        failed: dict[int, CostRow] = {}
        for turn in range(self._limits.repeats):
            for index, measurement in enumerate(measurements):
                seconds = measurement.first["seconds"]
                # One that is slower than predicted gets fewer turns.
                if index in failed or (turn and turn * seconds > self._limits.max_seconds):
                    continue
                calls = _CALLS_OF_SHORT if seconds < _SHORT else 1
                worker = self._workers[measurement.contender.label]
                try:
                    answer = worker.ask("time", calls=calls, warm=calls > 1)
                    measurement.seconds += answer["seconds"]
                except WorkerError as error:
                    contender, case = measurement.contender, measurement.case
                    failed[index] = self._failed(contender, case, error, None)
        return [failed.get(index) or self._timed(m) for index, m in enumerate(measurements)]

    def _timed(self, measurement: _Measurement) -> CostRow:
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

    def _extrapolated(self, contender, case, seconds: float, analysis, memory) -> CostRow:
        fields = memory_fields(analysis, {})
        if memory:  # as shorter lengths were measured, which counts what XLA does not see
            predicted = memory_fields(analysis, {f"{self._peer_memory}_memory": memory})
            fields |= {name: predicted[name] for name in ("peak_memory_mb", "memory_source")}
        flops, moved = analysis.get("flops"), analysis.get("bytes_accessed")
        fields |= {"flops": flops, "bytes_accessed": moved, "parts": analysis.get("parts")}
        total = f"{self._in_all(seconds):,.0f} s in all"
        note = f"from shorter lengths: {total} is more than {self._limits.max_seconds:g}"
        row = {"status": "extrapolated", "seconds": seconds, "note": note}
        return self._row(contender, case, **row, **fields)

    def _failed(self, contender, case, error: WorkerError, memory: float | None) -> CostRow:
        fields = {}
        if error.kind == "out_of_memory" and memory:
            fields = {"peak_memory_mb": memory / 1e6, "memory_source": self._peer_memory}
        return self._row(contender, case, status=error.kind, note=str(error), **fields)

    @property
    def _peer_memory(self) -> str:
        return "process" if self._platform == "cpu" else "device"

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

    def _remember(self, row: CostRow) -> None:
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

    def _is_large(self, measurement: _Measurement, contenders: int) -> bool:
        if self._platform == "cpu":
            return False
        needed = measurement.analysis.get("memory") or measurement.first.get("device_memory") or 0
        return needed > self._limits.memory / (2 * contenders)


def _series(label: str, case: Case | CostRow) -> tuple:
    """What a prediction is made within: all but the length, and the batch that follows from it."""
    batch = None if case.benchmark == "fixed_tokens" else case.batch
    return label, case.benchmark, case.mode, case.dtype, case.dim, batch
