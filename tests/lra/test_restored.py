"""The models of a run, loaded from its folder."""

import itertools
import json
import pathlib
import re
import shutil

import chex
import jax
import numpy as np
import pytest

import lra.restored
from lra import records
from lra.checkpoints import Checkpoints
from lra.errors import UserError
from lra.evaluation import evaluate
from lra.loop import train
from lra.restored import load_batch, load_model, read_models, restore_workdir
from lra.seals import seal
from lra.stopping import STATUS_STOPPED, Stop
from lra.workdir import Workdir
from tests.lra.trainings import restored_with_other_last_parameters

pytestmark = pytest.mark.usefixtures("shared_programs")

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_a_loaded_model_gives_the_logits_of_the_evaluation(held_out, monkeypatch):
    restored = restored_with_other_last_parameters(held_out)
    _, trainer, state, _, _ = restored
    monkeypatch.setattr(lra.restored, "read_models", lambda *_, **__: restored.models)
    batch = load_batch(held_out, "validation", range(4))

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
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    with pytest.raises(UserError, match=r"seed 0 has no validation yet \(step 0\), .*last=True"):
        load_model(tmp_path)
    assert load_model(tmp_path, last=True).length == 16


@pytest.mark.slow
def test_a_checkpoint_that_a_training_replaces_meanwhile_is_not_missed(
    tiny_config, data_dir, tmp_path, monkeypatch
):
    config = tiny_config("listops", "linear", "train.checkpoint_seconds=0")
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


@pytest.fixture(scope="module")
def trained(tiny_config, data_dir, tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("trained")
    assert train(tiny_config("listops", "linear"), folder, data_dir) == 0
    return folder


@pytest.fixture
def moved(trained, data_dir, tmp_path):
    """A test's own copy of a run, whose data are not where they were."""
    shutil.copytree(data_dir, tmp_path / "moved")
    folder = Workdir(shutil.copytree(trained, tmp_path / "run"))
    write_facts(folder, folder.load_facts() | {"data_dir": str(tmp_path / "data")})
    return folder.root


def write_facts(folder, facts):
    folder.facts.write_text(seal(json.dumps(facts)))


def test_a_model_needs_no_data(moved):
    models, restored = read_models(moved), restore_workdir(moved, data_dir=moved.parent / "moved")
    assert models.config.model == restored.trainer.config.model
    chex.assert_trees_all_equal(models.state, restored.models.state)
    assert (models.graphdef, models.step) == (restored.trainer.graphdef, 12)
    assert load_model(moved).length == 16


def test_a_run_is_restored_onto_all_devices(trained, own_programs):
    assert restore_workdir(trained).trainer.num_devices == jax.device_count()


def test_a_run_notes_the_mark_of_its_data(moved):
    (row,) = records.read(moved / "rows.jsonl")
    assert Workdir(moved).load_facts()["data"] == row.data == "tiny"


def test_a_run_of_an_older_version_has_its_length_from_the_data(moved):
    folder = Workdir(moved)
    facts = folder.load_facts()
    assert facts.pop("length") == 16
    write_facts(folder, facts)
    with pytest.raises(UserError, match="no prepared listops in"):
        load_model(moved)
    assert load_model(moved, data_dir=moved.parent / "moved").length == 16
    (moved.parent / "moved").rename(moved.parent / "data")
    assert load_model(moved).length == 16


def test_a_model_that_this_code_cannot_build_is_one_line(moved, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("num_landmarks is odd")

    monkeypatch.setattr(lra.restored, "abstract_run", refuse)
    with pytest.raises(UserError, match=r"^the model of .*run, length 16: num_landmarks is odd"):
        load_model(moved)


def test_data_that_were_moved_can_be_given(moved):
    with pytest.raises(UserError, match=r"run were moved, link them there or, .*give --data_dir$"):
        load_batch(moved, "test", [0])
    batch = load_batch(moved, "test", [1, 0], data_dir=moved.parent / "moved")
    np.testing.assert_array_equal(
        batch.ids[::-1], load_batch(moved, "test", range(2), data_dir=moved.parent / "moved").ids
    )
    with pytest.raises(UserError, match=r"no prepared listops in .*other; prepare it: [^;]*$"):
        load_batch(moved, "test", [0], data_dir=moved.parent / "other")


def test_the_page_reads_a_model_and_its_matrices(held_out):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = (text for text in blocks if "load_model" in text)
    namespace: dict = {}
    exec(block.replace("runs/listops-nystrom", str(held_out)), namespace)
    mask, heads = namespace["batch"].mask, namespace["q"].shape[2]
    assert namespace["logits"].shape == (8, 10)
    assert namespace["matrix"].shape == (8, heads, 16, 16)
    # A row of softmax sums to 1 where the query is real, whatever the keys.
    sums = np.broadcast_to(mask[:, None], (8, heads, 16))
    np.testing.assert_allclose(namespace["matrix"].sum(-1), sums, atol=1e-5)


def test_a_batch_is_of_the_runs_examples(tiny_config, data_dir, tmp_path):
    config = tiny_config("image", "linear", "data.zero_is_padding=True")
    assert train(config, tmp_path, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    batch = load_batch(tmp_path, "test", [0, 2])
    np.testing.assert_array_equal(batch.mask, batch.ids > 1)  # id 1 is a pixel of value 0
    assert load_batch(tmp_path, "test", []).ids.shape == (0, 16)
    for split, indices, message in (
        ("tests", [0], "no split 'tests', only train, validation, test"),
        ("test", [0, 10**6], r"test has the examples 0 to \d+ only"),
        ("test", [-1], r"test has the examples 0 to \d+ only"),
        ("test", [1.5], r"indices are a list of integers, as in \[0, 1\], not \[1.5\]"),
        ("test", 3, "indices are a list of integers"),
    ):
        with pytest.raises(UserError, match=message):
            load_batch(tmp_path, split, indices)
