"""`--debug_nans`: the step, the operation and the line of the first NaN."""

import re

import jax
import numpy as np
import pytest

from lra import loop
from lra.errors import UserError
from lra.evaluation_files import SavedEvaluations
from lra.loop import train
from lra.nans import STATUS_NAN
from lra.stopping import STATUS_STOPPED

pytestmark = pytest.mark.usefixtures("shared_programs")


def test_the_first_nan_ends_the_run_in_one_line(tiny_config, data_dir, tmp_path, capsys):
    config = tiny_config("listops", "linear", "train.learning_rate=1e30", "train.warmup_steps=0")
    assert train(config, tmp_path, data_dir, debug_nans=True) == STATUS_NAN
    started, *paces, line = capsys.readouterr().err.splitlines()
    assert started.startswith("listops linear")
    assert all(pace.startswith("first call after") for pace in paces)
    expected = r"error: step \d+: invalid value \(nan\) encountered in \w+ \(models/.*\.py, line"
    assert re.match(expected, line), line
    assert not (tmp_path / "rows.jsonl").exists()


def test_nans_that_would_end_other_seeds_are_not_watched_for(tiny_config, data_dir, tmp_path):
    with jax.debug_nans(True), pytest.raises(UserError, match="JAX_DEBUG_NANS is set, so a seed"):
        train(tiny_config(), tmp_path / "run", data_dir)
    assert not (tmp_path / "run").exists()


def test_a_seed_that_has_diverged_before_is_not_looked_for(
    tiny_config, data_dir, tmp_path, stop_after, first_seed_broken
):
    config = tiny_config("listops", "linear", "seeds=(3, 5)")
    stop_after(2)
    assert train(config, tmp_path, data_dir) == STATUS_STOPPED
    with pytest.raises(UserError, match=r"a seed in .* has diverged before, .* another workdir"):
        train(config, tmp_path, data_dir, debug_nans=True)


def test_a_nan_of_an_evaluation_is_not_looked_for_in_a_step(
    tiny_config, data_dir, tmp_path, capsys, monkeypatch
):
    def evaluate(*_):
        raise FloatingPointError("invalid value (nan) encountered in logits.")

    def disable_jit():
        raise AssertionError

    monkeypatch.setattr(SavedEvaluations, "evaluate", evaluate)
    monkeypatch.setattr(jax, "disable_jit", disable_jit)
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path, data_dir, debug_nans=True) == STATUS_NAN
    line = capsys.readouterr().err.splitlines()[-1]
    expected = f"error: step {config.train.eval_every}: invalid value (nan) encountered in logits"
    assert line.startswith(expected)


@pytest.mark.parametrize("donate", [True, False])
def test_a_state_can_be_used_again_unless_it_is_donated(tiny_trainer, donate):
    trainer = tiny_trainer("listops", "linear", donate=donate)
    state = trainer.init()
    after = trainer.train(state, 0, 1)[0].params
    assert any(leaf.is_deleted() for leaf in jax.tree.leaves(state)) == donate
    if not donate:
        again = trainer.train(state, 0, 1)[0].params
        for one, other in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("debug_nans", [True, False])
def test_only_calls_that_may_be_repeated_keep_their_state(
    tiny_config, data_dir, tmp_path, monkeypatch, debug_nans
):
    def told(*_, donate):
        raise UserError(f"{donate=}")

    monkeypatch.setattr(loop, "Trainer", told)
    with pytest.raises(UserError, match=f"donate={not debug_nans}"):
        train(tiny_config(), tmp_path, data_dir, debug_nans=debug_nans)
