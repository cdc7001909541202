"""Signals, budgets, kills and company: a sweep that stops anywhere goes on from there."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import filelock
import pytest

from lra import records
from lra.errors import UserError
from lra.row import key
from lra.sweep import child, launchers
from lra.sweep import place as places
from lra.sweep.budget import Budget
from lra.sweep.data import Data
from lra.sweep.failures import Failures
from lra.sweep.runner import Outcome, attempt
from lra.sweep.sweep_file import load_sweep
from tests.lra.sweep.place import ONE_RUN, Place, fake
from tests.waiting import wait_for


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_next_call_goes_on(place, number):
    sweep = place.start(nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    sweep.send_signal(number)
    assert sweep.wait(60) == 75
    assert {row.attention for row in place.rows()} == {"standard"}
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert place.starts()[2]["folder"] == place.starts()[1]["folder"]


STOPS = """
import os, pathlib, sys, time
from lra.stopping import STATUS_STOPPED, Stop
(folder,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--workdir=")]
with Stop() as stop:
    pathlib.Path(folder, "pid").write_text(str(os.getpid()))
    while not stop.before(0):
        time.sleep(0.02)
    time.sleep(0.5)
    pathlib.Path(folder, "saved").touch()
sys.exit(STATUS_STOPPED)
"""


@pytest.mark.parametrize("child_first", [True, False])
def test_a_signal_to_sweep_and_child_lets_the_child_save(place, child_first):
    place.file.write_text(ONE_RUN)
    sweep = place.start(train=(sys.executable, "-c", STOPS))
    wait_for(lambda: any(path.read_text() for path in place.workdir.glob("*/pid")))
    child = int(next(place.workdir.glob("*/pid")).read_text())
    for process in (child, sweep.pid) if child_first else (sweep.pid, child):
        os.kill(process, signal.SIGTERM)
    assert sweep.wait(60) == 75
    assert list(place.workdir.glob("*/saved"))


def test_a_signal_that_comes_before_the_child_is_passed_on_to_it():
    with child.ForwardSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        process = subprocess.Popen(["sleep", "9"])
        signals.to(process)
        assert process.wait() == -signal.SIGTERM
    assert signals.received == signal.SIGTERM


def test_the_budget_is_shared_and_a_small_rest_of_it_starts_nothing(place):
    assert place.run("--budget_minutes=1.001") == 75
    assert len(place.starts()) == 1
    (flag,) = [word for word in place.starts()[0]["argv"] if word.startswith("--budget_minutes")]
    assert 0.5 < float(flag.partition("=")[2]) <= 1.001


def test_a_budget_that_is_over_before_the_first_step_is_said(place, capsys):
    message = "standard, seeds 0 1: the budget was over before the first step: .* give it more"
    with pytest.raises(UserError, match=message):
        place.run("--budget_minutes=0.9", standard="slow")
    assert len(place.starts()) == 1
    assert not place.results.exists()


def test_a_budget_that_is_too_short_for_the_first_run_that_is_free_is_said(place):
    folder = place.workdir / load_sweep(str(place.file)).runs[0].folder("generated")
    folder.mkdir(parents=True)
    message = "nystrom num_landmarks=32, seeds 0 1: the budget was over before the first step: "
    with filelock.FileLock(folder / ".sweep.lock"), pytest.raises(UserError, match=message):
        place.run("--budget_minutes=0.9", nystrom="slow")
    assert len(place.starts()) == 1


def test_a_budget_that_was_enough_for_other_runs_is_none_that_is_too_short(place, capsys):
    assert place.run("--budget_minutes=2", nystrom="slow") == 75
    said = "nystrom num_landmarks=32, seeds 0 1: the budget was over before the first step: "
    assert said in capsys.readouterr().err
    assert [row.attention for row in place.rows()] == ["standard"] * 2


def test_a_budget_that_allows_some_steps_is_no_matter(place, capsys):
    place.file.write_text(ONE_RUN)
    for _ in range(2):
        assert place.run("--budget_minutes=2", standard="in parts") == 75
        assert "stopped before its end; the same command goes on" in capsys.readouterr().err
    # Nothing after the eighth step.
    with pytest.raises(UserError, match="over before the first step"):
        place.run("--budget_minutes=2", standard="slow")
    assert place.run("--budget_minutes=2", standard="in parts") == 0


def test_a_budget_that_allows_part_of_an_evaluation_is_no_matter(place, capsys):
    place.file.write_text(ONE_RUN)
    for _ in range(2):
        assert place.run("--budget_minutes=2", standard="evaluates") == 75
        assert "stopped before its end; the same command goes on" in capsys.readouterr().err
    assert place.run("--budget_minutes=2", standard="evaluates") == 0


def test_trainings_without_a_sweep_are_waited_for_once_within_the_budget(place, capsys):
    with contextlib.ExitStack() as stack:
        for run in load_sweep(str(place.file)).runs:
            folder = place.workdir / run.folder("generated")
            folder.mkdir(parents=True)
            stack.enter_context(filelock.FileLock(folder / ".lock"))
        start = time.monotonic()
        assert place.run("--budget_minutes=0.05") == 75
        assert time.monotonic() - start < 30  # as long as it waits without a budget
    said = capsys.readouterr().err
    assert said.count("for another train.py to end") == 1
    assert re.search("waiting up to [123] s", said)
    assert said.endswith("stopped: the time budget is used up\n")
    assert not place.starts()


def test_each_child_gets_what_those_before_it_have_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(10.0)
    assert budget.start() == 10.0
    now[0] += 240
    assert (budget.start(), budget.to_spare()) == (6.0, 5.0)


def test_patience_ends_once_and_never_behind_the_budget(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    endless, short = Budget(None), Budget(0.25)
    assert (endless.patience(), short.patience()) == (30.0, 15.0)
    now[0] += 10
    assert (endless.patience(), short.patience()) == (20.0, 5.0)
    now[0] += 90
    assert (endless.patience(), short.patience()) == (0.0, 0.0)


def test_a_full_disk_ends_the_sweep(place, monkeypatch):
    """It is no failure of the run, which had no room for a line in its log."""
    full = shutil.disk_usage(place.root)._replace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(UserError, match=r"no space left in .*listops-standard.*: free some"):
        place.run(standard="killed")
    assert len(place.starts()) == 1
    assert not place.results.exists()


def test_a_full_disk_is_found_in_the_midst_of_a_librarys_tracebacks():
    frames = '  File "/lib/orbax.py", line 1, in save\n' * 50
    output = (
        f"Future exception was never retrieved\n{frames}OSError: [Errno 28] No space left on device"
    )
    assert child.Ended(2, output + "\n" + frames, None).tells_of_a_full_disk
    for said in (
        "[Errno 122] Disk quota exceeded",
        "[Errno 27] File too large",
        "no space left in x",
    ):
        assert child.Ended(2, said, None).tells_of_a_full_disk
    assert not child.Ended(2, frames, None).tells_of_a_full_disk
    cache = "UserWarning: Error writing persistent compilation cache entry: No space left on device"
    for more in ("", "\nerror: step 100: NaN in layer 3"):
        assert not child.Ended(2, cache + more, None).tells_of_a_full_disk


def test_a_run_that_ends_in_spite_of_a_signal_is_done(place, monkeypatch, capsys):
    real = child.run

    def signalled(*arguments):
        return real(*arguments)._replace(stop_signal=signal.SIGTERM)

    monkeypatch.setattr(child, "run", signalled)
    monkeypatch.setattr(launchers, "_GRACE_SECONDS", 1e9)
    assert place.run() == 75  # and no other run is started
    assert len(place.starts()) == 1
    place.file.write_text(ONE_RUN)
    for run_all in (place.run, lambda: _job(place)()):
        place.results.unlink()
        shutil.rmtree(place.workdir)
        assert run_all() in (0, "done")  # without a wait to be requeued
        assert len(place.rows()) == 2


def _job(place):
    (run,) = load_sweep(str(place.file)).runs
    data = Data(str(place.root / "data"), {})
    there = places.Place(fake(), place.results, place.workdir, data)
    return launchers._Job(places.PlacedRun(run, there, "generated"), 10.0)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "no space left for a checkpoint in there; free some space",
            r"no space left in .*listops-standard.*: free some",
        ),
        (
            "JAX cannot be used here: it finds no device; unset it",
            r"^JAX cannot be used here: it finds no device; unset it$",
        ),
        (
            "F0101 00:00:00.0 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --xla_x",
            "Unknown flag in XLA_FLAGS: --xla_x",
        ),
    ],
)
def test_what_would_end_every_run_ends_the_sweep(place, monkeypatch, said, told):
    """The next one would start and end in the same way; no row says that any has failed."""
    ended = [child.Ended(2, f"step 7\nerror: {said}\n", None)]
    monkeypatch.setattr(child, "run", lambda *_: ended.pop())
    with pytest.raises(UserError, match=told):
        place.run()
    assert not ended
    assert not place.results.exists()


def test_a_child_that_was_stopped_without_a_budget_is_just_stopped(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="slow") == 75
    assert "stopped before its end; the same command goes on" in capsys.readouterr().err


def test_the_smallest_rest_of_a_budget_is_a_budget():
    run = load_sweep("configs/sweeps/quick.py").runs[0]
    place = places.Place((), pathlib.Path(), pathlib.Path(), Data("data", {}))
    assert "--budget_minutes=0.001" in place.command(run, "generated", 1e-5)


def test_a_child_that_stops_before_its_end_stops_the_sweep(place):
    sweep = place.start(nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    os.kill(place.starts()[1]["pid"], signal.SIGTERM)
    assert sweep.wait(60) == 75
    assert len(place.starts()) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_a_killed_sweep_takes_its_child_along(place):
    sweep = place.start(nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    sweep.kill()
    sweep.wait()
    wait_for(lambda: not pathlib.Path(f"/proc/{place.starts()[1]['pid']}").exists())


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_a_sweep_killed_at_random_moments_has_the_rows_of_an_unbroken_one(tmp_path, kills):
    unbroken, broken = Place(tmp_path / "a"), Place(tmp_path / "b")
    unbroken.run()
    chance = random.Random(0)
    for i in range(kills):
        before = len(broken.starts())
        sweep = broken.start()
        if i % 3 == 0:
            time.sleep(chance.uniform(0.0, 0.5))
        else:  # with a child, or when there was nothing left to do
            wait_for(lambda: len(broken.starts()) > before or sweep.poll() is not None)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.15))
        sweep.kill()
        sweep.wait()
    assert broken.run() == 0
    rows = records.read(broken.results)
    assert sorted(rows, key=key) == sorted(unbroken.rows(), key=key)


def test_two_sweeps_share_the_runs(place):
    sweeps = [place.start() for _ in range(2)]
    assert [sweep.wait(60) for sweep in sweeps] == [0, 0]
    assert len(records.read(place.results)) == 6
    folders = [start["folder"] for start in place.starts()]
    assert len(folders) == len(set(folders)) == 3


def test_the_lock_of_a_run_is_held_until_its_rows_are_copied(place, monkeypatch):
    """Other sweeps do not even start a child, which would load and compile in vain."""
    place.file.write_text(ONE_RUN)
    real, busy = records.append, []

    def append(path, rows):
        (lock,) = place.workdir.glob("*/.sweep.lock")
        try:
            filelock.FileLock(lock).acquire(timeout=0).lock.release()
        except filelock.Timeout:
            busy.append(path)
        return real(path, rows)

    monkeypatch.setattr(records, "append", append)
    assert place.run() == 0
    assert busy == [place.results]


def test_a_failure_is_not_repeated_by_those_who_waited(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    data = Data(str(place.root / "data"), {})
    there = places.Place(fake(standard="crash"), place.results, place.workdir, data)

    def attempt_with(failures: Failures) -> Outcome:
        return attempt(places.PlacedRun(run, there, "generated"), Budget(None), failures)

    waiting, other = (Failures(place.workdir) for _ in range(2))
    assert attempt_with(other) is Outcome.FAILED
    assert attempt_with(waiting) is Outcome.FAILED
    assert len(place.starts()) == 1
    assert attempt_with(Failures(place.workdir)) is Outcome.FAILED
    assert len(place.starts()) == 2
