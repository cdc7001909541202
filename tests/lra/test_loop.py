"""The real loop in miniature: complete runs, stops, resumes, rows, evaluation afterwards."""

import itertools
import json
import pathlib
import shutil

import filelock
import jax
import numpy as np
import pytest

from lra import environment, records
from lra.ahead import Ahead
from lra.checkpoints import Checkpoints
from lra.errors import UserError
from lra.evaluation_files import SavedEvaluations
from lra.evaluation_run import Evaluation
from lra.loop import train
from lra.pace import Pace
from lra.stopping import STATUS_STOPPED, Stop
from lra.trainer import Trainer
from lra.workdir import Workdir
from tests.lra.conftest import ALL_DEVICES, ONE_DEVICE
from tests.lra.trainings import assert_same_bits, final_state

pytestmark = pytest.mark.usefixtures("shared_programs")

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_folder_in_use_is_refused_before_anything_is_loaded(tiny_config, tmp_path):
    folder = Workdir(tmp_path / "run")
    folder.root.mkdir()
    with (
        filelock.FileLock(folder.lock),
        pytest.raises(UserError, match="run: another process is training in this workdir"),
    ):
        train(tiny_config(), folder.root, tmp_path / "no data")
    with pytest.raises(UserError, match="no prepared listops"):
        train(tiny_config(), folder.root, tmp_path / "no data")


def test_a_config_file_that_is_refused_by_itself_is_before_anything_is_written(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    def refuse(task, attention):
        raise UserError(f"configs/{task}.py:{attention} is refused")

    monkeypatch.setattr("lra.protocol._defaults", refuse)
    with pytest.raises(UserError, match=r"configs/listops.py:\w+ is refused"):
        train(tiny_config(), tmp_path / "run", data_dir)
    assert not (tmp_path / "run").exists()


def test_a_run_writes_rows_metrics_and_a_checkpoint(
    tiny_config, data_dir, tmp_path, capsys, monkeypatch
):
    overrides = ("seeds=(0, 5)", "train.steps_per_call=4", *ALL_DEVICES)
    config = tiny_config("listops", "performer", *overrides)
    assert train(config, tmp_path, data_dir) == 0
    output, said = capsys.readouterr()
    assert output == ""
    start, pace, *_ = [line for line in said.splitlines() if "|" not in line]
    assert start.startswith("listops performer, ")
    where = f"in float32 on 8 x {environment.device_name()}, in "
    assert f" parameters, seeds 0 5, to step 12, {where}" in start
    assert pace.startswith("first call after ")
    rows = records.read(tmp_path / "rows.jsonl")
    assert [row.seed for row in rows] == [0, 5]
    for row in rows:
        assert (row.task, row.attention, row.status) == ("listops", "performer", "ok")
        assert row.protocol.startswith("changed: ")
        assert "train.steps=12" in row.protocol
        assert row.best_step in (5, 10, 12)
        assert row.steps == 12
        assert row.data == "tiny"
        assert row.wall_seconds > 0
        assert row.peak_memory_mb > 0
        assert row.config["train.learning_rate"] == 1e-2
        assert (row.commit, row.versions) == (environment.commit(), environment.versions())
        assert row.deterministic
        for accuracy in (row.test_accuracy, row.test_accuracy_last, row.val_accuracy):
            assert 0 <= accuracy <= 1
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "eval"] == [5, 10, 12]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [4, 5, 9, 10, 12]
    assert all(len(line["accuracy"]) == 2 for line in lines)

    capsys.readouterr()
    assert train(config, tmp_path, data_dir) == 0
    assert "is complete: nothing to do" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(environment, "commit", lambda: "other")
        assert train(config, tmp_path, data_dir) == 0
    expected = f"is complete, by commit {rows[0].commit} (now other): nothing to do"
    assert expected in capsys.readouterr().out
    assert records.read(tmp_path / "rows.jsonl") == rows

    # Rows alone, as copied from elsewhere: complete only for their own run.
    other = tmp_path / "copy"
    other.mkdir()
    shutil.copy(tmp_path / "rows.jsonl", other)
    assert train(config, other, data_dir) == 0
    for changed in (
        tiny_config("listops", "linear", *overrides),
        tiny_config("listops", "performer", *overrides, "train.steps=13"),
    ):
        with pytest.raises(UserError, match="has rows of another configuration or other data"):
            train(changed, other, data_dir)
    assert [path.name for path in other.iterdir() if path.name != ".lock"] == ["rows.jsonl"]

    content = (tmp_path / "rows.jsonl").read_bytes()
    for cut in (-100, content.index(b"\n") + 1, 0):  # as by a copy that was not finished
        (tmp_path / "rows.jsonl").write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"rows\.jsonl has the rows of [01] of 2 seeds; move"):
            train(config, tmp_path, data_dir)
    (tmp_path / "rows.jsonl").unlink()
    assert train(config, tmp_path, data_dir) == 0
    again = records.read(tmp_path / "rows.jsonl")
    assert [row.test_accuracy for row in again] == [row.test_accuracy for row in rows]


def test_tensorboard_gets_every_metric_of_every_seed(tiny_config, data_dir, tmp_path):
    pytest.importorskip("tensorboardX")
    config = tiny_config("listops", "performer", "seeds=(0, 5)", "train.steps_per_call=4")
    assert train(config, tmp_path, data_dir, tensorboard=True) == 0
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    for kind, metric, seed in itertools.product(
        ("train", "validation"), ("loss", "accuracy"), (0, 5)
    ):
        assert f"{kind}/{metric}/seed_{seed}".encode() in content


@pytest.mark.parametrize(
    "questions", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4, 9))]
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    tiny_config, data_dir, tmp_path, stop_after, questions
):
    overrides = ("seeds=(0, 1)", "train.steps_per_call=2", "model.attention.redraw_steps=3")
    config = tiny_config("listops", "performer", *overrides)
    assert train(config, tmp_path / "whole", data_dir) == 0
    stop_after(questions)
    assert train(config, tmp_path / "parts", data_dir) == STATUS_STOPPED
    assert not (tmp_path / "parts" / "rows.jsonl").exists()
    stop_after(10**9)
    assert train(config, tmp_path / "parts", data_dir) == 0
    whole, _ = final_state(config, data_dir, tmp_path / "whole")
    parts, progress = final_state(config, data_dir, tmp_path / "parts")
    assert progress.step == 12
    assert_same_bits(whole, parts)
    evaluations = [
        [
            (line["step"], line["accuracy"], line["loss"])
            for line in map(json.loads, (tmp_path / run / "metrics.jsonl").read_text().splitlines())
            if line["kind"] == "eval"
        ]
        for run in ("whole", "parts")
    ]
    assert evaluations[0] == evaluations[1]


def test_slow_calls_are_saved_in_time(tiny_config, data_dir, tmp_path, monkeypatch):
    """A checkpoint cannot begin within a call, so it begins before it is due."""
    saved, real = [], Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", lambda *_: saved.append(_[2].step) or real(*_))
    monkeypatch.setattr("lra.pace._FIRST_SAVE_SECONDS", 3600)  # longer than this test may take
    overrides = ("train.steps_per_call=1", "train.checkpoint_seconds=1000000")
    config = tiny_config("listops", "linear", *overrides)
    assert train(config, tmp_path / "quick", data_dir) == 0
    assert saved == [12]
    saved.clear()
    monkeypatch.setattr(Pace, "call_seconds", 3601.0)
    assert train(config, tmp_path / "slow", data_dir) == 0
    assert saved == [1, 12]  # the next is due only after `train.checkpoint_seconds`


@pytest.mark.parametrize("waits_in", ["train", "fetch"])
def test_calls_become_a_second_long_wherever_they_are_waited_for(
    tiny_config, data_dir, tmp_path, monkeypatch, waits_in
):
    """Steps of a quarter of a second by a clock of our own; dispatching a call may wait for it."""
    now, asked = [100.0], []
    monkeypatch.setattr("lra.loop.time.monotonic", lambda: now[0])
    real_train, real_fetch = Trainer.train, Trainer.fetch

    def wait(where):
        if where == waits_in and asked:
            now[0] += 0.25 * asked.pop()

    def train_and_note(self, state, start, count):
        asked.append(count)
        wait("train")
        return real_train(self, state, start, count)

    def wait_and_fetch(self, tree):
        wait("fetch")
        return real_fetch(self, tree)

    monkeypatch.setattr(Trainer, "train", train_and_note)
    monkeypatch.setattr(Trainer, "fetch", wait_and_fetch)
    config = tiny_config("listops", "linear", "train.eval_every=12")
    assert train(config, tmp_path, data_dir) == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    calls = [line for line in lines if line["kind"] == "train"]
    assert [call["step"] for call in calls] == [1, 2, 6, 10, 12]
    assert {call["examples_per_second"] for call in calls} == {32.0}


def test_speed_and_memory_are_those_of_the_devices_named(
    tiny_config, data_dir, tmp_path, stop_after, monkeypatch
):
    peaks = [9000.0]  # that of a start last
    monkeypatch.setattr(environment, "peak_memory_mb", lambda: peaks[-1])
    common = ("listops", "linear", "train.steps_per_call=1")
    stop_after(9)
    long_ago = Stop()
    long_ago.started -= 3600
    config = tiny_config(*common, "mesh.data=2")
    assert train(config, tmp_path, data_dir, stop=long_ago) == STATUS_STOPPED
    stop_after(0)  # with nothing done on these four, they have no part in the run
    assert train(tiny_config(*common, "mesh.data=4"), tmp_path, data_dir) == STATUS_STOPPED
    config = tiny_config(*common)
    _, before = final_state(config, data_dir, tmp_path)
    assert (before.num_devices, before.peak_memory_mb) == (2, 9000.0)
    assert before.train_examples == 8 * (before.step - 1)  # the first call compiles
    for peak, questions, status in ((7.0, 2, STATUS_STOPPED), (5.0, 10**9, 0)):
        peaks.append(peak)
        stop_after(questions)
        assert train(config, tmp_path, data_dir) == status
    _, after = final_state(config, data_dir, tmp_path)
    assert after.train_examples == 8 * (12 - before.step - 2)
    (row,) = records.read(tmp_path / "rows.jsonl")
    name = environment.device_name()
    assert (row.num_devices, row.device) == (1, f"2 x {name}, {name}")
    assert row.examples_per_second == after.train_examples / after.train_seconds
    assert row.peak_memory_mb == 7.0  # the most of its starts
    assert row.wall_seconds > before.wall_seconds > 3600


def test_a_process_that_only_writes_the_rows_has_no_part_in_the_run(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as first:
        first.setattr("lra.loop.write_once", killed)
        first.setattr(environment, "peak_memory_mb", lambda: 7.0)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_config("listops", "linear"), tmp_path, data_dir)
    expected = environment.device_name()
    saved = sorted((tmp_path / "checkpoints").iterdir())
    monkeypatch.setattr(environment, "device_name", lambda: "another device")
    monkeypatch.setattr(environment, "devices_name", lambda number: f"{number} x another device")
    monkeypatch.setattr(environment, "peak_memory_mb", lambda: 9000.0)
    assert train(tiny_config("listops", "linear"), tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert (row.device, row.peak_memory_mb) == (expected, 7.0)
    assert sorted((tmp_path / "checkpoints").iterdir()) == saved


def test_a_row_has_the_accuracies_of_the_best_and_of_the_last_parameters(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    accuracies = {"validation-5": 6 / 13, "validation-10": 5 / 13, "validation-12": 3 / 13}
    accuracies |= {"test-best": 0.75, "test-last": 0.125}
    seen = {}

    def evaluate(self, name, params, rest, split, before_call):
        leaves = [np.array(leaf) for leaf in jax.tree.leaves((params, rest))]
        seen[name] = split, [leaf.tobytes() for leaf in leaves]
        return Evaluation(
            np.float32([accuracies[name]] * 2), np.float32([1, 1]), np.zeros((2, 1, 10))
        )

    monkeypatch.setattr(SavedEvaluations, "evaluate", evaluate)
    overrides = ("seeds=(0, 1)", "model.attention.redraw_steps=5")
    assert train(tiny_config("listops", "performer", *overrides), tmp_path, data_dir) == 0
    for row in records.read(tmp_path / "rows.jsonl"):
        assert (row.val_accuracy, row.best_step) == (6 / 13, 5)
        assert (row.test_accuracy, row.test_accuracy_last) == (0.75, 0.125)
    assert seen["test-best"] == ("test", seen["validation-5"][1])
    assert seen["test-last"] == ("test", seen["validation-12"][1])
    assert seen["test-best"] != seen["test-last"]


@pytest.mark.parametrize("mesh", [ONE_DEVICE, ALL_DEVICES], ids=["one", "all"])
def test_a_run_places_all_its_arrays_itself(tiny_config, data_dir, tmp_path, stop_after, mesh):
    """Under a guard that refuses every transfer nobody asked for, also when it is gone on with."""
    config = tiny_config(
        "listops", "performer", "model.attention.redraw_steps=6", "seeds=(0, 1)", *mesh
    )
    with jax.transfer_guard("disallow"):
        stop_after(4)
        assert train(config, tmp_path, data_dir) == STATUS_STOPPED
        stop_after(10**9)
        assert train(config, tmp_path, data_dir) == 0


def test_speed_counts_the_examples_of_every_seed(tiny_config, data_dir, tmp_path):
    config = tiny_config("listops", "performer", "seeds=(3, 5)")
    assert train(config, tmp_path, data_dir) == 0
    _, progress = final_state(config, data_dir, tmp_path)
    assert progress.train_examples == 2 * 8 * (12 - 1)  # the first call, of one step, compiles


def test_calls_beside_a_compilation_tell_no_speed(tiny_config, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(Ahead, "is_compiling", True)
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path, data_dir) == 0
    assert final_state(config, data_dir, tmp_path)[1].train_examples == 0
    assert records.read(tmp_path / "rows.jsonl")[0].examples_per_second is None


def test_a_validation_that_a_checkpoint_has_is_not_saved_once_more(
    tiny_config, data_dir, tmp_path, stop_after
):
    stop_after(9)
    config = tiny_config("listops", "linear", "train.steps_per_call=1")
    assert train(config, tmp_path, data_dir) == STATUS_STOPPED
    assert 5 < final_state(config, data_dir, tmp_path)[1].step < 10
    assert not (tmp_path / "evaluations").exists()
