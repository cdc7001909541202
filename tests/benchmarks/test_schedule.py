"""Turns, predictions and failures, with processes that only pretend."""

import dataclasses

import pytest

from benchmarks.cases import OURS, Contender
from tests.benchmarks.fake_worker import LINEAR, PEER, STANDARD, FakeWorker, case, rows_of, schedule

KILLED = ("out_of_memory", "killed by the operating system")
LINEAR_PEER = Contender("linformer", {}, "linformer", "linformer-256 (linformer)")


def test_contenders_take_turns_and_rows_keep_their_order():
    log = []
    workers = {
        name: FakeWorker(lambda c: 0.2, lambda c: 1e6, log=log) for name in ("linear", "standard")
    }
    names = iter(["linear", "standard"] * 3)
    for name, worker in workers.items():
        worker.ask = lambda command, ask=worker.ask, name=name, **rest: (
            (log.append(name) if command == "time" else None) or ask(command, **rest)
        )
    rows = schedule(workers).rows([LINEAR, STANDARD], case(512))
    assert [entry for entry in log if isinstance(entry, str)] == list(names)
    assert [row.label for row in rows] == ["linear", "standard"]


def test_a_row_has_the_median_and_its_shares_of_the_ceilings():
    worker = FakeWorker(lambda c: 0.01, lambda c: 2e6, flops=lambda c: 1e6)
    (row,) = rows_of(worker, LINEAR, [case(512)])
    assert row.status == "ok"
    assert (row.seconds, row.repeats) == (0.01, 15)  # short calls, five in each turn
    assert row.flops_per_second == pytest.approx(1e8)
    assert row.bytes_per_second == pytest.approx(1e7)
    assert (row.peak_flops_per_second, row.peak_bytes_per_second) == (1e9, 1e8)
    assert (row.peak_memory_mb, row.memory_source, row.process_memory_mb) == (2.0, "xla", 2.0)


def test_what_would_take_too_long_is_extrapolated_with_exact_memory():
    worker = FakeWorker(lambda c: 1e-6 * c.length**2, lambda c: 100 * c.length)
    rows = rows_of(worker, STANDARD, [case(n) for n in (512, 1024, 8192)])
    assert [row.status for row in rows] == ["ok", "ok", "extrapolated"]
    assert rows[2].seconds == pytest.approx(1e-6 * 8192**2)
    assert (rows[2].peak_memory_mb, rows[2].memory_source) == (0.8192, "xla")
    assert ("first", 8192, 1) not in worker.log


def test_rows_say_in_how_many_parts_a_batch_was_taken():
    worker = FakeWorker(lambda c: 1e-6 * c.length**2, lambda c: 1e6, parts=8)
    rows = rows_of(worker, STANDARD, [case(n) for n in (512, 1024, 8192)])
    assert [row.status for row in rows] == ["ok", "ok", "extrapolated"]
    assert [row.parts for row in rows] == [8, 8, 8]


def test_what_is_extrapolated_grows_as_its_method_must():
    worker = FakeWorker(lambda c: 1e-3 * c.length, lambda c: 100 * c.length)
    lengths = [case(n) for n in (1024, 2048, 4096, 65536)]
    exact, linear = (
        rows_of(worker, each, lengths, max_seconds=100)[3] for each in (STANDARD, LINEAR)
    )
    assert exact.seconds == pytest.approx(4.096 * (65536 / 4096) ** 2)
    assert linear.seconds == pytest.approx(1e-3 * 65536)


def test_what_is_extrapolated_grows_as_its_flops():
    worker = FakeWorker(lambda c: 1e-3 * c.length, lambda c: 1e6, flops=lambda c: 7 * c.length**1.5)
    lengths = [case(n) for n in (1024, 2048, 65536)]
    row = rows_of(worker, STANDARD, lengths, max_seconds=100)[2]
    assert (row.status, row.seconds) == ("extrapolated", pytest.approx(2.048 * 32**1.5))


def test_what_does_not_fit_is_recorded_with_its_estimate_and_the_rest_goes_on():
    worker = FakeWorker(lambda c: 0.1, lambda c: 1000 * c.length**2)
    rows = rows_of(worker, STANDARD, [case(n) for n in (512, 1024, 2048)])
    assert [row.status for row in rows] == ["ok", "out_of_memory", "out_of_memory"]
    assert rows[1].peak_memory_mb == pytest.approx(1000 * 1024**2 / 1e6)
    assert "1,048.6 MB of 1,000.0" in rows[1].note
    assert ("first", 1024, 1) not in worker.log


def test_what_takes_more_than_the_limit_does_not_fit_though_the_analysis_says_so():
    worker = FakeWorker(lambda c: 0.1, lambda c: 1000 * c.length**2, unseen=0.9)
    scores = Contender("standard", {"implementation": "xla"}, OURS, "standard")
    rows = rows_of(worker, scores, [case(n) for n in (512, 1024, 2048)])
    assert [row.status for row in rows] == ["ok", "out_of_memory", "out_of_memory"]
    assert rows[2].memory_source == "process"
    assert rows[2].peak_memory_mb == pytest.approx(1000 * 2048**2 / 1e6)
    assert ("first", 2048, 1) not in worker.log


def test_a_peers_memory_is_predicted_from_shorter_lengths():
    worker = FakeWorker(lambda c: 0.1, lambda c: 100 * c.length**2, analysed=False)
    rows = rows_of(worker, PEER, [case(n) for n in (1024, 2048, 4096)])
    assert [row.status for row in rows] == ["ok", "ok", "out_of_memory"]
    assert rows[2].peak_memory_mb == pytest.approx(100 * 4096**2 / 1e6)
    assert rows[2].memory_source == "process"
    assert ("prepare", 4096, 1) not in worker.log


def test_a_peer_that_fails_at_its_second_length_has_an_estimate_from_its_first():
    errors = {("first", 2048): KILLED}
    worker = FakeWorker(lambda c: 0.1, lambda c: 1e5 * c.length, analysed=False, errors=errors)
    rows = rows_of(worker, PEER, [case(n) for n in (1024, 2048)])
    assert [row.status for row in rows] == ["ok", "out_of_memory"]
    assert rows[1].peak_memory_mb == pytest.approx(409.6)  # the scores are of all pairs


def fixed_tokens(length):
    return dataclasses.replace(case(length, batch=8192 // length), benchmark="fixed_tokens")


def test_with_a_fixed_number_of_tokens_the_memory_of_a_peer_is_that_of_its_first_length():
    """Else 0.4 of the limit at 512 positions would be 6.4 of it at 8,192, which is never run."""
    worker = FakeWorker(lambda c: 0.1, lambda c: 4e8, analysed=False)
    rows = rows_of(worker, LINEAR_PEER, [fixed_tokens(n) for n in (512, 8192, 4096)])
    assert [row.status for row in rows] == ["ok"] * 3


def test_with_a_fixed_number_of_tokens_exact_attention_still_grows_with_the_length():
    worker = FakeWorker(lambda c: 0.1, lambda c: 4e5 * c.length, analysed=False)
    rows = rows_of(worker, PEER, [fixed_tokens(n) for n in (512, 4096)])
    assert [row.status for row in rows] == ["ok", "out_of_memory"]
    assert rows[1].peak_memory_mb == pytest.approx(4e5 * 4096 / 1e6)
    assert ("prepare", 4096, 2) not in worker.log


def test_what_fails_while_its_arguments_are_made_has_the_estimate_of_its_program():
    errors = {("first", 512): KILLED}
    (row,) = rows_of(FakeWorker(lambda c: 0.1, lambda c: 1e6, errors=errors), LINEAR, [case(512)])
    assert (row.status, row.peak_memory_mb, row.memory_source) == ("out_of_memory", 1, "xla")


@pytest.mark.parametrize("command", ["prepare", "first", "time"])
def test_a_process_that_is_killed_is_out_of_memory_with_its_estimate(command):
    worker = FakeWorker(lambda c: 0.1, lambda c: 1e3 * c.length, errors={(command, 1024): KILLED})
    rows = rows_of(worker, STANDARD, [case(n) for n in (512, 1024, 2048)])
    assert [row.status for row in rows] == ["ok", "out_of_memory", "ok"]
    assert rows[1].note == "killed by the operating system"
    assert (rows[1].peak_memory_mb, rows[1].memory_source) == (pytest.approx(1.024), "xla")


@pytest.mark.parametrize("command", ["first", "time"])
def test_the_estimate_of_what_fails_counts_what_the_analysis_misses(command):
    worker = FakeWorker(
        lambda c: 0.1, lambda c: 1e5 * c.length, unseen=0.3, errors={(command, 1024): KILLED}
    )
    rows = rows_of(worker, LINEAR, [case(n) for n in (512, 1024)])
    assert [row.status for row in rows] == ["ok", "out_of_memory"]
    assert (rows[1].peak_memory_mb, rows[1].memory_source) == (pytest.approx(102.4), "process")


@pytest.mark.parametrize(
    ("command", "batch", "status"),
    [
        *((command, 2, "ok") for command in ("prepare", "first")),
        *((command, 16, "out_of_memory") for command in ("prepare", "first", "time")),
    ],
)
def test_a_batch_that_is_killed_is_out_of_memory_with_its_estimate(command, batch, status):
    """Two examples tell what another needs, as little as the first at most; 16 fill memory."""

    class Killed(FakeWorker):
        def ask(self, name, case=None, **arguments):
            sizes = case or self.case
            self.errors = {(command, 512): KILLED} if sizes.batch == batch else {}
            return super().ask(name, case, **arguments)

    worker = Killed(lambda c: 0.01 * c.batch, lambda c: 4e7 * c.batch)
    one, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    assert (one.status, filled.status) == ("ok", status)
    assert (filled.filled, filled.batch) == (True, 16)
    assert (filled.peak_memory_mb, filled.memory_source) == (pytest.approx(40 * 16), "xla")
    assert filled.largest_batch == (25 if status == "ok" else None)


def test_a_length_that_one_method_refuses_is_unsupported():
    errors = {("check", 512): ("unsupported", "too short")}
    worker = FakeWorker(lambda c: 0.1, lambda c: 1e6, errors=errors)
    rows = rows_of(worker, LINEAR, [case(512), case(512, filled=True), case(1024)])
    assert [row.status for row in rows] == ["unsupported", "unsupported", "ok"]


def test_a_contender_that_keeps_a_devices_memory_does_not_wait_for_others():
    log = []

    class Closing(FakeWorker):
        def close(self):
            log.append("closed")

    workers = {
        "linear": FakeWorker(lambda c: 0.1, lambda c: 1e6, log=log),
        "standard": Closing(lambda c: 0.1, lambda c: 9e8, log=log),
    }
    rows = schedule(workers, platform="gpu").rows([STANDARD, LINEAR], case(512))
    assert [row.status for row in rows] == ["ok", "ok"]
    assert log.index("closed") < log.index(("prepare", 512, 1), log.index("closed"))


def test_the_time_of_a_row_is_the_median_of_its_turns_without_the_first_call():
    seconds = iter((9.0, 3.0, 1.0, 1.5))
    (row,) = rows_of(FakeWorker(lambda c: next(seconds), lambda c: 1e6), LINEAR, [case(512)])
    assert (row.seconds, row.seconds_min, row.seconds_max, row.repeats) == (1.5, 1.0, 3.0, 3)


def test_a_call_that_is_slower_than_predicted_gets_fewer_turns():
    worker = FakeWorker(lambda c: 40.0, lambda c: 1e6)
    (row,) = rows_of(worker, LINEAR, [case(512)], repeats=5)
    assert row.repeats == 3  # a fourth would begin after 120 seconds of 100


@pytest.mark.parametrize(("memory", "waits"), [(2e8, True), (3e8, False)])
def test_two_contenders_that_wait_hold_half_of_a_devices_memory(memory, waits):
    log = []

    class Closing(FakeWorker):
        def close(self):
            log.append("closed")

    workers = {name: Closing(lambda c: 0.1, lambda c: memory) for name in ("linear", "standard")}
    schedule(workers, platform="gpu").rows([STANDARD, LINEAR], case(512))
    assert bool(log) != waits
