"""Encoder, head, optimizer and schedule against the official PyTorch code, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from lra import state
from lra.arrays import Batch
from lra.optimizer import learning_rate, make_optimizer
from tests.reference_model import ARRAYS, classifier, config


@pytest.fixture(scope="module")
def run():
    """Logits of the first batch, losses and accuracies of ten steps through `train_step`."""
    settings = config()
    graphdef, params, rest = nnx.split(classifier(settings), nnx.Param, ...)
    optimizer = make_optimizer(settings.train)
    ids = jnp.asarray(ARRAYS["ids"], jnp.int32)
    labels = jnp.asarray(ARRAYS["labels"], jnp.int32)
    train_state = state.TrainState(
        params,
        rest,
        optimizer.init(params),
        jnp.array(-1),
        state.Best(params, rest, jnp.array(-1.0), jnp.array(0)),
    )
    logits = nnx.merge(graphdef, params, rest)(ids[0], ids[0] > 0)

    @jax.jit
    def step(train_state, index, ids, labels):
        batch = Batch(ids, ids > 0, labels)
        return state.train_step(
            train_state,
            index,
            batch,
            jax.random.key(0),
            graphdef=graphdef,
            optimizer=optimizer,
            mean_over_parts=lambda function, params, batch, keys: function(
                params, batch, keys, None
            ),
        )

    metrics = []
    for index in range(10):
        train_state, numbers = step(train_state, index, ids[index], labels[index])
        metrics.append(numbers)
    return logits, np.array([m.loss for m in metrics]), np.array([m.accuracy for m in metrics])


def test_logits_equal_the_reference(run):
    np.testing.assert_allclose(run[0], ARRAYS["logits_step0"], atol=1e-5)


def test_ten_training_losses_equal_the_reference(run):
    # From the second loss on they contain the one-cycle schedule and its beta1 cycle.
    np.testing.assert_allclose(run[1], ARRAYS["losses"], atol=1e-4)
    np.testing.assert_allclose(run[2], ARRAYS["accs"], atol=1e-6)


def test_gradient_norm_equals_the_reference():
    settings = config()
    graphdef, params, rest = nnx.split(classifier(settings), nnx.Param, ...)
    ids, labels = jnp.asarray(ARRAYS["ids"][0], jnp.int32), jnp.asarray(ARRAYS["labels"][0])

    def loss(params):
        logits = nnx.merge(graphdef, params, rest)(ids, ids > 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels.astype(jnp.int32))
        return jnp.mean(losses)

    norm = optax.tree.norm(jax.jit(jax.grad(loss))(params))
    np.testing.assert_allclose(norm, ARRAYS["grad_norm_step0"], rtol=1e-4)


def test_learning_rates_equal_the_reference():
    schedule = learning_rate(config().train)
    rates = [schedule(step) for step in range(10)]
    np.testing.assert_allclose(rates, ARRAYS["lrs"], rtol=1e-5, atol=1e-12)
