"""The loss: exact, with the gradient that optax gives, but without its scatter."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy

from lra.losses import cross_entropy, is_correct

LOGITS = 20 * jax.random.normal(jax.random.key(0), (64, 10))
LABELS = jax.random.randint(jax.random.key(1), (64,), 0, 10)


def total(loss):
    return lambda logits: jnp.sum(loss(logits, LABELS))


def test_values_are_exact():
    exact = scipy.special.log_softmax(np.asarray(LOGITS, np.float64), axis=1)
    expected = -exact[np.arange(64), LABELS]
    np.testing.assert_allclose(cross_entropy(LOGITS, LABELS), expected, rtol=1e-6, atol=2e-7)


def test_gradients_are_those_of_optax():
    other = optax.softmax_cross_entropy_with_integer_labels
    np.testing.assert_allclose(
        jax.grad(total(cross_entropy))(LOGITS), jax.grad(total(other))(LOGITS), atol=1e-6
    )


def test_its_gradient_has_no_scatter():
    lowered = jax.jit(jax.grad(total(cross_entropy))).lower(LOGITS).as_text()
    assert "scatter" not in lowered


def test_the_largest_logit_is_the_answer_and_no_answer_has_others_than_numbers():
    nan, inf = np.nan, np.inf
    logits = jnp.array([[0, 1, 2], [2, 1, 0], [nan, 0, 0], [nan] * 3, [0, inf, 0], [1, 0, -inf]])
    labels = jnp.array([2, 2, 0, 0, 1, 0])
    np.testing.assert_array_equal(is_correct(logits, labels), [True] + [False] * 5)
