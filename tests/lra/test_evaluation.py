"""Evaluating what a training left, complete or not."""

import jax
import numpy as np
import pytest

from lra import evaluation, records
from lra.errors import UserError
from lra.evaluation import evaluate_workdir
from lra.loop import train
from lra.stopping import STATUS_STOPPED, Stop


def test_evaluation_afterwards_gives_the_row(tiny_config, data_dir, tmp_path, capsys, monkeypatch):
    config = tiny_config("listops", "performer", "seeds=(0, 5)", "model.attention.redraw_steps=4")
    train(config, tmp_path / "run", data_dir)
    row = records.read(tmp_path / "run" / "rows.jsonl")[1]
    monkeypatch.chdir(tmp_path)
    predictions = tmp_path / "out.npz"
    assert evaluate_workdir(tmp_path / "run", predictions=predictions) == 0
    assert f"seed 5: test accuracy {row.test_accuracy:.4f}" in capsys.readouterr().out
    arrays = np.load(predictions)
    np.testing.assert_array_equal(arrays["index"], np.arange(21))
    np.testing.assert_array_equal(arrays["seeds"], [0, 5])
    np.testing.assert_array_equal(arrays["diverged"], [False, False])
    accuracy = (arrays["logits"][1].argmax(-1) == arrays["label"]).mean()
    np.testing.assert_allclose(accuracy, row.test_accuracy, atol=1e-6)


def test_evaluating_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        evaluate_workdir(tmp_path)


def test_predictions_need_a_validation(tiny_config, data_dir, tmp_path, capsys):
    folder, predictions = tmp_path / "run", tmp_path / "out.npz"
    assert train(tiny_config(), folder, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    capsys.readouterr()
    with pytest.raises(UserError, match=r"run has no validation yet \(step 0\), so no best param"):
        evaluate_workdir(folder, predictions=predictions)
    assert capsys.readouterr().out == ""
    assert not predictions.exists()


def test_best_and_last_parameters_are_told_apart(
    tiny_config, data_dir, tmp_path, capsys, monkeypatch
):
    assert train(tiny_config(), tmp_path, data_dir) == 0
    restored = evaluation.restore_workdir(tmp_path, splits=("test",))
    trainer, state = restored.trainer, restored.state
    last = jax.tree.map(lambda x: -x, state.params)
    best, other = (
        evaluation.evaluate(trainer, params, state.rest, "test").accuracy[0]
        for params in (state.best.params, last)
    )
    assert abs(best - other) > 0.01
    changed = restored._replace(state=state._replace(params=last))
    monkeypatch.setattr(evaluation, "restore_workdir", lambda *_, **__: changed)
    capsys.readouterr()
    assert evaluate_workdir(tmp_path) == 0
    assert capsys.readouterr().out == (
        f"seed 0: test accuracy {best:.4f} with the parameters of step {state.best.step[0]}, "
        f"{other:.4f} with those of step 12\n"
    )
