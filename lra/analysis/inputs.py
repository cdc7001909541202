"""Queries, keys and values: random ones, and those that a trained model's attentions receive.

All are float64 NumPy arrays, so that the accuracy of what is computed from them is limited by the
method, not by the number format.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from lra import arrays
from lra.errors import UserError
from lra.restored import Restored, seed_model
from models.attention.contract import Attention, Heads
from models.encoder import Encoder

# Candidates per image to choose, and the share of real pixels that an image should have.
_CANDIDATES, _REAL = 4, 0.25


class Inputs(NamedTuple):
    """Inputs of the attentions of some layers.

    Attributes:
        data: `random` or `trained`.
        q, k, v: float64 [layers, examples, length, heads, head_dim].
        mask: [examples, length], True = token; only pixels of value 0 are ever False.
    """

    data: str
    q: Float[np.ndarray, "layers examples length heads head_dim"]
    k: Float[np.ndarray, "layers examples length heads head_dim"]
    v: Float[np.ndarray, "layers examples length heads head_dim"]
    mask: Bool[np.ndarray, "examples length"]

    @property
    def length(self) -> int:
        """Number of positions of a sequence."""
        return self.mask.shape[1]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.q)

    def layer(self, index: int) -> tuple[Array, Array, Array, Array]:
        """Return q, k, v and mask of one layer, the arguments of an attention."""
        return tuple(
            jnp.asarray(x) for x in (self.q[index], self.k[index], self.v[index], self.mask)
        )


class Recorded(NamedTuple):
    """An attention, and the queries, keys and values that it received."""

    attention: Attention
    q: Heads
    k: Heads
    v: Heads


class Trained(NamedTuple):
    """Inputs from a model at a training step, and the attentions that received them, by layer."""

    inputs: Inputs
    attentions: list[Attention]
    step: int


def random_inputs(
    *, examples: int, length: int, heads: int, head_dim: int, seed: int = 0
) -> Inputs:
    """Draw one layer of independent standard normal queries, keys and values, without padding."""
    shape = (1, examples, length, heads, head_dim)
    q, k, v = np.random.default_rng(seed).standard_normal((3, *shape))
    return Inputs("random", q, k, v, np.ones((examples, length), bool))


def trained_inputs(
    restored: Restored, *, seed: int, examples: int, length: int, last: bool = False
) -> Trained:
    """Compute the inputs of the attentions of the model of `seed` on validation examples.

    The parameters are the best on the validation set or, with `last`, those of the last step. The
    examples are the first `examples` with at least `length` positions, truncated to that length. If
    there are too few, they are the longest ones, truncated to the shortest of them. Of a pair, the
    first document is taken.

    So no position is padding, except where pixels of value 0 count as such. Images that consist of
    more than three quarters of such pixels are taken only if there are too few others.

    Raises:
        UserError: The run does not have the seed, or no best parameters yet (before its first
            validation), or the seed diverged.
    """
    model, step = seed_model(restored.models, seed, last=last)
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    ids, mask = _validation_batch(restored, examples, length)

    @jax.jit
    def run(params: nnx.State, rest: nnx.State, ids: Array, mask: Array):
        with jax.default_matmul_precision(restored.trainer.config.matmul_precision):
            recorded = record(nnx.merge(graphdef, params, rest).encoder, ids, mask)
            return [layer[1:] for layer in recorded]

    recorded = jax.device_get(run(params, rest, ids, mask))
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(recorded)):
        raise UserError(
            f"seed {seed} has parameters that are not finite at step {step}: it diverged; choose "
            "another --seed or run"
        )
    q, k, v = (np.stack([layer[i] for layer in recorded]).astype(np.float64) for i in range(3))
    encoder = nnx.merge(graphdef, *jax.device_get((params, rest))).encoder
    return Trained(Inputs("trained", q, k, v, np.asarray(mask)), encoder.attentions, step)


def record(
    encoder: Encoder, ids: Int[Array, "batch length"], mask: Bool[Array, "batch length"]
) -> list[Recorded]:
    """Encode a batch, without dropout, and return what the attention of each layer received.

    `lra.analysis.matrices.attention_matrix` makes matrices of it.
    """
    encoder = nnx.clone(encoder)
    encoder.remat = False  # recorded tracers would leak out of a rematerialised block
    recorded = []

    def recording(attention: Attention) -> Callable[..., Array]:
        def attend(q: Array, k: Array, v: Array, mask: Array, *, key: Array | None = None) -> Array:
            recorded.append(Recorded(attention, q, k, v))
            return attention(q, k, v, mask, key=key)

        return attend

    for block in encoder.blocks:
        block.attention.attention = recording(block.attention.attention)
    encoder(ids, mask)
    return recorded


def _validation_batch(restored: Restored, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and mask of the chosen examples, [at most count, at most length]."""
    trainer, config = restored.trainer, restored.trainer.config
    split = ("validation",)
    examples = arrays.load_examples(restored.prepared, split, config.data.holdout)["validation"]
    rows = np.arange(len(examples.labels)) if examples.pairs is None else examples.pairs[:, 0]
    lengths = np.asarray(examples.lengths)[rows]
    chosen = np.flatnonzero(lengths >= length)[:count]
    if len(chosen) < count:
        chosen = np.argsort(-lengths, kind="stable")[:count]
    length = int(min(length, lengths[chosen].min()))
    if config.data.zero_is_padding:
        chosen = np.flatnonzero(lengths >= length)[: _CANDIDATES * count]
    on_device = jax.tree.map(jnp.asarray, examples)
    batch = arrays.gather(on_device, jnp.asarray(chosen), trainer.task, config.data.zero_is_padding)
    ids, mask = (x if examples.pairs is None else x[:, 0] for x in (batch.ids, batch.mask))
    ids, mask = np.asarray(ids)[:, :length], np.asarray(mask)[:, :length]
    # Images that are too dark come last; otherwise the order is kept.
    real = np.minimum(np.mean(mask, axis=1), _REAL)
    kept = np.argsort(-real, kind="stable")[:count]
    return ids[kept], mask[kept]
