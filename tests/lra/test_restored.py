"""The models of a run, loaded from its folder."""

import itertools
import shutil

import numpy as np
import pytest

import lra.restored
from lra import arrays
from lra.checkpoints import Checkpoints
from lra.errors import UserError
from lra.evaluation import evaluate
from lra.loop import train
from lra.restored import load_model
from lra.stopping import STATUS_STOPPED, Stop
from tests.lra.trainings import restored_with_other_last_parameters


def test_a_loaded_model_gives_the_logits_of_the_evaluation(held_out, monkeypatch):
    restored = restored_with_other_last_parameters(held_out)
    data, trainer, state, _ = restored
    monkeypatch.setattr(lra.restored, "restore_workdir", lambda *_, **__: restored)
    examples = arrays.load_examples(data, ("validation",), holdout=0.2)["validation"]
    batch = arrays.gather(examples, np.arange(4), trainer.task, zero_is_padding=False)

    def logits(*arguments, **options):
        return load_model(held_out, *arguments, **options)(batch.ids, batch.mask)

    for last, chosen in ((False, state.best), (True, state)):
        expected = evaluate(trainer, chosen.params, chosen.rest, "validation").logits
        for row, seed in enumerate((3, 5)):
            found = logits(seed, last=last)
            np.testing.assert_allclose(found, expected[row, :4], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(logits(), logits(3))
    distinct = [logits(3), logits(5), logits(3, last=True), logits(5, last=True)]
    for one, other in itertools.combinations(distinct, 2):
        assert np.max(np.abs(one - other)) > 1e-2


def test_a_model_of_a_seed_that_the_run_has_not_is_refused(held_out):
    with pytest.raises(UserError, match="the run has no seed 4, only 3, 5"):
        load_model(held_out, 4)


def test_the_best_model_needs_a_validation(tiny_config, data_dir, tmp_path):
    assert train(tiny_config(), tmp_path, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    with pytest.raises(UserError, match=r"seed 0 has no validation yet \(step 0\), .*last=True"):
        load_model(tmp_path)
    assert load_model(tmp_path, last=True).length == 16


def test_a_checkpoint_that_a_training_replaces_meanwhile_is_not_missed(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    config = tiny_config("listops", "linear", "train.steps=5", "train.checkpoint_seconds=0")
    assert train(config, tmp_path, data_dir) == 0
    check, numbers = Checkpoints._check_shapes, []

    def removed_meanwhile(self, number, abstract_state):
        numbers.append(number)
        if len(numbers) == 1:
            shutil.rmtree(tmp_path / "checkpoints" / str(number))
        check(self, number, abstract_state)

    monkeypatch.setattr(Checkpoints, "_check_shapes", removed_meanwhile)
    assert load_model(tmp_path).length == 16
    assert numbers == [numbers[0], numbers[0] - 1]


def test_data_that_were_moved_can_be_given(tiny_config, data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    assert train(tiny_config(), tmp_path / "run", tmp_path / "data") == 0
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"run were moved, link them there or, .*give --data_dir$"):
        load_model(tmp_path / "run")
    assert load_model(tmp_path / "run", data_dir=tmp_path / "moved").length == 16
    with pytest.raises(UserError, match=r"no prepared listops in .*other; prepare it: [^;]*$"):
        load_model(tmp_path / "run", data_dir=tmp_path / "other")
