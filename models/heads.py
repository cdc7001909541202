"""From encoded sequences to logits: pooling, and classifiers of one text or of two."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from models.checks import check_choice
from models.dense import Linear
from models.dtypes import accumulation_dtype
from models.encoder import Encoder
from models.keys import draw, one_per_example
from models.largest import largest

POOLINGS = ("padded_mean", "mean", "max", "first")


def pool(
    x: Float[Array, "batch length dim"],
    mask: Bool[Array, "batch length"],
    pooling: str,
    padded_length: int | None = None,
) -> Float[Array, "batch dim"]:
    """Pool each sequence into one vector, in at least float32; 0 where no token contributes.

    `padded_mean` divides the sum over real tokens by the padded length (default: the length of
    `x`), like the code behind Table 3 of the Nyströmformer paper; `mean` divides by the number of
    real tokens; `max` is over real tokens; `first` is the first position unless it is padding, as
    in LRA's own code for Retrieval. That code pools a learned vector that it prepends for ListOps,
    Text and Image, and the mean over all positions, padding included, for Pathfinder.

    Raises:
        ValueError: An unknown pooling.
    """
    check_choice("pooling", pooling, POOLINGS)
    wide = x.astype(accumulation_dtype(x.dtype))
    real = mask[..., None]
    if pooling == "first":
        return jnp.where(real[:, 0], wide[:, 0], 0)
    if pooling == "max":
        lowest = jnp.finfo(wide.dtype).min
        maximum = largest(jnp.where(real, wide, lowest), axis=1)
        return jnp.where(jnp.any(real, axis=1), maximum, 0)
    total = jnp.sum(jnp.where(real, wide, 0), axis=1)
    if pooling == "padded_mean":
        return total / (padded_length or x.shape[1])
    return total / jnp.maximum(jnp.sum(real, axis=1, dtype=wide.dtype), 1)


class Classifier(nnx.Module):
    """Encoder, pooling, and a two-layer MLP with ReLU.

    A sequence shorter than `length` gives the same logits as when padded to it; in training, this
    requires one key per example.

    Args:
        model: Section `model` of a config: the encoder's arguments and `pooling`.
        vocab_size: Number of token ids, padding included.
        length: Longest sequence, in positions.
        num_classes: Number of logits.
        dtype: Dtype of activations; after pooling at least float32.
        rngs: Streams `params` and `attention`.

    Raises:
        ValueError: An unknown pooling, or arguments that the encoder refuses.
    """

    inputs = 1  # number of pooled vectors that the MLP reads

    def __init__(
        self,
        model: Mapping[str, Any],
        *,
        vocab_size: int,
        length: int,
        num_classes: int,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        model = dict(model)
        self.length, self.pooling = length, model.pop("pooling")
        check_choice("pooling", self.pooling, POOLINGS)
        self.encoder = Encoder(
            vocab_size=vocab_size, length=length, dtype=dtype, rngs=rngs, **model
        )
        dim, hidden = model["dim"], model["mlp_dim"]
        # In 16 bits, rounding would hide the small differences between pooled vectors.
        wide = accumulation_dtype(dtype)
        self.hidden = Linear(self.inputs * dim, hidden, dtype=wide, rngs=rngs)
        self.logits = Linear(hidden, num_classes, dtype=wide, rngs=rngs)

    def __call__(
        self,
        ids: Int[Array, "batch length"],
        mask: Bool[Array, "batch length"],
        key: Array | None = None,
        packed_length: int | None = None,
    ) -> Float[Array, "batch classes"]:
        """Return the logits; arguments are those of the encoder."""
        return self._classify(self._pooled(ids, mask, key, packed_length))

    def _pooled(
        self, ids: Array, mask: Array, key: Array | None, packed_length: int | None = None
    ) -> Array:
        encoded = self.encoder(ids, mask, key, packed_length)
        return pool(encoded, mask, self.pooling, self.length)

    def _classify(self, features: Array) -> Array:
        return self.logits(jax.nn.relu(self.hidden(features)))


class PairClassifier(Classifier):
    """Classifier of pairs of texts by [a, b, a * b, a - b], with one encoder for both."""

    inputs = 4

    def __call__(
        self,
        ids: Int[Array, "batch 2 length"],
        mask: Bool[Array, "batch 2 length"],
        key: Array | None = None,
        packed_length: int | None = None,
    ) -> Float[Array, "batch classes"]:
        """Return the logits; see `Classifier`."""
        flat = ids.shape[0] * 2, ids.shape[2]
        if key is not None and one_per_example(key):
            key = draw(lambda k: jax.random.split(k, 2), key).reshape(flat[0], *key.shape[1:])
        pooled = self._pooled(ids.reshape(flat), mask.reshape(flat), key, packed_length)
        a, b = jnp.unstack(pooled.reshape(ids.shape[0], 2, -1), axis=1)
        return self._classify(jnp.concatenate([a, b, a * b, a - b], axis=-1))
