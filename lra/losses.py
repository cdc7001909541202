"""Losses and correct answers per example; callers decide how to average them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def cross_entropy(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Cross-entropy -log softmax(logits)[label], in nats.

    The label is selected by a mask, not gathered as in optax: the gradient of a gather is a
    scatter, which GPUs in deterministic mode process one example after another.
    """
    label = jax.nn.one_hot(labels, logits.shape[-1], dtype=bool)
    return -jnp.sum(jnp.where(label, jax.nn.log_softmax(logits), 0), axis=-1)


def is_correct(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Bool[Array, " batch"]:
    """Whether the label has the largest logit; always False if any logit is not finite."""
    return (jnp.argmax(logits, axis=-1) == labels) & jnp.all(jnp.isfinite(logits), axis=-1)
