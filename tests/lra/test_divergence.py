"""Runs of which one seed or all diverge."""

import numpy as np
import pytest

from lra import records
from lra.analysis.inputs import trained_inputs
from lra.errors import UserError
from lra.evaluation import evaluate_workdir
from lra.loop import train
from lra.restored import load_model, restore_workdir
from tests.lra.trainings import final_state

pytestmark = pytest.mark.usefixtures("shared_programs")


def test_every_seed_diverged_ends_with_rows_that_say_so(tiny_config, data_dir, tmp_path, capsys):
    overrides = ("train.learning_rate=1e30", "train.steps_per_call=3", "seeds=(0, 1)")
    config = tiny_config("listops", "linear", *overrides)
    assert train(config, tmp_path, data_dir) == 1
    rows = records.read(tmp_path / "rows.jsonl")
    assert [row.status for row in rows] == ["diverged"] * 2
    assert all(row.test_accuracy is None and row.diverged_step == 1 for row in rows)
    # The call in which this happened made a further step; it was the last.
    assert {row.steps for row in rows} == {2}
    assert final_state(config, data_dir, tmp_path)[1].step == 3
    capsys.readouterr()
    predictions = tmp_path / "out.npz"
    evaluate_workdir(tmp_path, predictions=predictions)
    assert capsys.readouterr().out.splitlines() == [
        f"seed {row.seed}: diverged at step {row.diverged_step}, no accuracy" for row in rows
    ]
    np.testing.assert_array_equal(np.load(predictions)["diverged"], [True, True])
    assert train(config, tmp_path, data_dir) == 1


def test_a_seed_that_diverges_is_told_once_and_the_others_have_their_rows(
    tiny_config, data_dir, tmp_path, capsys, first_seed_broken
):
    config = tiny_config("listops", "linear", "seeds=(5, 0)")
    assert train(config, tmp_path, data_dir) == 0
    assert capsys.readouterr().err.count("seed 5 diverged at step 0") == 1
    broken, sound = records.read(tmp_path / "rows.jsonl")
    assert (broken.status, broken.diverged_step, broken.test_accuracy) == ("diverged", 0, None)
    assert (sound.status, sound.diverged_step, sound.steps) == ("ok", None, 12)
    assert sound.test_accuracy is not None
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
    assert train(tiny_config("listops", "linear", *overrides), tmp_path, data_dir) == 1
    rows = records.read(tmp_path / "rows.jsonl")
    assert [row.diverged_step for row in rows] == [0, 1]
    assert [row.steps for row in rows] == [2, 2]


@pytest.mark.slow
def test_a_seed_that_its_last_step_destroys_has_diverged(tiny_config, data_dir, tmp_path, capsys):
    config = tiny_config(
        *("listops", "linear", "train.learning_rate=1e30", "train.warmup_steps=0"),
        *("train.steps=1", "seeds=(0, 1)"),
    )
    assert train(config, tmp_path, data_dir) == 1
    rows = records.read(tmp_path / "rows.jsonl")
    assert [(row.status, row.diverged_step, row.steps) for row in rows] == [("diverged", 1, 1)] * 2
    assert (
        "seed 0 diverged at step 1 (loss, gradient or parameters not finite)"
        in capsys.readouterr().err
    )
    evaluate_workdir(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        f"seed {seed}: diverged at step 1, no accuracy" for seed in (0, 1)
    ]
    with pytest.raises(UserError, match=r"seed 0 diverged at step 1, .*choose another seed or run"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="seed 0 has parameters that are not finite at step 1"):
        trained_inputs(restore_workdir(tmp_path), seed=0, examples=2, length=14, last=True)
