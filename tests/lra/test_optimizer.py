"""The one-cycle schedule's corners; against PyTorch's numbers see test_reference_training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra.optimizer import beta1, learning_rate, make_optimizer, one_cycle
from lra.protocol import protocol_of
from lra.settings import load_config


def test_listops_schedule_has_the_published_corners():
    train = load_config("configs/listops.py").train
    rate, momentum = learning_rate(train), beta1(train)
    np.testing.assert_allclose(rate(0), 4e-6, rtol=1e-5)
    np.testing.assert_allclose(rate(999), 1e-4, rtol=1e-5)
    np.testing.assert_allclose(rate(4_999), 4e-10, rtol=0.1)
    np.testing.assert_allclose(
        [momentum(s) for s in (0, 999, 4_999)], [0.95, 0.85, 0.95], rtol=1e-5
    )


def test_a_schedule_without_warmup_starts_at_its_peak():
    schedule = one_cycle(0.0, 1.0, 0.0, warmup=0, steps=5)
    np.testing.assert_allclose([schedule(s) for s in range(5)], [1, 0.75, 0.5, 0.25, 0])


def test_a_training_shorter_than_its_warmup_only_rises():
    train = load_config("configs/listops.py", ["train.steps=500"]).train
    assert protocol_of(load_config("configs/listops.py", ["train.steps=500"])) == (
        "changed: train.steps=500"
    )
    whole, short = learning_rate(load_config("configs/listops.py").train), learning_rate(train)
    steps = np.arange(500)
    np.testing.assert_allclose([short(s) for s in steps], [whole(s) for s in steps], rtol=1e-6)


# One array of norm 5, one of norm 12: 13 together.
GRADIENTS = {"a": jnp.array([3.0, -4.0]), "b": jnp.array([[12.0]])}
PARAMS = jax.tree.map(jnp.ones_like, GRADIENTS)


def updates(overrides, factors):
    """The updates of some steps whose gradients are multiples of `GRADIENTS`."""
    optimizer = make_optimizer(load_config("configs/listops.py", overrides).train)
    state, made = optimizer.init(PARAMS), []
    for factor in factors:
        gradients = {name: factor * gradient for name, gradient in GRADIENTS.items()}
        update, state = optimizer.update(gradients, state, PARAMS)
        made.append(update)
    return made


@pytest.mark.parametrize("max_norm", [1.0, 6.5])
def test_long_gradients_are_scaled_down_to_the_norm(max_norm):
    """Over several steps, since a first step of Adam forgets the scale."""
    clipped = updates([f"train.max_grad_norm={max_norm}"], [1.0, 7.0, 0.01])
    plain = updates([], [max_norm / 13, max_norm / 13, 0.01])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), clipped, plain)


def test_shorter_gradients_stay_as_they_are():
    clipped, plain = (updates([f"train.max_grad_norm={norm}"], [1.0, 0.5]) for norm in (13.1, 0))
    jax.tree.map(np.testing.assert_array_equal, clipped, plain)


def test_without_clipping_state_and_protocol_are_the_papers():
    config = load_config("configs/listops.py")
    assert config.train.max_grad_norm == 0
    clipping = load_config("configs/listops.py", ["train.max_grad_norm=1"])
    assert protocol_of(clipping) == "changed: train.max_grad_norm=1.0"
    plain, clipped = (make_optimizer(c.train).init(PARAMS) for c in (config, clipping))
    assert jax.tree.structure(clipped[1]) == jax.tree.structure(plain)
    assert len(jax.tree.leaves(clipped)) == len(jax.tree.leaves(plain))


def test_epsilon_is_that_of_the_reference():
    """A first step of Adam is the rate, here 4e-6, times g / (|g| + epsilon)."""
    (update,) = updates([], [1e-6])
    np.testing.assert_allclose(update["a"], [-4e-6 * 3 / (3 + 1), 4e-6 * 4 / (4 + 1)], rtol=1e-4)
    np.testing.assert_allclose(update["b"], [[-4e-6 * 12 / (12 + 1)]], rtol=1e-4)


def test_weight_decay_is_taken_off_at_the_learning_rate():
    (update,) = updates(["train.weight_decay=0.1"], [0.0])
    for values in update.values():
        np.testing.assert_allclose(values, -4e-6 * 0.1, rtol=1e-5)
