"""The training state of one seed: what a step and an evaluation change."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lra import arrays, state


def test_a_loss_that_is_not_finite_changes_nothing_though_its_gradient_is():
    params, optimizer = {"weight": jnp.zeros(1)}, optax.sgd(1.0)

    def mean(function, params, batch, keys):
        return (jnp.array(jnp.inf), jnp.zeros(())), {"weight": jnp.ones(1)}

    start = state.TrainState(params, {}, optimizer.init(params), jnp.array(-1), None)
    batch = arrays.Batch(jnp.zeros((5, 3), int), jnp.ones((5, 3), bool), jnp.zeros(5, int))
    end, _ = state.train_step(
        start,
        3,
        batch,
        state.seed_keys(0)[1],
        graphdef=None,
        optimizer=optimizer,
        mean_over_parts=mean,
    )
    assert end.diverged_step == 3
    np.testing.assert_array_equal(end.params["weight"], [0])


def test_a_last_validation_whose_loss_is_not_finite_is_a_divergence():
    start = state.TrainState({"weight": jnp.zeros(1)}, {}, (), jnp.array(-1), None)
    for loss, expected in ((1.0, -1), (jnp.inf, 5), (jnp.nan, 5)):
        assert state.check_end(start, jnp.array(loss), jnp.array(5)).diverged_step == expected


def test_the_best_parameters_keep_the_features_they_were_validated_with(tiny_trainer):
    trainer = tiny_trainer("listops", "performer")
    initial = trainer.init()
    (before,) = (np.array(x) for x in jax.tree.leaves(initial.rest))
    redrawn = trainer.update_best(trainer.redraw(initial, 4), np.array([0.5], np.float32), 5)
    (now,), (best,) = (jax.tree.leaves(x) for x in (redrawn.rest, redrawn.best.rest))
    assert np.abs(np.asarray(now) - before).max() > 0.1
    np.testing.assert_array_equal(best, now)
