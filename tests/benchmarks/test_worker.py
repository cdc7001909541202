"""What a contender's process answers, with a program and a clock that only pretend."""

import types

import pytest

from benchmarks import memory, programs, worker
from benchmarks.cases import Case
from benchmarks.schedule import Limits, Schedule
from tests.benchmarks.fake_worker import LINEAR

COLD, WARM, SETTLING = 3.0, 0.001, 0.3  # seconds of the first call, of others, of measuring memory


class PretendProgram:
    """Takes COLD seconds of the clock at first, then WARM."""

    argument_bytes = 1000

    def __init__(self, clock):
        self.clock, self.calls, self.kept = clock, 0, 0
        self.analysis = {"memory": 5000}

    def run(self):
        self.calls += 1
        self.kept = 1000  # of what it returns
        self.clock.now += WARM if self.calls > 1 else COLD

    def forget(self):
        self.kept = 0

    def device_peak(self, since=None):
        return 100 if since is None else since + 10 * self.calls


@pytest.fixture
def make_handler(monkeypatch):
    """A function from a platform to a handler whose memory takes SETTLING seconds to measure."""
    clock = types.SimpleNamespace(now=0.0)
    program = PretendProgram(clock)

    def growth_in(call):
        clock.now += SETTLING
        before = program.kept
        call()
        return 234 + program.kept - before

    def make(platform):
        monkeypatch.setattr(worker, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
        monkeypatch.setattr(memory, "bound_to", lambda extra: None)
        monkeypatch.setattr(memory, "growth_in", growth_in)
        monkeypatch.setattr(programs, "configure", lambda *settings: None)
        monkeypatch.setattr(programs, "check", lambda contender, case: None)
        monkeypatch.setattr(programs, "platform", lambda: platform)
        monkeypatch.setattr(programs, "build", lambda contender, case: program)
        handler = worker.Contending(LINEAR, None, "float32")
        handler.prepare(None)
        return handler

    return make


def test_the_time_of_a_call_is_that_of_a_warm_call_alone(make_handler):
    answer = make_handler("cpu").first()
    assert answer == {"seconds": pytest.approx(WARM), "process_memory": 2234}


def test_the_growth_of_the_process_is_measured_on_a_cpu_only(make_handler, monkeypatch):
    handler = make_handler("gpu")
    monkeypatch.delattr(memory, "growth_in")
    assert handler.first() == {"seconds": pytest.approx(WARM), "device_memory": 120}


def test_a_short_call_is_repeated_within_its_turns(make_handler):
    handler = make_handler("cpu")
    process = types.SimpleNamespace(ask=handler)
    ceilings = {"float32": {"flops_per_second": 1e9, "bytes_per_second": 1e8}}
    limits = Limits(repeats=3, max_seconds=100.0, fill_seconds=1.0, memory=10**9)
    schedule = Schedule({"linear": process}, limits, {"device": "", "run": "0"}, ceilings, "cpu")
    sizes = {"length": 512, "batch": 1, "dim": 64, "heads": 2, "dtype": "float32"}
    case = Case(benchmark="module", mode="forward", **sizes)
    (row,) = schedule.rows([LINEAR], case)
    assert (row.seconds, row.repeats) == (pytest.approx(WARM), 15)


def echo():
    """Answer with the request."""
    return lambda request: request


def test_a_process_that_was_killed_while_it_waited_is_said_and_another_started():
    one = worker.Worker(echo)
    assert one.ask("hello") == "hello"
    one._process.kill()
    one._process.join()
    with pytest.raises(worker.WorkerError, match="killed by the operating system") as raised:
        one.ask("hello")
    assert raised.value.kind == "out_of_memory"
    assert one.ask("again") == "again"
    one.close()
