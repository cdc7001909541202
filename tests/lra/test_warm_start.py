"""Trainings that start from the parameters of another run."""

import functools
import pathlib
import shutil

import jax
import numpy as np
import pytest

from configs.default import ATTENTIONS
from lra import records, warm_start
from lra.errors import UserError
from lra.loop import train
from lra.protocol import protocol_of
from lra.restored import read_models
from lra.stopping import STATUS_STOPPED, Stop
from lra.warm_start import initial_state
from tests.lra.conftest import write_listops
from tests.suites import slow_but

pytestmark = pytest.mark.usefixtures("shared_programs")

SEEDS, OTHERWISE = (4, 0, 2), (2, 4, 0)


@pytest.fixture(scope="module")
def trained(tiny_config, data_dir, tmp_path_factory):
    """A function of an attention: the folder of a run with three seeds."""

    @functools.cache
    def arrange(attention):
        folder = tmp_path_factory.mktemp(attention)
        assert train(tiny_config("listops", attention, f"seeds={SEEDS}"), folder, data_dir) == 0
        return folder

    return arrange


@pytest.fixture
def source(trained, tmp_path):
    """A function of an attention: the test's own copy of such a folder."""
    return lambda attention="linear": shutil.copytree(trained(attention), tmp_path / "a")


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("attention", slow_but(("linear",), ATTENTIONS))
def test_each_seed_takes_the_best_arrays_of_the_same_seed(source, tiny_trainer, attention):
    folder = source(attention)
    best = read_models(folder).state.best
    trainer = tiny_trainer("listops", attention, f"seeds={OTHERWISE}", f"train.init_from={folder}")
    drawn, state = trainer.init(), initial_state(trainer)
    there = np.array([SEEDS.index(seed) for seed in OTHERWISE])
    for name in ("params", "rest"):
        expected = jax.tree.map(lambda x: np.asarray(x)[there], getattr(best, name))
        assert equal(getattr(state, name), expected)
        assert equal(getattr(state.best, name), expected)
    assert not equal(state.params, drawn.params)
    assert equal(state.opt_state, drawn.opt_state)
    np.testing.assert_array_equal(state.best.val_accuracy, [-1, -1, -1])
    trainer.train(state, 0, 2)  # uses the arrays up, each once


def test_runs_that_start_there(source, tiny_config, data_dir, tmp_path):
    folder = source()
    # Other data. Once there is a checkpoint the source is no longer needed.
    write_listops(tmp_path / "other", seed=1)
    config = tiny_config("listops", "linear", f"train.init_from={folder}", f"seeds={SEEDS}")
    stopped = train(config, tmp_path / "b", tmp_path / "other", stop=Stop(1e-9))
    assert stopped == STATUS_STOPPED
    shutil.move(folder, tmp_path / "moved")
    assert train(config, tmp_path / "b", tmp_path / "other") == 0
    rows = records.read(tmp_path / "b" / "rows.jsonl")
    assert [row.protocol for row in rows] == [protocol_of(config)] * 3
    assert f"train.init_from={folder}" in rows[0].protocol


def test_another_attention_may_start_there_if_its_parameters_are_the_same(source, tiny_trainer):
    folder = source()
    overrides = (f"train.init_from={folder}", "model.attention.conv_kernel=0")
    trainer = tiny_trainer("listops", "nystrom", *overrides)
    best = read_models(folder).state.best.params
    of_seed = jax.tree.map(lambda x: np.asarray(x)[[SEEDS.index(0)]], best)
    assert equal(initial_state(trainer).params, of_seed)


@pytest.mark.parametrize("there", ["linear", "performer"])
def test_untrained_arrays_that_the_source_has_not_are_drawn(source, tiny_trainer, there):
    here = {"linear": "performer", "performer": "linear"}[there]
    overrides = (f"seeds={OTHERWISE}", f"train.init_from={source(there)}")
    trainer = tiny_trainer("listops", here, *overrides)
    drawn, state = trainer.init(), initial_state(trainer)
    assert not equal(state.params, drawn.params)
    assert equal((state.rest, state.best.rest), (drawn.rest, drawn.best.rest))
    trainer.train(state, 0, 2)  # uses the arrays up, each once


def test_what_does_not_fit_is_said_before_anything_is_written(
    source, tiny_config, data_dir, tmp_path
):
    folder = source()
    for overrides, message in (
        (["seeds=(0, 1, 2)"], r"has no seed 1, only \(4, 0, 2\)"),
        (["model.mlp_dim=8"], r"mlp.* is \(16.* in .*a and \(8.* in this model"),
        (["model.positions=none"], r"encoder.position is \(16, 16\) in .*a and not in this model"),
        (["train.init_from=nowhere"], "train.init_from: nowhere holds no run"),
        (["train.init_from=~no_such_user/run"], "train.init_from: ~no_such_user/run holds no run"),
        (["train.init_from=~/run"], f"train.init_from: {pathlib.Path.home()}/run holds no run"),
    ):
        config = tiny_config("listops", "linear", f"train.init_from={folder}", *overrides)
        with pytest.raises(UserError, match=message):
            train(config, tmp_path / "b", data_dir)
        assert not (tmp_path / "b").exists()


def test_a_source_that_is_not_complete(source, tiny_config, data_dir, tmp_path):
    """Its best parameters may be others at the next start of the run that begins with them."""
    config = tiny_config("listops", "linear")
    stopped = train(config, tmp_path / "begun", data_dir, stop=Stop(1e-9))
    assert stopped == STATUS_STOPPED
    without_rows = source()  # as a run that has evaluated on its way, and is not at its end
    (without_rows / "rows.jsonl").unlink()
    for folder, step in ((tmp_path / "begun", 0), (without_rows, 12)):
        config = tiny_config("listops", "linear", f"train.init_from={folder}")
        with pytest.raises(UserError, match=rf"is not complete \(step {step} of 12\)"):
            train(config, tmp_path / "b", data_dir)
        assert not (tmp_path / "b").exists()


def test_a_seed_that_has_diverged_is_no_source(source, tiny_trainer, monkeypatch):
    """Though it was evaluated before, and the other seeds of its run were not harmed."""

    def with_one_diverged(*arguments):
        found = read_models(*arguments)
        steps = np.where(np.array(SEEDS) == 0, 7, found.state.diverged_step)
        return found._replace(state=found.state._replace(diverged_step=steps))

    monkeypatch.setattr(warm_start, "read_models", with_one_diverged)
    own = ("listops", "linear", f"train.init_from={source()}")
    others, all_three = (tiny_trainer(*own, f"seeds={seeds}") for seeds in ((4, 2), SEEDS))
    initial_state(others)
    with pytest.raises(UserError, match=r"seed 0 of .*a diverged at step 7; leave it out"):
        initial_state(all_three)


@pytest.mark.parametrize("step", [10, 12])
def test_a_source_that_has_lost_its_last_checkpoint(source, tiny_trainer, monkeypatch, step):
    """The best parameters of the one before need not be those of its rows.

    That of the last step may have been saved before its validation.
    """

    def of_an_earlier_step(*arguments):
        models = read_models(*arguments)
        # That one seed has diverged does not end the others.
        state = models.state._replace(diverged_step=np.array([7, -1, -1], np.int32))
        return models._replace(step=step, evaluated=10, state=state)

    monkeypatch.setattr(warm_start, "read_models", of_an_earlier_step)
    trainer = tiny_trainer("listops", "linear", f"train.init_from={source()}")
    with pytest.raises(UserError, match=rf"is not complete \(step {step} of 12\)"):
        initial_state(trainer)
