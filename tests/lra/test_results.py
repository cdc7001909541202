"""Rows of complete runs, and rows that are not those of a run."""

import shutil

import numpy as np
import pytest

from lra import records
from lra.errors import UserError
from lra.evaluation import evaluate_workdir
from lra.loop import train
from lra.warm_start import initial_state
from tests.lra.conftest import write_listops


@pytest.fixture
def first_seed_broken(monkeypatch):
    """Trainings whose first seed diverges at step 0."""

    def broken(trainer):
        state = initial_state(trainer)
        scale = state.params["encoder"]["norm"]["scale"]
        scale[...] = scale[...].at[0].set(np.inf)
        return state

    monkeypatch.setattr("lra.loop.initial_state", broken)


def test_a_seed_that_diverged_at_step_0_is_told_of(
    tiny_config, data_dir, tmp_path, capsys, first_seed_broken
):
    config = tiny_config("listops", "standard", "seeds=(5, 0)")
    assert train(config, tmp_path, data_dir) == 0
    assert train(config, tmp_path, data_dir) == 0  # complete, and one seed has a result
    capsys.readouterr()
    evaluate_workdir(tmp_path, predictions=tmp_path / "out.npz")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "seed 5: diverged at step 0, no accuracy"
    assert second.startswith("seed 0: test accuracy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["diverged"], [True, False])


def test_steps_are_those_up_to_the_last_divergence(
    tiny_config, data_dir, tmp_path, first_seed_broken
):
    overrides = ("train.learning_rate=1e30", "train.steps_per_call=3", "seeds=(5, 0)")
    assert train(tiny_config("listops", "standard", *overrides), tmp_path, data_dir) == 1
    rows = records.read(tmp_path / "rows.jsonl")
    assert [row.diverged_step for row in rows] == [0, 1]
    assert [row.steps for row in rows] == [2, 2]


@pytest.mark.parametrize(("holdout", "expected"), [(0.0, True), (0.2, False)])
def test_a_validation_on_the_test_set_is_in_the_row(
    holdout, expected, tiny_config, data_dir, tmp_path
):
    config = tiny_config("text", "linear", "train.steps=2", f"data.holdout={holdout}")
    assert train(config, tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.val_is_test is expected


def test_copied_rows_of_other_data_with_the_same_mark_are_refused(tiny_config, data_dir, tmp_path):
    config = tiny_config("listops", "linear", "train.steps=2")
    assert train(config, tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    write_listops(tmp_path / "others", seed=1)
    assert train(config, tmp_path / "copy", data_dir) == 0
    with pytest.raises(UserError, match="has rows of another configuration or other data"):
        train(config, tmp_path / "copy", tmp_path / "others")


def test_rows_of_other_seeds_are_not_those_of_a_run(tiny_config, data_dir, tmp_path):
    assert train(tiny_config("listops", "linear", "train.steps=2"), tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    config = tiny_config("listops", "linear", "train.steps=2", "seeds=(1,)")
    with pytest.raises(UserError, match="has the rows of"):
        train(config, tmp_path / "copy", data_dir)
