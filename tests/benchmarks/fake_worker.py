"""A stand-in for the processes of `benchmarks.speed_memory`, and what a schedule makes of it."""

from benchmarks.cases import OURS, Case, Contender
from benchmarks.schedule import Limits, Schedule
from benchmarks.worker import WorkerError
from lra.efficiency import to_json

PEAK = {"flops_per_second": 1e9, "bytes_per_second": 1e8}
LINEAR = Contender("linear", {}, OURS, "linear")
STANDARD = Contender("standard", {}, OURS, "standard")
PEER = Contender("standard", {}, "torch plain", "standard (torch plain)")


class FakeWorker:
    """Takes `seconds(case)` and `memory(case)` bytes; XLA knows the latter if `analysed`.

    A share `unseen` of them XLA does not know. It counts `flops(case)` if there is such a function.
    """

    def __init__(
        self,
        seconds,
        memory,
        *,
        flops=lambda case: None,
        analysed=True,
        unseen=0,
        parts=None,
        log=None,
        errors=(),
    ):
        self.seconds, self.memory, self.analysed, self.unseen = seconds, memory, analysed, unseen
        self.flops, self.parts = flops, parts
        self.log = [] if log is None else log
        self.errors = dict(errors)
        self.case = None

    def ask(self, command, case=None, **arguments):
        self.case = case or self.case
        self.log.append((command, self.case.length, self.case.batch))
        error = self.errors.get((command, self.case.length))
        if error:
            raise WorkerError(*error)
        if command == "prepare":
            if not self.analysed:
                return {}
            memory = self.memory(self.case) * (1 - self.unseen)
            counted = {"flops": self.flops(self.case), "bytes_accessed": 1e5}
            return {"memory": memory, "parts": self.parts} | counted
        if command == "first":
            memory = self.memory(self.case)
            return {"seconds": self.seconds(self.case), "process_memory": memory}
        if command == "time":
            return {"seconds": [self.seconds(self.case)] * arguments["calls"]}
        return {}

    def close(self):
        pass


class WorkerHere:
    """Answers in the process that asks."""

    def __init__(self, make, *arguments, environment=None):
        self.ask = make(*arguments)

    def start(self):
        pass

    def close(self):
        pass


def case(length, **values):
    sizes = {"batch": 1, "dim": 64, "heads": 2, "dtype": "float32"}
    return Case(benchmark="module", mode="forward", length=length, **(sizes | values))


def schedule(workers, *, platform="cpu", **limits):
    bounds = {"repeats": 3, "max_seconds": 100.0, "fill_seconds": 1.0, "memory": 10**9}
    facts = {"device": "a device", "run": "0"}
    return Schedule(workers, Limits(**(bounds | limits)), facts, {"float32": PEAK}, platform)


def rows_of(worker, contender, cases, **limits):
    run = schedule({contender.label: worker}, **limits)
    rows = [run.rows([contender], each)[0] for each in cases]
    for row in rows:
        to_json(row)  # valid
    return rows
