"""Share of the keys' features dominated by Performer's epsilon, and the effect on its output.

A feature of a key is R^(-1/2) [exp(...) + epsilon], relative to exp of the largest projection of
any key (see `models.attention.performer`). Where the exponential is the smaller term, the key has
lost its direction; if it is far smaller for all keys, every output is nearly the mean of the
values.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lra.analysis.inputs import Inputs
from models.attention.contract import Attention, Heads, Mask
from models.attention.performer import (
    PerformerAttention,
    key_features,
    orthogonal_features,
    performer_attention,
)
from models.attention.standard import standard_attention

# Those of performer-pytorch and of the authors' TensorFlow code; 0 is unbiased.
EPSILONS = (1e-4, 1e-6, 0.0)
_NUM_FEATURES = 256  # number of features in the benchmark


@functools.partial(jax.jit, static_argnames="epsilon")
def covered(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    projection: Float[Array, "features head_dim"],
    *,
    epsilon: float,
) -> tuple[Float[Array, " heads"], Float[Array, " heads"]]:
    """Measure what `epsilon` covers of these keys with the features of `projection`, by head.

    Returns:
        below: Share of the features of real keys whose exponential is below epsilon.
        distance: `from_mean` of the output. Both are means over the examples.
    """
    features = key_features(k, mask, projection, epsilon=epsilon)
    real = mask[:, None, :, None]
    is_below = (features < 2 * epsilon * len(projection) ** -0.5) & real
    shares = jnp.sum(is_below, axis=(2, 3)) / (jnp.sum(real, axis=(2, 3)) * len(projection))
    out = performer_attention(q, k, v, mask, projection, epsilon=epsilon)
    return jnp.mean(shares, axis=0), jnp.mean(from_mean(out, v, mask), axis=0)


def from_mean(out: Heads, v: Heads, mask: Mask) -> Float[Array, "batch heads"]:
    """Return |O - M| / |O| over real positions, where each row of M is the mean real value."""
    real = mask[:, :, None, None]
    mean = jnp.mean(v, axis=1, keepdims=True, where=real)
    difference, size = (
        jnp.sqrt(jnp.sum(jnp.square(jnp.where(real, x, 0)), axis=(1, 3))) for x in (out - mean, out)
    )
    return difference / jnp.where(size > 0, size, 1)


def feature_rows(
    inputs: Inputs, attentions: Sequence[Attention] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row per layer, head and epsilon; `exact_from_mean` is that of exact attention.

    Args:
        inputs: Inputs of all layers.
        attentions: Attentions of the model, one per layer. A Performer's own projection is used;
            for other attentions, and for None, one of 256 features is drawn.
    """
    for layer in range(inputs.layers):
        arrays = inputs.layer(layer)
        projection = _projection(attentions[layer] if attentions else None, arrays[0].shape[-1])
        exact = from_mean(standard_attention(*arrays), *arrays[2:])
        exact = np.mean(exact, axis=0)
        for epsilon in EPSILONS:
            by_head = zip(*covered(*arrays, projection, epsilon=epsilon), strict=True)
            for head, (below, distance) in enumerate(by_head):
                yield {
                    "kind": "features",
                    "data": inputs.data,
                    "layer": layer,
                    "head": head,
                    "features": len(projection),
                    "epsilon": epsilon,
                    "below": float(below),
                    "from_mean": float(distance),
                    "exact_from_mean": float(exact[head]),
                }


def _projection(attention: Attention | None, head_dim: int) -> Array:
    if isinstance(attention, PerformerAttention):
        return jnp.asarray(attention.projection[...])
    return orthogonal_features(jax.random.key(0), _NUM_FEATURES, head_dim)
