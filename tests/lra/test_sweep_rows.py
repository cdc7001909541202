"""Rows that a sweep finds in the folders of its runs: damaged, or of others."""

import pathlib
import shlex
import signal

import pytest

from lra import records
from lra.sweep import place as places
from lra.sweep import runner
from lra.sweep.budget import Budget
from lra.sweep.plan import load_sweep
from tests.lra.sweep_place import ONE_RUN, Place


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The stand-in imports the project, and the signals of a test stay its own."""
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path.cwd()))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_rows_of_others_below_the_workdir_are_left_alone(place, capsys):
    foreign = place.workdir / "foreign" / "rows.jsonl"
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"a": 1}\n')
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert "foreign" not in capsys.readouterr().err
    assert foreign.read_text() == '{"a": 1}\n'


@pytest.mark.parametrize("damage", [b'{"a": 1}\n', b"\xff\n", None])
def test_damaged_rows_of_a_run_are_its_failure_and_no_others(place, damage, capsys):
    place.run("--launcher=print")
    words = shlex.split(capsys.readouterr().out.splitlines()[1])
    (folder,) = [pathlib.Path(w.partition("=")[2]) for w in words if w.startswith("--workdir")]
    rows = folder / "rows.jsonl"
    folder.mkdir(parents=True)
    if damage is None:
        rows.mkdir()
    else:
        rows.write_bytes(damage)
    assert place.run() == 1
    assert [(row.attention, row.status) for row in place.rows()] == [
        ("nystrom", "failed"), ("nystrom", "failed"),
        ("standard", "ok"), ("standard", "ok"), ("linformer", "ok"), ("linformer", "ok"),
    ]  # fmt: skip
    said = capsys.readouterr().err
    assert said.count(str(rows)) == 1
    assert "listops nystrom num_landmarks=32, seeds 0 1: failed: " in said
    assert str(rows) in place.rows()[0].error
    assert len(place.starts()) == 2
    rows.rename(folder / "aside")
    assert place.run() == 0
    assert [row.status for row in place.rows()] == ["ok"] * 6
    assert len(records.read(place.results)) == 8


def test_damaged_rows_of_other_seeds_are_said(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    (rows,) = place.workdir.glob("*/rows.jsonl")
    rows.write_text("{}\n")
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    capsys.readouterr()
    assert place.run() == 0
    assert f"not read: {rows}, line 1: not a row" in capsys.readouterr().err
    assert [row.seed for row in place.rows()] == [0, 1, 2]


def test_rows_that_a_run_writes_damaged_are_its_failure(place, capsys):
    assert place.run(nystrom="damaged rows") == 1
    assert [row.status for row in place.rows()] == ["ok", "ok", "failed", "failed", "ok", "ok"]
    assert "rows.jsonl, line 1: not a row" in place.rows()[2].error
    # A job of Slurm finds them at its start.
    run = load_sweep(str(place.file)).runs[1]
    there = places.Place((), place.results, place.workdir, str(place.root / "data"), {})
    assert runner.attempt(run, there, "generated", Budget(None)) is runner.Outcome.FAILED
