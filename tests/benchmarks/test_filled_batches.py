"""Batches that fill the memory, and the largest that fits in it."""

import pytest

from tests.benchmarks.fake_worker import LINEAR, PEER, STANDARD, FakeWorker, case, rows_of


def test_no_batch_is_filled_where_memory_is_unknown():
    worker = FakeWorker(lambda c: 0.1, lambda c: None, analysed=False)
    one, filled = rows_of(worker, PEER, [case(512), case(512, filled=True)])
    assert (one.status, one.peak_memory_mb) == ("ok", None)
    assert (filled.batch, filled.filled, filled.seconds) == (1, True, one.seconds)
    assert "cannot be told" in filled.note


def test_a_filled_batch_is_bounded_by_memory_and_time():
    worker = FakeWorker(lambda c: 0.01 * c.batch, lambda c: 1e6 + 4e7 * c.batch)
    one, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    assert (one.batch, one.filled, one.largest_batch) == (1, False, None)
    assert (filled.batch, filled.filled, filled.largest_batch) == (16, True, 24)
    assert filled.seconds == pytest.approx(0.16)
    (_, filled) = rows_of(worker, LINEAR, [case(512), case(512, filled=True)], fill_seconds=0.05)
    assert (filled.batch, filled.largest_batch) == (4, 24)


def test_a_filled_batch_leaves_the_half_of_a_device_that_others_may_hold():
    worker = FakeWorker(lambda c: 1e-4 * c.batch, lambda c: 1e6 + 4e7 * c.batch)
    cases = [case(512), case(512, filled=True)]
    on_cpu, on_gpu = (
        rows_of(worker, LINEAR, cases, platform=platform)[1] for platform in ("cpu", "gpu")
    )
    assert (on_cpu.batch, on_cpu.largest_batch) == (16, 24)
    assert (on_gpu.batch, on_gpu.largest_batch) == (8, 24)
    assert worker.memory(on_gpu) <= 10**9 / 2


@pytest.mark.parametrize(("unseen", "source"), [(0, "xla"), (0.1, "xla"), (0.3, "process")])
def test_memory_that_the_analysis_misses_by_far_is_that_of_the_process(unseen, source):
    def memory(c):
        return 1e6 + 1e8 * c.batch * (c.length / 512) ** 2

    worker = FakeWorker(lambda c: 1e-5 * c.length**2, memory, unseen=unseen)
    cases = [case(n, filled=filled) for n in (256, 512, 1024) for filled in (False, True)]
    rows = rows_of(worker, STANDARD, cases, max_seconds=50)
    seen = 1 - (unseen if source == "xla" else 0)
    assert {row.memory_source for row in rows[:4]} == {source}
    assert rows[2].peak_memory_mb == pytest.approx(101 * seen)
    # The last is too long to be run: what an example needs follows from shorter lengths.
    assert [row.status for row in rows] == ["ok"] * 4 + ["extrapolated"] * 2
    assert rows[4].memory_source == source
    assert rows[4].peak_memory_mb == pytest.approx(401 * seen, rel=0.03)  # fitted
    assert rows[3].largest_batch == int((1e9 / seen - 1e6) / 1e8)
    assert rows[5].largest_batch == int((1e9 / seen - 1e6) / 4e8)
    assert ("first", 1024, 2) not in worker.log


def test_a_filled_batch_that_turns_out_too_large_is_tried_again_smaller():
    """As where softmax and products become one operation from some batch on."""
    worker = FakeWorker(lambda c: 0.01 * c.batch, lambda c: 1e6 + 4e7 * c.batch)
    worker.memory = lambda c: 1e6 + (1e7 if c.batch < 8 else 4e7) * c.batch
    _, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    tried = [batch for command, _, batch in worker.log if command == "first"]
    assert tried[-2:] == [64, 16]
    another = (1e6 + 16 * 4e7 - 1.1e7) / 15
    assert (filled.batch, filled.largest_batch) == (16, 1 + int((1e9 - 1.1e7) / another))
    assert filled.peak_memory_mb <= 1000


def test_no_batch_fits_where_one_example_is_predicted_not_to():
    worker = FakeWorker(lambda c: c.length**2 * 1e-5, lambda c: c.length**2 * 3e2)
    # Of a process that XLA's analysis has not seen: it would have been refused before.
    worker.unseen = 0.9
    cases = [case(n, filled=filled) for n in (512, 1024, 2048) for filled in (False, True)]
    rows = rows_of(worker, STANDARD, cases, max_seconds=50)
    assert [row.status for row in rows] == ["ok"] * 4 + ["out_of_memory"] * 2
    assert rows[4].peak_memory_mb == rows[5].peak_memory_mb == pytest.approx(300 * 2.048**2)
    assert rows[5].largest_batch is None


EXAMPLE = 2 * 512 * 64 * 4  # input and output


@pytest.mark.parametrize("lost", [EXAMPLE, 2 * EXAMPLE, 9 * EXAMPLE / 10])
def test_larger_batches_tell_what_an_example_needs_where_two_take_no_more_than_one(lost):
    worker = FakeWorker(
        lambda c: 0.01, lambda c: 1e6 + EXAMPLE * c.batch * 1.5 - (c.batch > 1) * lost * 1.5
    )
    _, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    first = 1e6 + 1.5 * EXAMPLE
    assert filled.largest_batch == 1 + int((10**9 - first) / (1.5 * EXAMPLE))
    assert ("prepare", 512, 8) in worker.log


@pytest.mark.parametrize("slope", [0, -1000])
def test_an_example_needs_at_least_its_input_and_output(slope):
    worker = FakeWorker(lambda c: 0.01, lambda c: 1e7 + slope * c.batch)
    _, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    assert filled.largest_batch == 1 + int((10**9 - 1e7 - slope) / EXAMPLE)


def test_larger_batches_tell_what_an_example_needs_of_a_process():
    """Whose growth from one example to two tells little."""
    worker = FakeWorker(lambda c: 1.0, lambda c: 1e8 + 1e7 * c.batch + 2e8 * (c.batch == 2))
    worker.unseen = 0.9
    _, filled = rows_of(worker, LINEAR, [case(512), case(512, filled=True)])
    assert filled.memory_source == "process"
    assert filled.largest_batch == 1 + int((1e9 - 1.1e8) / 1e7)
