"""Gradient accumulation: a batch in parts (microbatches), each cut to its longest sequence.

Batches of evaluations are cut likewise, but not divided.
`lra.plan` chooses the number of parts and the lengths. The program has a branch for each length.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Int

from lra.arrays import Batch
from lra.plan import Buckets
from models.attention.padding import ends

T = TypeVar("T")
# Loss and accuracy, and the gradients of the parameters.
LossAndGradients = tuple[tuple[Array, Array], nnx.State]
# Function from parameters, a batch, its keys and its packed length (None: not packed) to the above.
LossFunction = Callable[[Any, Batch, Array, int | None], LossAndGradients]
# `mean_over_parts` with its keyword arguments bound for a run.
MeanOverParts = Callable[[LossFunction, Any, Batch, Array], LossAndGradients]


def mean_over_parts(
    function: LossFunction,
    params: Any,
    batch: Batch,
    keys: Array,
    *,
    parts: int,
    buckets: Buckets,
    shares: int = 1,
    place: Callable[[LossAndGradients], LossAndGradients] = lambda tree: tree,
    axis_name: str | None = None,
) -> LossAndGradients:
    """Return the mean of `function` over equal parts of a batch, processed one after another.

    Args:
        function: Function whose mean is computed.
        params: Parameters.
        batch: Batch of examples.
        keys: One key per example.
        parts: Number of parts, a divisor of the batch.
        buckets: Lengths to which parts are cut. With more than one, examples are sorted first, so
            that parts differ in length.
        shares: Number of shares of each part, one per device that shares the batch; they are summed
            once, after the last part.
        place: Function that constrains arrays [shares, ...] to these devices.
        axis_name: See `in_bucket`.
    """
    if len(buckets.ends) > 1:
        order = by_length(batch, packed=buckets.packed)
        batch, keys = jax.tree.map(lambda x: x[order], (batch, keys))
    if parts == 1:
        return in_bucket(
            lambda cut, packed_length: function(params, cut, keys, packed_length),
            buckets,
            batch,
            axis_name=axis_name,
        )
    # [part, share, example]: each device holds its share of every part, and of the running sum.
    split = jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(shares, parts, -1, *x.shape[1:]), 0, 1), (batch, keys)
    )

    def add(total: LossAndGradients, part: tuple[Batch, Array]) -> tuple[LossAndGradients, None]:
        batch, keys = part

        def all_shares(cut: Batch, packed_length: int | None) -> LossAndGradients:
            mapped = jax.vmap(lambda cut, keys: function(params, cut, keys, packed_length))
            return mapped(cut, keys)

        increment = in_bucket(all_shares, buckets, batch, axis_name=axis_name)
        return place(jax.tree.map(jnp.add, total, increment)), None

    scalar = jnp.zeros((), jnp.float32)
    # Built by hand: `eval_shape` would trace the model once more.
    one_share = (scalar, scalar), params
    zeros = place(jax.tree.map(lambda x: jnp.zeros((shares, *x.shape), x.dtype), one_share))
    total, _ = jax.lax.scan(add, zeros, split)
    return jax.tree.map(lambda x: jnp.mean(x, axis=0) / parts, total)


def in_bucket(
    function: Callable[[Batch, int | None], T],
    buckets: Buckets,
    batch: Batch,
    *,
    axis_name: str | None = None,
) -> T:
    """Apply `function` to the batch, cut or packed to the shortest length that holds it.

    Args:
        function: Function of a batch and its packed length, None if it is not packed. The shape of
            its result does not depend on the length.
        buckets: Lengths to choose from.
        batch: Batch to cut; its arrays may have further leading axes.
        axis_name: Name of a mapped axis whose batches are all cut to the same length: if each chose
            its own branch, all branches would be executed for all of them.
    """

    def branch(end: int) -> Callable[[Batch], T]:
        if buckets.packed:
            return lambda batch: function(batch, end)
        return lambda batch: function(
            batch._replace(ids=batch.ids[..., :end], mask=batch.mask[..., :end]), None
        )

    branches = [branch(end) for end in buckets.ends]
    if len(branches) == 1:
        return branches[0](batch)
    longest = jnp.max(_required_lengths(batch, buckets.packed))
    if axis_name is not None:
        longest = jax.lax.pmax(longest, axis_name)
    index = jnp.sum(longest > jnp.asarray(buckets.ends[:-1]), dtype=jnp.int32)
    return jax.lax.switch(index, branches, batch)


def by_length(batch: Batch, *, packed: bool = False) -> Int[Array, " batch"]:
    """Indices that sort the examples of a batch from the longest to the shortest."""
    return jnp.argsort(_required_lengths(batch, packed), descending=True)


def _required_lengths(batch: Batch, packed: bool) -> Int[Array, "*batch"]:
    """Number of positions that each example needs, of a pair the longer text.

    These are the positions up to the last token or, if `packed`, the real ones.
    """
    lengths = jnp.sum(batch.mask, axis=-1, dtype=jnp.int32) if packed else ends(batch.mask)
    pairs = lengths.ndim > batch.labels.ndim
    return jnp.max(lengths, axis=-1) if pairs else lengths
