"""Evaluating what a training left, complete or not."""

import numpy as np
import pytest

from lra import evaluation, records
from lra.data import prepared
from lra.errors import UserError
from lra.evaluation import evaluate_workdir
from lra.loop import train
from lra.restored import restore_workdir
from lra.stopping import STATUS_STOPPED, Stop
from tests.lra.trainings import restored_with_other_last_parameters

pytestmark = pytest.mark.usefixtures("shared_programs")


@pytest.fixture(scope="module")
def trained(tiny_config, data_dir, tmp_path_factory):
    """The folder of a run of two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    assert train(tiny_config("listops", "linear", "seeds=(0, 1)"), folder, data_dir) == 0
    return folder


def test_evaluation_afterwards_gives_the_row(tiny_config, data_dir, tmp_path, capsys, monkeypatch):
    config = tiny_config("listops", "performer", "seeds=(0, 5)", "model.attention.redraw_steps=4")
    train(config, tmp_path / "run", data_dir)
    row = records.read(tmp_path / "run" / "rows.jsonl")[1]
    monkeypatch.chdir(tmp_path)
    predictions = tmp_path / "out.npz"
    evaluate_workdir(tmp_path / "run", predictions=predictions)
    assert f"seed 5: test accuracy {row.test_accuracy:.4f}" in capsys.readouterr().out
    found = np.load(predictions)
    assert found["stored_split"] == "test"
    np.testing.assert_array_equal(found["index"], np.arange(21))
    np.testing.assert_array_equal(found["seeds"], [0, 5])
    np.testing.assert_array_equal(found["diverged"], [False, False])
    assert row.test_accuracy == (found["logits"][1].argmax(-1) == found["label"]).mean()


def test_predictions_are_there_when_a_pipe_closes(held_out, tmp_path, monkeypatch):
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    with pytest.raises(BrokenPipeError):
        evaluate_workdir(held_out, predictions=tmp_path / "out.npz")
    assert len(np.load(tmp_path / "out.npz")["label"]) == 21


def test_the_row_of_a_validation_is_its_quotient_in_float64(held_out, tmp_path):
    evaluate_workdir(held_out, split="validation", predictions=tmp_path / "out.npz")
    found = np.load(tmp_path / "out.npz")
    correct = (found["logits"].argmax(-1) == found["label"]).sum(1)
    for row, count in zip(records.read(held_out / "rows.jsonl"), correct, strict=True):
        assert row.val_accuracy == count / 10


@pytest.mark.parametrize(("split", "count"), [("train", 40), ("validation", 10)])
def test_predictions_say_where_their_examples_are_stored(
    split, count, held_out, data_dir, tmp_path
):
    evaluate_workdir(held_out, split=split, predictions=tmp_path / "out.npz")
    found = np.load(tmp_path / "out.npz")
    stored = prepared.load(data_dir, "listops").split(str(found["stored_split"]))
    assert len(found["index"]) == len(np.unique(found["index"])) == count
    np.testing.assert_array_equal(stored.labels[found["index"]], found["label"])
    # In the tiny data the first symbol says the label.
    first = stored.sequences.tokens[stored.sequences.offsets[found["index"]]]
    np.testing.assert_array_equal(first % 10, found["label"])


def test_smaller_batches_give_the_same_evaluation(held_out, tmp_path, capsys):
    said, logits = [], []
    for size in (None, 3):
        evaluate_workdir(held_out, predictions=tmp_path / "out.npz", eval_batch_size=size)
        said.append(capsys.readouterr().out)
        logits.append(np.load(tmp_path / "out.npz")["logits"])
    assert said[0] == said[1]
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.parametrize(("best_step", "count"), [(0, 1), (5, 1), (6, 2), ((5, 6), 2)])
def test_parameters_that_are_best_and_last_are_evaluated_once(
    trained, monkeypatch, best_step, count
):
    restored = restore_workdir(trained, splits=("test",))
    best = restored.state.best
    changed = restored.state._replace(
        best=best._replace(
            step=np.full_like(best.step, best_step),
            val_accuracy=np.full_like(best.val_accuracy, 0.5 if best_step else -1),
        )
    )
    monkeypatch.setattr(
        evaluation, "restore_workdir", lambda *_, **__: restored._replace(state=changed, step=5)
    )
    calls = []
    evaluate = evaluation.evaluate
    monkeypatch.setattr(evaluation, "evaluate", lambda *a: calls.append(a) or evaluate(*a))
    evaluate_workdir(trained)
    assert len(calls) == count


def test_features_redrawn_after_the_last_step_are_not_taken_for_those_of_the_best(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    config = tiny_config("listops", "performer", "seeds=(0, 5)", "train.eval_every=12")
    assert train(config, tmp_path / "run", data_dir) == 0
    restored = restore_workdir(tmp_path / "run", splits=("test",))
    assert (np.asarray(restored.state.best.step) == 12).all()

    def predictions(state, name):
        changed = restored._replace(state=state)
        monkeypatch.setattr(evaluation, "restore_workdir", lambda *_, **__: changed)
        evaluate_workdir(tmp_path / "run", predictions=tmp_path / name)
        return np.load(tmp_path / name)["logits"]

    expected = predictions(restored.state, "before.npz")
    redrawn = restored.trainer.redraw(restored.state, 12)
    np.testing.assert_array_equal(predictions(redrawn, "after.npz"), expected)


def test_predictions_need_a_validation(tiny_config, data_dir, tmp_path, capsys):
    folder, predictions = tmp_path / "run", tmp_path / "out.npz"
    config = tiny_config("listops", "linear", "seeds=(0, 1)")
    assert train(config, folder, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    capsys.readouterr()
    with pytest.raises(UserError, match=r"run has no validation yet \(step 0\), so no best param"):
        evaluate_workdir(folder, predictions=predictions)
    assert capsys.readouterr().out == ""
    assert not predictions.exists()


def test_best_and_last_parameters_are_told_apart(trained, capsys, monkeypatch):
    changed = restored_with_other_last_parameters(trained)
    _, trainer, state, _, _ = changed
    best, other = (
        evaluation.evaluate(trainer, params, state.rest, "test").accuracy
        for params in (state.best.params, state.params)
    )
    assert (abs(best - other) > 0.01).all()
    monkeypatch.setattr(evaluation, "restore_workdir", lambda *_, **__: changed)
    capsys.readouterr()
    evaluate_workdir(trained)
    assert capsys.readouterr().out.splitlines() == [
        f"seed {seed}: test accuracy {best[seed]:.4f} with the parameters of step "
        f"{state.best.step[seed]}, {other[seed]:.4f} with those of step 12"
        for seed in (0, 1)
    ]


def test_a_validation_without_a_correct_answer_is_one(trained, tmp_path, capsys, monkeypatch):
    restored = restore_workdir(trained, splits=("test",))
    best = restored.state.best
    zero = best._replace(val_accuracy=np.zeros_like(best.val_accuracy))
    changed = restored._replace(state=restored.state._replace(best=zero))
    monkeypatch.setattr(evaluation, "restore_workdir", lambda *_, **__: changed)
    capsys.readouterr()
    evaluate_workdir(trained, predictions=tmp_path / "out.npz")
    assert "no validation yet" not in capsys.readouterr().out
