"""Several jobs execute the runs of a sweep, each run once; they start, end and stop as one."""

import os
import pathlib
import signal
import sys

import pytest

from lra import records
from lra.sweep import jobs
from tests.waiting import wait_for

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")


def test_every_run_is_executed_once(place, capsys):
    assert place.run("--jobs=2") == 0
    assert len(records.read(place.results)) == 6
    folders = [start["folder"] for start in place.starts()]
    assert len(folders) == len(set(folders)) == 3
    said = capsys.readouterr().err
    assert said.count("3 runs, 3 to execute") == 1
    assert said.count("test accuracy") == 3


def test_jobs_run_at_the_same_time_and_a_signal_stops_all(place):
    sweep = place.start("--jobs=2", standard="patient", nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    sweep.send_signal(signal.SIGTERM)
    assert sweep.wait(60) == 75
    assert len(place.starts()) == 2
    assert not place.results.exists()
    assert place.run("--jobs=2") == 0
    assert len(records.read(place.results)) == 6


@linux
def test_jobs_divide_the_devices_and_leave_memory_to_each_other(place, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2,3")
    sweep = place.start("--jobs=2", standard="patient", nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    sweep.send_signal(signal.SIGTERM)
    sweep.wait(60)
    starts = place.starts()
    assert [start["preallocate"] for start in starts] == ["false"] * 2
    assert sorted(start["gpus"] for start in starts) == ["0", "2,3"]
    first, second = (set(start["cores"]) for start in starts)
    everything = os.sched_getaffinity(0)
    assert first | second == everything
    assert len(first & second) == (1 if len(everything) == 1 else 0)


@pytest.mark.parametrize(
    ("items", "number", "shares"),
    [
        ([0, 1, 4, 5], 2, [[0, 1], [4, 5]]),
        ([0, 1, 2], 2, [[0], [1, 2]]),
        ([3, 7], 3, [[3], [3], [7]]),
    ],
)
def test_shares_are_equal_as_far_as_possible(items, number, shares):
    assert jobs._shares(items, number) == shares


def test_gpus_that_are_not_listed_are_not_divided(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert jobs._shares_of_gpus(2) == [None, None]


def test_a_failed_run_is_reported_once_and_does_not_stop_the_rest(place, capsys):
    assert place.run("--jobs=3", nystrom="refuse") == 1
    finished = sorted(row.attention for row in place.rows() if row.final)
    assert finished == ["linformer"] * 2 + ["standard"] * 2
    assert capsys.readouterr().err.count("failed: no such landmarks") == 1


@linux
def test_a_killed_sweep_takes_its_jobs_along(place):
    sweep = place.start("--jobs=2", standard="patient", nystrom="patient")
    wait_for(lambda: len(place.starts()) == 2)
    sweep.kill()
    sweep.wait()
    for start in place.starts():
        wait_for(lambda: not pathlib.Path(f"/proc/{start['pid']}").exists())  # noqa: B023


@pytest.mark.parametrize("statuses", ["1,75", "75,1"])
def test_the_largest_status_of_the_jobs_counts(monkeypatch, statuses):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", statuses)
    code = "import os, sys; sys.exit(int(os.environ['CUDA_VISIBLE_DEVICES']))"
    assert jobs.execute([sys.executable, "-c", code], 2) == 75


def test_a_killed_job_counts_as_stopped(capsys):
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert jobs.execute([sys.executable, "-c", kill], 2) == 75
    assert "a job was ended by signal 9; the same command goes on" in capsys.readouterr().err
