"""Rows that a sweep finds: damaged, of others, of older defaults."""

import dataclasses
import hashlib
import json
import pathlib
import shlex
import shutil

import numpy as np
import pytest

from lra import records
from lra.errors import UserError
from lra.protocol import without_execution
from lra.report import groups as report
from lra.report import reading
from lra.row import Row, from_json, to_json
from lra.settings import flatten, load_config
from lra.sweep import place as places
from lra.sweep import runner, under_way
from lra.sweep.budget import Budget
from lra.sweep.data import Data
from lra.sweep.failures import Failures
from lra.sweep.listing import ABOUT_OLDER
from lra.sweep.runs import Done, older_defaults
from lra.sweep.sweep_file import load_sweep
from lra.workdir import Workdir
from tests.lra.row_factory import failed_row, make_row
from tests.lra.sweep.place import ONE_RUN, write_data
from tests.suites import slow_but


def test_rows_of_others_below_the_workdir_are_left_alone(place, capsys):
    foreign = place.workdir / "foreign" / "rows.jsonl"
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"a": 1}\n')
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert "foreign" not in capsys.readouterr().err
    assert foreign.read_text() == '{"a": 1}\n'


@pytest.mark.parametrize("damage", slow_but([None], [b'{"a": 1}\n', b"\xff\n", None]))
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
        ("standard", "ok"), ("standard", "ok"), ("nystrom", "failed"), ("nystrom", "failed"),
        ("linformer", "ok"), ("linformer", "ok"),
    ]  # fmt: skip
    said = capsys.readouterr().err
    assert said.count(str(rows)) == 1
    assert "listops nystrom num_landmarks=32, seeds 0 1: failed: " in said
    assert str(rows) in place.rows()[2].error
    assert len(place.starts()) == 2
    rows.rename(folder / "aside")
    assert place.run() == 0
    assert [row.status for row in place.rows()] == ["ok"] * 6
    assert len(records.read(place.results)) == 8


def test_results_of_known_files_are_done(place, capsys):
    table = place.root / "table.jsonl"
    runs = load_sweep(str(place.file)).runs
    failed = failed_row(
        attention="nystrom",
        config=runs[1].config,
        config_overrides=runs[1].changed,
        protocol=runs[1].protocol,
    )
    records.append(table, [*(row_of(runs[0], seed) for seed in (0, 1)), failed])
    with open(table, "ab") as file:
        file.write(b'{"schema": 1, "tas')  # of somebody who is writing just now
    before = table.read_bytes()
    assert place.run(f"--known={table}") == 0
    assert [row.attention for row in place.rows()] == ["nystrom"] * 2 + ["linformer"] * 2
    assert table.read_bytes() == before
    capsys.readouterr()
    place.run(f"--known={table}", "--dry_run")
    assert "6 of 6 rows done, 0 missing" in capsys.readouterr().out
    assert table.read_bytes() == before
    with pytest.raises(UserError, match="no rows in other"):
        place.run("--known=other.jsonl")


def test_where_other_files_have_all_rows_the_results_are_an_empty_file(place):
    place.file.write_text(ONE_RUN)
    assert place.run() == 0
    table = place.results.rename(place.root / "table.jsonl")
    shutil.rmtree(place.workdir)
    assert place.run(f"--known={table}") == 0
    assert place.results.read_text() == ""
    assert reading.read([str(place.results), str(table)]).accuracies == records.read(table)


def test_known_rows_of_older_defaults_are_not_in_the_way(place):
    table = place.root / "table.jsonl"
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    older = {"train.learning_rate": 5e-5}
    records.append(table, [row_of(run, seed, **older) for seed in (0, 1)])
    assert place.run(f"--known={table}") == 0
    assert len(place.rows()) == 2


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
    data = Data(str(place.root / "data"), {})
    there = places.Place((), place.results, place.workdir, data)
    placed = places.PlacedRun(run, there, "generated")
    outcome = runner.attempt(placed, Budget(None), Failures(place.workdir))
    assert outcome is runner.Outcome.FAILED


def row_of(run, seed: int, **config) -> Row:
    """A row of `run` from a day when `config` was its default."""
    return make_row(
        task=run.task,
        attention=run.attention,
        seed=seed,
        config=run.config | config,
        config_overrides=run.changed,
        protocol=run.protocol,
    )


def test_rows_of_older_defaults_do_not_count(place, capsys):
    runs = load_sweep(str(place.file)).runs
    older = [row_of(run, 0, **{"train.learning_rate": 1e-3}) for run in runs]
    records.append(place.results, [*older, row_of(runs[0], 1)])
    assert place.run("--dry_run") == 0
    lines = capsys.readouterr().out.splitlines()
    expected = "1 row of older defaults (train.learning_rate=0.001)"
    assert lines[0] == f"older    listops standard, seeds 0: {expected}"
    assert lines[1] == f"older    listops nystrom num_landmarks=32, seeds 0: {expected}"
    assert lines[2].startswith("missing  listops nystrom num_landmarks=32, seeds 1 (")
    assert "1 of 6 rows done, 2 missing, 3 of older defaults" in lines
    assert lines.count(ABOUT_OLDER) == 1

    assert place.run() == 1
    said = capsys.readouterr().err
    assert f"listops standard, seeds 0: {expected}\n" in said
    assert said.count(f"{place.results}: {ABOUT_OLDER}\n") == 1
    assert [start["argv"][-1] for start in place.starts()] == ["--config.seeds=(1,)"] * 2
    assert len(place.rows()) == 6

    # As it was told to.
    lines = place.results.read_bytes().splitlines(keepends=True)
    place.results.write_bytes(b"".join(lines[3:]))
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert not any(older_defaults(row) for row in place.rows())


def test_rows_of_older_defaults_count_in_every_task(place, capsys):
    """Those of the second task too, whose data have another mark."""
    write_data(place.root / "data", "pathfinder", "differs")
    place.file.write_text(
        """RUNS = [
            {"config": f"configs/{task}.py:standard", "seeds": (0, 1)}
            for task in ("listops", "pathfinder")
        ]"""
    )
    marks = {"listops": "generated", "pathfinder": "differs"}
    older = {"train.learning_rate": 1e-3}
    rows = [
        dataclasses.replace(row_of(run, seed, **older), data=marks[run.task])
        for run in load_sweep(str(place.file)).runs
        for seed in (0, 1)
    ]
    records.append(place.results, rows)
    assert place.run() == 1
    text = capsys.readouterr().err
    for task in marks:
        assert f"{task} standard, seeds 0 1: 2 rows of older defaults" in text
    assert place.starts() == []


def test_what_the_report_leaves_out_of_the_table_is_not_done():
    run = load_sweep("configs/sweeps/table.py", ("listops",)).runs[1]
    rows = [
        from_json(to_json(row_of(run, seed, **config)))
        for seed, config in enumerate([{}, {"train.steps": 9}, {"dtype": "bfloat16"}])
    ]
    table = [group for group in report.group(rows) if group.is_table3]
    filled = {row.seed for group in table for *_, cell in group.all_cells() for row in cell.rows}
    done = Done(rows, Data("nowhere", {}))
    assert filled == {0, 2}
    assert set(done.older(run, "generated")) == {1} == set(done.older(run, None))
    assert done.missing(run, "generated") == ()


def test_a_result_of_todays_defaults_counts_before_the_data_are_there(place):
    (run, *_) = load_sweep(str(place.file)).runs
    data = Data("nowhere", {})
    older = row_of(run, 0, **{"train.learning_rate": 1e-3})
    newer = dataclasses.replace(row_of(run, 0), data="official")
    for rows in ([older, newer], [newer, older]):
        assert Done(rows, data).older(run, None) == {}
        assert Done(rows, data).older(run, "generated").keys() == {0}


def test_of_the_results_of_a_key_the_first_says_whether_it_is_of_older_defaults(place):
    """A file of known rows may have another one."""
    (run, *_) = load_sweep(str(place.file)).runs
    older, newer = row_of(run, 0, **{"train.learning_rate": 1e-3}), row_of(run, 0)
    for rows, expected in (([older, newer], {0}), ([newer, older], set())):
        assert Done(rows, Data("nowhere", {})).older(run, "generated").keys() == expected


SHORT = "differs (lengths 501 to 1999, 200 / 20 / 20)"


@pytest.mark.parametrize(
    ("wanted", "counting"),
    [
        ({}, ("official", "generated")),
        ({"data_label": "mine"}, ("mine",)),
        ({"train": 200, "validation": 20, "test": 20}, (SHORT,)),
        ({"train": 200}, ()),
    ],
)
def test_before_the_data_are_there_only_results_on_what_they_may_become_count(
    place, wanted, counting
):
    (run, *_) = load_sweep(str(place.file)).runs
    marks = ("official", "generated", SHORT, "mine")
    for mark in marks:
        rows = [dataclasses.replace(row_of(run, seed), data=mark) for seed in run.seeds]
        done = Done(rows, Data("nowhere", {"listops": wanted}))
        assert done.missing(run, None) == (() if mark in counting else run.seeds)


def test_the_folder_of_older_defaults_is_another_one(place):
    """`train.py` would refuse it, with another configuration in it."""
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    before = dataclasses.replace(run, config=run.config | {"train.learning_rate": 1e-3})
    folder = place.workdir / before.folder("generated")
    older = [row_of(run, seed, **{"train.learning_rate": 1e-3}) for seed in run.seeds]
    folder.mkdir(parents=True)
    records.write_once(folder / "rows.jsonl", older)
    assert place.run() == 0
    assert place.starts()[0]["folder"] != folder.name
    assert [older_defaults(row) for row in place.rows()] == [{}, {}]


def test_ways_of_execution_do_not_make_another_folder(place):
    (run, *_) = load_sweep(str(place.file)).runs
    (again, *_) = load_sweep(str(place.file), overrides=["mesh.data=2"]).runs
    assert run.folder("generated") == again.folder("generated")


def test_seeds_that_were_begun_together_go_on_together(place, capsys):
    """Also when one of them has got its row elsewhere."""
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    assert place.run("--config.seeds=(0,)") == 0
    capsys.readouterr()
    assert place.run("--dry_run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("missing  listops standard, seeds 0 1 (4 of 5000 steps made")
    assert lines[1] == "1 of 2 rows done, 1 missing"
    first = place.rows()
    assert place.run() == 0
    folders = [start["folder"] for start in place.starts()]
    assert folders[0] == folders[2] != folders[1]
    assert len(records.read(place.results)) == 2
    assert place.rows()[0] == first[0]


def test_results_are_told_in_the_order_of_the_seeds(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="in parts") == 75
    assert place.run("--config.seeds=(1,)") == 0
    assert place.run() == 0
    accuracies = {row.seed: row.test_accuracy for row in place.rows()}
    assert list(accuracies) == [1, 0]
    assert accuracies[0] != accuracies[1]
    told = f"seeds 0 1: test accuracy {accuracies[0]:.2%} {accuracies[1]:.2%}"
    assert told in capsys.readouterr().err


def test_seeds_that_are_left_go_on_where_they_were_begun_alone(place):
    place.file.write_text(ONE_RUN)
    assert place.run("--config.seeds=(1,)", standard="in parts") == 75
    assert place.run("--config.seeds=(0,)") == 0
    assert place.run() == 0
    folders = [start["folder"] for start in place.starts()]
    assert folders[0] == folders[2] != folders[1]
    assert "--config.seeds=(1,)" in place.starts()[2]["argv"]


def test_whole_runs_keep_the_names_of_their_folders(place):
    """The sweep finds what an earlier version has begun."""
    run = load_sweep(str(place.file)).runs[1]
    overrides = ("seeds=(0, 1)", "model.attention.num_landmarks=32")
    config = flatten(load_config("configs/listops.py:nystrom", overrides))
    facts = json.dumps([run.key(0, "generated"), [0, 1], without_execution(config)])
    expected = hashlib.sha256(facts.encode()).hexdigest()[:8]
    assert run.folder("generated") == f"listops-nystrom-num_landmarks=32-{expected}"


def test_a_training_without_a_step_has_not_begun(place):
    place.file.write_text(ONE_RUN)
    (run,) = load_sweep(str(place.file)).runs
    folder = place.workdir / run.folder("generated")
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    assert place.run("--config.seeds=(0,)") == 0
    assert place.run() == 0
    assert "--config.seeds=(1,)" in place.starts()[1]["argv"]


def test_seeds_that_were_begun_beside_others_go_on(place):
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    assert place.run("--config.seeds=(2,)") == 0
    assert place.run(standard="in parts") == 75
    assert place.run("--config.seeds=(0,)") == 0
    assert place.run() == 0
    folders = [start["folder"] for start in place.starts()]
    assert folders[1] == folders[3]
    assert "--config.seeds=(0, 1)" in place.starts()[3]["argv"]
    assert [row.seed for row in records.read(place.results)] == [2, 0, 1]


def test_rows_are_taken_in_where_their_data_are_not(place):
    """Trained on one machine, brought to another."""
    write_data(place.root / "data", "text")
    place.file.write_text("RUNS = [{'config': 'configs/text.py:nystrom'}]")
    place.run()
    rows = place.rows()
    place.results.unlink()
    shutil.rmtree(place.root / "data" / "text")
    assert place.run() == 0
    assert place.rows() == rows
    assert len(place.starts()) == 1


def test_rows_are_taken_in_before_data_are_generated(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    place.results.unlink()
    shutil.rmtree(place.root / "data" / "listops")
    assert place.run() == 0
    assert len(place.rows()) == 2
    assert "generating" not in capsys.readouterr().err


def test_dry_run_says_what_is_done_and_not_yet_copied(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    place.results.unlink()
    capsys.readouterr()
    before = sorted(place.root.rglob("*"))
    assert place.run("--dry_run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"done     listops standard, seeds 0 1 (not yet copied) in {place.starts()[0]['folder']}",
        "2 of 2 rows done, 0 missing",
    ]
    assert sorted(place.root.rglob("*")) == before


def test_a_part_of_an_evaluation_is_progress_unless_it_is_only_saved_again(tmp_path):
    folder = Workdir(tmp_path)
    folder.evaluations.mkdir()
    part = folder.evaluations / "test-best.npz"
    seen = [under_way.fingerprint(folder)]
    for done in (1, 2, 2):
        np.savez(part, done=done)
        seen.append(under_way.fingerprint(folder))
    assert seen[0] != seen[1] != seen[2] == seen[3]


def test_rows_on_other_data_of_the_same_mark_are_not_taken_in(place, capsys):
    """Such as those prepared with another seed."""
    place.file.write_text(ONE_RUN)
    place.run()
    place.results.unlink()
    write_data(place.root / "data", "listops", example=b"\x03\x04")
    place.run("--dry_run")
    assert "2 missing" in capsys.readouterr().out
    assert place.run() == 1  # train.py refuses the folder, which has a run on other data
    assert {row.status for row in place.rows()} == {"failed"}
    place.results.unlink()
    write_data(place.root / "data", "listops")
    place.run("--dry_run")
    assert "0 missing" in capsys.readouterr().out
    assert place.run() == 0
    assert {row.status for row in place.rows()} == {"ok"}


def test_rows_of_seeds_that_are_not_asked_for_are_not_taken_in(place):
    place.file.write_text(ONE_RUN)
    place.run()
    place.results.unlink()
    assert place.run("--config.seeds=(1,)") == 0
    assert [row.seed for row in place.rows()] == [1]
    assert len(place.starts()) == 1


@pytest.mark.parametrize("present", [True, False])
def test_rows_on_other_data_are_not_taken_in(place, capsys, present):
    """They are neither of the data there are nor of those that would be generated."""
    place.file.write_text(ONE_RUN)
    write_data(place.root / "data", "listops", mark="mine")
    place.run()
    assert {row.data for row in place.rows()} == {"mine"}
    place.results.unlink()
    shutil.rmtree(place.root / "data" / "listops")
    if present:
        write_data(place.root / "data", "listops")
        assert place.run() == 0
        assert {row.data for row in place.rows()} == {"generated"}
        assert len(place.starts()) == 2
    else:
        place.run("--dry_run")
        assert "2 missing" in capsys.readouterr().out
        data, files = Data(str(place.root / "data"), {}), place.workdir.glob("*/rows.jsonl")
        runs, takes = load_sweep(str(place.file)).runs, places.of_sweep(data)
        assert places.find(runs, files, takes) == ([], {})
