"""Losses and correct answers, per example: whoever sums them decides over what."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int


def cross_entropy(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """-log softmax(logits)[label], in nats."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def is_correct(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"]
) -> Bool[Array, " batch"]:
    """Whether the largest logit is the label's; never for logits that are not finite."""
    return (jnp.argmax(logits, axis=-1) == labels) & jnp.all(jnp.isfinite(logits), axis=-1)
