"""The sweep against a stand-in for train.py: each run once, whatever happens to whom."""

import contextlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import filelock
import pytest

from lra import records
from lra.errors import UserError
from lra.row import Row
from lra.settings import flatten, load_config
from lra.sweep import place as places
from lra.sweep.__main__ import main
from lra.sweep.budget import Budget
from lra.sweep.child import Ended
from lra.sweep.data import Data
from lra.sweep.failures import Failures
from lra.sweep.listing import duration, estimate
from lra.sweep.plan import load_sweep
from lra.sweep.runner import Outcome, attempt
from lra.sweep.under_way import UnderWay
from tests.lra.row_factory import failed_row, make_row
from tests.lra.sweep_place import ONE_RUN, SWEEP, Place, fake, wait_for, write_data

SWEEPS = ("quick", "table", "landmarks", "projections")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The stand-in imports the project; the tests' own cache settings do not reach it."""
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path.cwd()))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_every_run_is_executed_once_in_order(place):
    assert place.run() == 0
    assert [(row.attention, row.seed) for row in place.rows()] == [
        (attention, seed) for attention in ("standard", "nystrom", "linformer") for seed in (0, 1)
    ]
    assert [row.protocol for row in place.rows()][::2] == [
        "table3",
        "changed: model.attention.num_landmarks=32",
        "changed: train.steps=6000",
    ]
    assert place.run() == 0
    assert len(place.starts()) == 3


def test_children_share_a_compile_cache_unless_the_user_has_one(place, monkeypatch):
    place.file.write_text(ONE_RUN)
    place.run("--config.seeds=(2,)")
    assert [row.seed for row in place.rows()] == [2]
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    place.run()
    assert [row.seed for row in place.rows()] == [2, 0, 1]
    caches = [start["cache"] for start in place.starts()]
    assert caches == [str(place.workdir / "compile_cache"), "/elsewhere"]


def test_only_seeds_without_rows_are_trained(place):
    place.file.write_text(ONE_RUN)
    place.run()
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    assert place.run() == 0
    assert [row.seed for row in place.rows()] == [0, 1, 2]
    assert "--config.seeds=(2,)" in place.starts()[1]["argv"]


def test_other_data_are_other_runs(place):
    place.file.write_text(ONE_RUN)
    place.run()
    write_data(place.root / "data", "listops", mark="my own")
    place.run()
    assert [row.data for row in place.rows()] == ["generated"] * 2 + ["my own"] * 2


def test_overrides_for_all_runs_come_last(place):
    place.file.write_text(ONE_RUN.replace("}", ", 'train.steps': 6000}"))
    place.run("--config.train.steps=7000")
    assert {row.steps for row in place.rows()} == {7000}
    (start,) = place.starts()
    assert [word for word in start["argv"] if "steps" in word] == ["--config.train.steps=7000"]


def test_overrides_for_all_runs_replace_tuples_of_the_file(place):
    place.file.write_text(
        "RUNS = [{'config': 'configs/listops.py:linformer', 'seeds': (0, 1),"
        " 'model.attention.share': ('kv', 'heads')}]"
    )
    assert place.run("--config.seeds=(3,)", "--config.model.attention.share", "('layers',)") == 0
    assert [row.seed for row in place.rows()] == [3]
    assert place.rows()[0].config_overrides == {"model.attention.share": ["layers"]}
    place.file.write_text("RUNS = [{'config': 'configs/listops.py:standard', 'seeds': (0, 1)}]")
    assert place.run("--config.seeds=(0,)") == 0
    assert [row.seed for row in place.rows()] == [3, 0]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("crash", "RuntimeError: INTERNAL: a mistake of XLA"),
        ("killed", "killed by SIGKILL after: no output"),
        ("refuse", "no such landmarks"),
        ("no rows", "train.py ended without writing rows"),
    ],
)
def test_a_failed_run_is_recorded_with_its_reason(place, behaviour, reason, capfd):
    place.file.write_text(ONE_RUN)
    assert place.run(standard=behaviour) == 1
    assert [(row.status, row.seed, row.error) for row in place.rows()] == [
        ("failed", 0, reason),
        ("failed", 1, reason),
    ]
    said = capfd.readouterr().err
    assert f"failed: {reason}" in said
    log = next(place.workdir.glob("*/log.txt"))
    assert f"listops standard, seeds 0 1: running, how far it is stands in {log}\n" in said


def test_a_failed_run_does_not_stop_the_rest_and_is_tried_again(place):
    assert place.run(nystrom="crash") == 1
    assert [row.status for row in place.rows()] == ["ok", "ok", "failed", "failed", "ok", "ok"]
    assert place.run() == 0
    assert [row.status for row in place.rows()] == ["ok"] * 6
    assert len(place.starts()) == 4


def test_a_run_whose_folder_is_removed_does_not_stop_the_rest(place):
    assert place.run(standard="vanish") == 1
    assert [row.status for row in place.rows()] == ["failed", "failed", "ok", "ok", "ok", "ok"]
    assert place.rows()[0].error == "RuntimeError: INTERNAL: no folder"


@pytest.mark.parametrize("name", ["", "log.txt", "metrics.jsonl", ".sweep.lock"])
def test_a_folder_that_cannot_be_used_does_not_stop_the_rest(place, name, capsys):
    assert place.run(standard="refuse", nystrom="refuse", linformer="refuse") == 1
    folder = next(place.workdir.glob("listops-standard-*"))
    if name:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
    else:
        shutil.rmtree(folder)
        folder.write_text("a file")
    place.results.unlink()
    assert place.run("--dry_run") == 0
    capsys.readouterr()
    assert place.run() == 1
    statuses = {(row.attention, row.status) for row in place.rows()}
    assert statuses == {("standard", "failed"), ("nystrom", "ok"), ("linformer", "ok")}
    assert "directory" in place.rows()[0].error or "File exists" in place.rows()[0].error


def test_a_dry_run_repairs_nothing(place, capsys):
    place.run()
    content = place.results.read_bytes() + b'{"task": "lis'
    place.results.write_bytes(content)
    assert place.run("--dry_run") == 0
    assert place.results.read_bytes() == content
    assert "6 of 6 rows done" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_told_before_data_are_generated(place):
    shutil.rmtree(place.root / "data")
    place.workdir.write_text("a file")
    with pytest.raises(UserError, match=r"cannot write to --workdir=.*: File exists; choose"):
        place.run()
    assert not (place.root / "data").exists()


def test_a_diverged_run_is_done(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="diverge") == 0
    assert "listops standard, seeds 0 1: diverged diverged (" in capsys.readouterr().err
    assert [row.status for row in place.rows()] == ["diverged"] * 2
    assert place.run() == 0
    assert len(place.starts()) == 1


def test_the_reason_is_the_exception_and_not_what_follows_it():
    output = (
        "step 50/500: validation accuracy 0.2\nTraceback (most recent call last):\n"
        "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n"
        "--------------------\nFor simplicity, JAX has removed its internal frames"
    )
    assert Ended(1, output, None).reason() == (
        "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"
    )
    assert Ended(3, "one\ntwo\n", None).reason() == "exit status 3 after: two"


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


def test_the_budget_is_shared_and_a_small_rest_of_it_starts_nothing(place):
    assert place.run("--budget_minutes=1.001") == 75
    assert len(place.starts()) == 1
    (flag,) = [word for word in place.starts()[0]["argv"] if word.startswith("--budget_minutes")]
    assert 0.9 < float(flag.partition("=")[2]) <= 1.001


def test_a_budget_that_is_over_before_the_first_step_is_said(place, capsys):
    assert place.run("--budget_minutes=0.1", standard="slow") == 75
    said = capsys.readouterr().err
    assert "seeds 0 1: the 6 s left of the budget were over before the first step" in said
    assert "give it more" in said
    assert len(place.starts()) == 1
    assert not place.results.exists()


def test_a_budget_that_allows_some_steps_is_no_matter(place, capsys):
    place.file.write_text(ONE_RUN)
    for _ in range(2):
        assert place.run("--budget_minutes=2", standard="in parts") == 75
        assert "stopped before its end; the same command goes on" in capsys.readouterr().err
    # Nothing after the eighth step.
    assert place.run("--budget_minutes=2", standard="slow") == 75
    assert "over before the first step" in capsys.readouterr().err
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
        assert time.monotonic() - start < 15
    said = capsys.readouterr().err
    assert said.count("for another train.py to end") == 1
    assert "waiting up to 3 s" in said
    assert not place.starts()


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
    assert sorted(rows, key=records.key) == sorted(unbroken.rows(), key=records.key)


def test_two_sweeps_share_the_runs(place):
    sweeps = [place.start() for _ in range(2)]
    assert [sweep.wait(60) for sweep in sweeps] == [0, 0]
    assert len(records.read(place.results)) == 6
    folders = [start["folder"] for start in place.starts()]
    assert len(folders) == len(set(folders)) == 3


def test_a_failure_is_not_repeated_by_those_who_waited(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    data = Data(str(place.root / "data"), {})
    there = places.Place(fake(standard="crash"), place.results, place.workdir, data)

    def attempt_with(failures: Failures) -> Outcome:
        return attempt(run, there, "generated", Budget(None), failures)

    waiting, other = (Failures(place.workdir) for _ in range(2))
    assert attempt_with(other) is Outcome.FAILED
    assert attempt_with(waiting) is Outcome.FAILED
    assert len(place.starts()) == 1
    assert attempt_with(Failures(place.workdir)) is Outcome.FAILED
    assert len(place.starts()) == 2


def test_rows_written_without_the_sweep_are_taken_in(place, capsys):
    place.run("--launcher=print", "--budget_minutes=30")
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 3
    assert not place.starts()
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "env"
        assert f" {shlex.join(fake())} " in command
        assert "--budget_minutes=30.000" in words
        place.workdir.mkdir(exist_ok=True)
        subprocess.run(words, check=True)
    assert {start["cache"] for start in place.starts()} == {str(place.workdir / "compile_cache")}
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert len(place.starts()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="needs xargs -d, which is GNU's")
def test_printed_commands_run_from_any_folder_as_help_says(place, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        place.run("--help")
    recipe = re.search(r"--launcher=print \| (xargs .*)", capsys.readouterr().out)[1]
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path.cwd()))
    config = place.root / "configs"
    config.mkdir()
    for name in ("default", "listops"):
        shutil.copy(f"configs/{name}.py", config)
    monkeypatch.chdir(place.root)
    flags = ["--workdir=runs", "--data_dir=data", "--launcher=print"]
    assert main(["sweep.py", "--results=results.jsonl", *flags], train=fake()) == 0
    place.workdir.mkdir()
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    lines = capsys.readouterr().out.encode()
    subprocess.run(recipe, shell=True, input=lines, cwd=elsewhere, check=True)
    assert place.run() == 0
    assert (len(place.rows()), len(place.starts())) == (6, 3)


def test_printed_commands_leave_the_cache_of_the_user(place, capsys, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    place.run("--launcher=print")
    assert "JAX_COMPILATION_CACHE_DIR" not in capsys.readouterr().out


def test_a_printed_command_trains_the_seeds_without_rows(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    capsys.readouterr()
    place.run("--launcher=print")
    assert shlex.split(capsys.readouterr().out)[-1] == "--config.seeds=(2,)"


def test_dry_run_lists_done_missing_failed_and_time(place, capsys):
    assert place.run(linformer="crash") == 1
    capsys.readouterr()
    place.file.write_text(SWEEP.replace("(0, 1)", "(0, 1, 2)"))
    before = sorted(place.root.rglob("*"))
    assert place.run("--dry_run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "missing  listops standard, seeds 2 (about 3 min by 2 rows)",
        "missing  listops nystrom num_landmarks=32, seeds 2 (about 3 min by 2 rows)",
        "missing  listops linformer, seeds 0 1 2 (time unknown; "
        "failed before: RuntimeError: INTERNAL: a mistake of XLA)",
        "4 of 9 rows done, 5 missing",
        "time left: about 7 min, unknown for 1 run",
        "times by rows are those of a device, where the latest was made",
    ]
    assert sorted(place.root.rglob("*")) == before


def test_dry_run_goes_by_the_speed_of_a_run_under_way(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    metrics = next(place.workdir.glob("*/metrics.jsonl"))
    with open(metrics, "a") as file:
        file.write('{"kind": "eval", "step": 4}\n{"kind": "tr')
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    # (5000 - 4) steps of 32 examples for each of two seeds, 64 of them a second.
    assert capsys.readouterr().out.splitlines() == [
        "missing  listops standard, seeds 0 1 "
        "(4 of 5000 steps made; about 83 min at 64 examples/s, evaluations aside)",
        "0 of 2 rows done, 2 missing",
        "time left: about 83 min",
    ]


def test_the_call_that_compiled_tells_no_time(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    metrics = next(place.workdir.glob("*/metrics.jsonl"))
    metrics.write_text('{"kind": "train", "step": 1, "examples_per_second": 0.5}\n')
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    assert "(1 of 5000 steps made; time unknown)" in capsys.readouterr().out


def test_names_of_folders_are_no_longer_than_file_systems_allow(place):
    sizes = f"({'16, ' * 100})"
    place.file.write_text(
        "RUNS = [{'config': 'configs/listops.py:linformer', 'model.num_layers': 100, "
        f"'model.attention.proj_dim': {sizes}, 'model.attention.share': ('kv',)}}]"
    )
    assert place.run("--dry_run") == 0
    assert place.run() == 0
    assert len(place.rows()) == 1


def test_rows_of_other_devices_tell_no_time(place, capsys):
    place.file.write_text(ONE_RUN)
    rows = [
        timed_row(data="another", seed=seed, device=device, wall_seconds=time)
        for seed, (device, time) in enumerate([("a GPU", 60.0), ("a CPU", 6e4), ("a GPU", 60.0)])
    ]
    failed = failed_row(attention="standard", device=None, wall_seconds=None)
    records.append(place.results, [*rows, failed])
    assert place.run("--dry_run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "missing  listops standard, seeds 0 1 (about 40 s by 2 rows; "
        "failed before: killed by SIGKILL)",
        "0 of 2 rows done, 2 missing",
        "time left: about 40 s",
        "times by rows are those of a GPU, where the latest was made",
    ]


def test_where_the_latest_device_has_no_row_another_one_tells_the_time(place, capsys):
    place.file.write_text(SWEEP)
    rows = [
        timed_row(data="another", device="a GPU", num_devices=2, wall_seconds=60.0),
        timed_row(data="another", seed=1, device="a TPU", wall_seconds=6e4),
        timed_row(data="another", seed=2, device="a GPU", num_devices=2, wall_seconds=60.0),
        make_row(data="another", device="a CPU", wall_seconds=600.0),
    ]
    records.append(place.results, rows)
    assert place.run("--dry_run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "missing  listops standard, seeds 0 1 (~40 s by 2 rows on 2 x a GPU)",
        "missing  listops nystrom num_landmarks=32, seeds 0 1 "
        "(about 7 min by 1 row of other settings)",
        "missing  listops linformer, seeds 0 1 (time unknown)",
        "0 of 6 rows done, 6 missing",
        "time left: ~7 min, unknown for 1 run",
        "times by rows are those of a CPU, where the latest was made; those with ~ of the device "
        "they name",
    ]


def test_a_row_of_the_same_settings_is_one_though_it_has_been_json(tmp_path):
    """Linformer's `share` is a tuple in configurations."""
    file = tmp_path / "sweep.py"
    file.write_text("RUNS = [{'config': 'configs/listops.py:linformer'}]")
    (run,) = load_sweep(str(file)).runs
    config = json.loads(json.dumps(run.config))
    row = make_row(attention="linformer", config=config, wall_seconds=60.0)
    assert estimate(run, UnderWay(), [row]).basis == "by 1 row"


def test_rows_of_the_same_model_tell_the_time_and_those_that_diverged_none(place, capsys):
    place.file.write_text(ONE_RUN)
    wider = {"model.mlp_dim": 512}
    records.append(
        place.results,
        [
            timed_row(seed=2, wall_seconds=6e4, config_overrides=wider),
            timed_row(None, seed=3, wall_seconds=60.0, steps=4, status="diverged", diverged_step=3),
        ],
    )
    place.run("--dry_run")
    assert "(about 11 h 7 min by 1 row of other settings)" in capsys.readouterr().out
    records.append(place.results, [timed_row(seed=4, wall_seconds=60.0)])
    place.run("--dry_run")
    assert "(about 40 s by 1 row)" in capsys.readouterr().out


def timed_row(accuracy: float | None = 0.5, **values: Any) -> Row:
    """A row of exact attention with its whole configuration, of a program of three seeds."""
    config = flatten(load_config("configs/listops.py:standard"))
    overrides = values.get("config_overrides", {})
    return make_row(accuracy, attention="standard", config=config | overrides, **values)


def test_durations():
    assert [duration(s) for s in (45, 700, 12_000)] == ["45 s", "12 min", "3 h 20 min"]


def test_the_order_said_is_the_order_of_execution(place, capsys):
    """Task by task, and what has failed before is not in the way of the others."""
    write_data(place.root / "data", "image")
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:{attention}'}"
        " for attention in ('nystrom', 'standard', 'linformer') for task in ('listops', 'image')]"
    )
    assert place.run("--tasks=listops", "--config.seeds=(0,)", nystrom="crash", standard="slow")
    capsys.readouterr()
    place.run("--dry_run")
    said = [line.split()[1:3] for line in capsys.readouterr().out.splitlines()[:6]]
    assert [(task, attention.strip(",")) for task, attention in said] == [
        ("listops", "standard"), ("listops", "linformer"), ("listops", "nystrom"),
        ("image", "nystrom"), ("image", "standard"), ("image", "linformer"),
    ]  # fmt: skip
    place.run()
    assert [start["folder"].split("-")[:2] for start in place.starts()[2:]] == [
        [task, attention.strip(",")] for task, attention in said
    ]


def test_a_run_listed_twice_is_said_and_run_once(place, capsys):
    place.file.write_text(
        "run = {'config': 'configs/listops.py:standard', 'seeds': (0, 1)}\n"
        "RUNS = [run, dict(run), run | {'seeds': (1, 2)}]\n"
    )
    assert place.run() == 0
    assert [row.seed for row in place.rows()] == [0, 1, 2]
    said = capsys.readouterr().err
    assert "lists listops standard, seeds 0 1 twice: run once" in said
    assert "lists listops standard, seeds 1 twice: run once" in said


def test_runs_are_called_by_what_tells_them_apart(place):
    place.file.write_text(
        "nystrom = {'config': 'configs/listops.py:nystrom', 'train.steps': 9}\n"
        "RUNS = [nystrom | {'train.learning_rate': rate} for rate in (1e-4, 2e-4)]\n"
        "RUNS += [{'config': 'configs/listops.py:linformer', 'train.learning_rate': 2e-4}]\n"
    )
    runs = load_sweep(str(place.file)).runs
    assert [run.title() for run in runs] == [
        "listops nystrom learning_rate=0.0001, seeds 0",
        "listops nystrom learning_rate=0.0002, seeds 0",
        "listops linformer, seeds 0",
    ]
    # Another run of the sweep does not move the folder of one that has begun.
    assert all(run.folder("").startswith(f"listops-{run.attention}-") for run in runs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("RUNS = []", "lists no runs"),
        ("RUNS = None", "has no list RUNS"),
        ("x = 1", "has no list RUNS"),
        ("RUNS = 1 / 0", "ZeroDivisionError"),
        ("RUNS = [", "SyntaxError"),
        ("RUNS = ['configs/listops.py:nystrom']", "run 1: not of the form"),
        ("RUNS = [{'config': 'configs/listop.py:nystrom'}]", "run 1: no config file"),
        ("RUNS = [{'config': 'configs/listops.py:nystrom', 'train.step': 1}]", "train.steps"),
        ("RUNS = [{'config': 'configs/listops.py:nystrom', 'seeds': ()}]", "seeds is empty"),
        ("\nimport math\nRUNS = [math.log(0)]", "sweep.py, line 3: ValueError"),
        ("def runs():\n    raise KeyError('mine')", "sweep.py, line 2: KeyError: 'mine'"),
    ],
)
def test_bad_sweep_files_are_named_before_anything_runs(place, text, message):
    place.file.write_text(text)
    with pytest.raises(UserError, match=message):
        place.run()
    assert not place.workdir.exists()


def test_a_folder_is_no_sweep_file(place):
    place.file.unlink()
    place.file.mkdir()
    with pytest.raises(UserError, match=r"sweep\.py is a folder: name a sweep file"):
        place.run()


def test_numbers_of_numpy_and_sequences_of_any_kind_are_values(place):
    place.file.write_text(
        "import numpy as np\n"
        "run = {'config': 'configs/listops.py:nystrom'}\n"
        "RUNS = [run | {'train.learning_rate': rate} for rate in np.logspace(-4, -3, 2)]\n"
        "RUNS += [run | {'model.attention.num_landmarks': np.int64(32), 'seeds': [0, 1]}]\n"
        "RUNS += [run | {'train.steps': 9, 'seeds': range(3)}]\n"
        "RUNS += [run | {'train.steps': 8, 'seeds': np.arange(2)}]\n"
        "RUNS += [run | {'train.steps': 7, 'seeds': (np.int64(4),)}]\n"
    )
    runs = load_sweep(str(place.file)).runs
    assert [run.config["train.learning_rate"] for run in runs[:2]] == [1e-4, 1e-3]
    assert runs[2].config["model.attention.num_landmarks"] == 32
    assert [run.seeds for run in runs] == [(0,), (0,), (0, 1), (0, 1, 2), (0, 1), (4,)]


def test_bad_flags_are_named(place):
    for flag, message in (
        ("--tasks=listop", "did you mean 'listops'"),
        ("--tasks=image", "lists no runs of image"),
        ("--budget_minutes=-1", "'-1' is not a positive number of minutes"),
        ("--budget_minutes=soon", "not a positive number of minutes"),
        ("--launcher=cloud", "invalid choice"),
        ("--config.train.step=1", "train.steps"),
    ):
        with pytest.raises(UserError, match=message):
            place.run(flag)
    with pytest.raises(UserError, match="no sweep file"):
        main([str(place.root / "sweeep.py"), "--results=x"])


def test_results_that_cannot_be_written_are_named_before_anything_runs(place):
    place.results.mkdir()
    with pytest.raises(UserError, match="cannot write rows to"):
        place.run()
    assert not place.starts()


def test_runs_without_data_are_said_and_the_others_run(place, capsys):
    place.file.write_text(
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('text', 'listops')]"
    )
    assert place.run() == 1
    assert [row.task for row in place.rows()] == ["listops"]
    assert "text: 1 run cannot start: no prepared text in" in capsys.readouterr().err


def test_a_sweep_that_cannot_start_leaves_no_file_of_results(place):
    place.file.write_text("RUNS = [{'config': 'configs/text.py:nystrom'}]")
    assert place.run() == 1
    assert not place.results.exists()
    place.results.write_text("")  # what was there before stays
    assert place.run() == 1
    assert place.results.read_text() == ""


def test_damaged_data_are_nothing_to_runs_that_are_done(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    (place.root / "data" / "listops" / "manifest.json").write_text("{}")
    capsys.readouterr()
    assert place.run() == 0
    assert "cannot start" not in capsys.readouterr().err
    place.file.write_text(SWEEP)
    assert place.run() == 1
    assert "listops: 2 runs cannot start: " in capsys.readouterr().err
    assert place.run("--dry_run") == 0
    said = capsys.readouterr()
    assert "listops: 2 runs cannot start: " in said.err
    assert "2 of 6 rows done, 4 missing" in said.out


GENERATED = """
DATA = {"listops": {"min_length": 3, "max_length": 12, "train": 20, "validation": 5, "test": 5}}
RUNS = [{"config": "configs/listops.py:nystrom"}]
"""


def test_data_that_a_sweep_asks_for_are_generated_in_its_own_folder(place, capsys):
    place.file.write_text(GENERATED)
    argv = [str(place.file), f"--results={place.results}", f"--workdir={place.workdir}"]
    assert main(argv, train=fake()) == 0
    assert (place.workdir / "data" / "listops" / "manifest.json").exists()
    assert "generating listops" in capsys.readouterr().err
    assert place.rows()[0].data.startswith("differs")


def test_data_that_are_not_what_a_sweep_asks_for_are_left_alone(place, capsys):
    place.file.write_text(GENERATED)
    assert place.run() == 1
    assert "choose another --data_dir" in capsys.readouterr().err
    assert not place.starts()


def test_data_are_generated_when_the_first_run_comes_up(place, capsys):
    place.file.write_text(
        f"{GENERATED}RUNS.insert(0, {{'config': 'configs/text.py:nystrom'}})\n"
        "RUNS.append({'config': 'configs/image.py:nystrom'})\n"
    )
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run(f"--data_dir={data_dir}") == 1
    assert [row.task for row in place.rows()] == ["text", "listops"]
    said = capsys.readouterr().err.splitlines()
    # What cannot be had is said before anything is done.
    order = ["image: 1 run cannot start", "3 runs, 2 to execute", "text nystrom, seeds 0: running"]
    order += ["text nystrom, seeds 0: test accuracy", "generating listops", "listops nystrom"]
    positions = [[line.startswith(text) for line in said].index(True) for text in order]
    assert positions == sorted(positions)


def test_data_are_generated_in_a_short_budget_but_not_behind_a_run_in_its_last_minute(
    place, capsys
):
    place.file.write_text(f"{GENERATED}RUNS.insert(0, {{'config': 'configs/text.py:nystrom'}})\n")
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run("--budget_minutes=0.9", f"--data_dir={data_dir}") == 75
    assert "more than the 0 s that the budget leaves for it" in capsys.readouterr().err
    assert [row.task for row in place.rows()] == ["text"]
    assert place.run("--budget_minutes=0.9", f"--data_dir={data_dir}") == 0
    assert [row.task for row in place.rows()] == ["text", "listops"]


def test_data_that_cannot_be_written_do_not_stop_the_rest(place, capsys):
    place.file.write_text(f"{GENERATED}RUNS.append({{'config': 'configs/text.py:nystrom'}})\n")
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    (data_dir / ".listops.lock").mkdir()
    assert place.run(f"--data_dir={data_dir}") == 1
    assert "listops: 1 run cannot start: Is a directory" in capsys.readouterr().err
    assert [row.task for row in place.rows()] == ["text"]


def test_data_that_take_longer_than_the_budget_are_not_generated(place, capsys):
    place.file.write_text(
        "DATA = {'listops': {'train': 100_000_000}}\n"
        "RUNS = [{'config': f'configs/{task}.py:nystrom'} for task in ('listops', 'text')]"
    )
    data_dir = place.root / "other"
    write_data(data_dir, "text")
    assert place.run("--budget_minutes=2", f"--data_dir={data_dir}") == 75
    said = capsys.readouterr().err
    assert re.search(
        r"listops: generating its data takes about \d+ min, more than the 2 min that", said
    )
    assert "generating listops in" not in said
    assert [path.name for path in data_dir.iterdir() if path.is_dir()] == ["text"]
    assert [row.task for row in place.rows()] == ["text"]


@pytest.mark.parametrize("name", SWEEPS)
def test_the_sweep_files_resolve(name):
    sweep = load_sweep(f"configs/sweeps/{name}.py")
    runs = [(run.task, run.attention, str(run.changed)) for run in sweep.runs]
    assert len(runs) == len(set(runs)) > 4


def test_the_table_finishes_columns_first():
    runs = load_sweep("configs/sweeps/table.py").runs
    assert len(runs) == 25
    assert [run.task for run in runs[:5]] == ["listops"] * 5
    assert {run.protocol for run in runs} == {"table3"}
    assert {run.seeds for run in runs} == {(0, 1, 2)}


def test_a_sweep_may_take_the_data_of_another():
    epsilon, quick = (load_sweep(f"configs/sweeps/{name}.py") for name in ("epsilon", "quick"))
    assert epsilon.data == quick.data
    values = [run.config["model.attention.epsilon"] for run in epsilon.runs]
    assert values == [1e-4, 1e-6, 0.0]


def test_tasks_can_be_chosen():
    runs = load_sweep("configs/sweeps/landmarks.py", ("text",)).runs
    assert {run.task for run in runs} == {"text"}
    assert [run.config["model.attention.num_landmarks"] for run in runs] == [
        16, 32, 64, 128, 256, 512,
    ]  # fmt: skip


def test_folders_tell_runs_apart(place):
    runs = load_sweep("configs/sweeps/projections.py").runs
    folders = {run.folder(data) for run in runs for data in ("official", "generated")}
    assert len(folders) == 2 * len(runs)
    assert runs[0].folder("official").startswith("listops-linformer-proj_dim=32-")
