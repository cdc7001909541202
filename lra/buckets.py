"""Length buckets: each part of a batch is cut to the shortest of a few lengths that holds it.

Half of ListOps' padded positions and two thirds of Text's are padding, which costs a model of fixed
shapes as much as tokens do. On a CPU, a batch is sorted by length and processed in parts
(`lra.parts`), which thus differ in their longest sequence; the program has a branch for each
length. Results differ only by rounding: every attention gives the same output for a shorter
sequence as for the padded one (`models.attention.contract`), and the dropout mask of a position
does not depend on what follows it.

On other devices nothing is cut: the longest sequence of a whole training batch nearly always needs
the full length, and branches were not timed there.

Where zero is padding, padding lies between the tokens, and sequences are packed instead if that
removes enough positions (`models.attention.packing`): 40,000 generated images of Pathfinder have
203 to 549 real positions of 1,024. The length of a sequence is then its number of real positions.
Devices other than CPUs pack to a single length, that of the longest sequence. Whether sequences are
packed depends on the training data alone, since dropout masks are then drawn by real position.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from lra.arrays import Batch, permutation
from models.machine import this_backend

T = TypeVar("T")

# Bucket ends are multiples of this, so that blocks of exact attention and landmark segments fit.
_STEP = 256
_PACKED_STEP = 64  # bucket ends of packed sequences are multiples of this
# Limits, since each bucket is compiled, in training together with its backward pass.
_MAX_BUCKETS, _MAX_EVAL_BUCKETS = 4, 8
_MIN_PADDED = 1024  # shorter padded lengths are not cut: compilation would cost more than it saves
_MIN_SAVING = 0.1  # fraction of positions that cutting must save on average


def choose_lengths(
    lengths: np.ndarray, padded: int, *, devices: int = 1, evaluation: bool = False
) -> tuple[int, ...]:
    """Bucket ends, ascending, the last one `padded`; only that one where cutting saves too little.

    Args:
        lengths: Lengths of the training examples in positions, int [examples].
        padded: Length they are padded to.
        devices: Number of devices that share the batch or the seeds.
        evaluation: Whether the buckets are for evaluations, which may have more of them.
    """
    count = _MAX_EVAL_BUCKETS if evaluation else _MAX_BUCKETS
    uncut = (padded,)
    if devices > 1 or this_backend() != "cpu" or padded < _MIN_PADDED:
        return uncut
    quantiles = np.quantile(lengths, np.arange(1, count) / count)
    steps = {max(1, math.ceil(length / _STEP)) for length in quantiles}
    ends = (*(step * _STEP for step in sorted(steps) if step * _STEP < padded), padded)
    if bucket_ends(lengths, ends).mean() > (1 - _MIN_SAVING) * padded:
        return uncut
    return ends


def choose_packed_lengths(
    lengths: np.ndarray, longest: int, padded: int, *, devices: int = 1
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Bucket ends of packed sequences, ascending, for training and for evaluations.

    None where packing saves too little. On all devices this is decided by what a CPU would save on
    the training examples: a single long example thus does not keep a CPU from packing, but other
    devices then gain less.

    Args:
        lengths: Number of real positions of each training example, int [examples].
        longest: Largest number of real positions of any example, in any split.
        padded: Length they are padded to.
        devices: Number of devices that share the batch or the seeds.
    """
    ends = _packed_ends(lengths, int(lengths.max()), padded, _MAX_BUCKETS)
    saves = bucket_ends(lengths, ends).mean() <= (1 - _MIN_SAVING) * padded
    if padded < _MIN_PADDED or not saves:
        return None
    # Devices other than a single CPU have one bucket, which holds the longest sequence.
    one_bucket = devices > 1 or this_backend() != "cpu"
    counts = (1, 1) if one_bucket else (_MAX_BUCKETS, _MAX_EVAL_BUCKETS)
    training, evaluation = (_packed_ends(lengths, longest, padded, count) for count in counts)
    return training, evaluation


def _packed_ends(lengths: np.ndarray, longest: int, padded: int, count: int) -> tuple[int, ...]:
    """At most `count` bucket ends, of which the last one holds the longest sequence."""
    quantiles = np.quantile(lengths, np.arange(1, count) / count)
    ends = {_PACKED_STEP * max(1, math.ceil(x / _PACKED_STEP)) for x in (*quantiles, longest)}
    return tuple(sorted({min(end, padded) for end in ends}))


def bucket_ends(lengths: np.ndarray, ends: tuple[int, ...]) -> np.ndarray:
    """End of the bucket that each length falls into."""
    return np.asarray(ends)[np.searchsorted(ends, lengths)]


def evaluation_order(lengths: np.ndarray, batch: int) -> np.ndarray:
    """Sort examples by length, longest first, and shuffle the full batches.

    Calls of an evaluation, of several batches each, then take about equally long.
    """
    order = np.argsort(-lengths, kind="stable")
    num_full = len(order) // batch
    full, rest = np.split(order, [num_full * batch])
    shuffled = full.reshape(num_full, batch)[permutation(num_full, 0, 0)]
    return np.concatenate([shuffled.ravel(), rest])


def by_length(batch: Batch, *, packed: bool = False) -> Int[Array, " batch"]:
    """Indices that sort the examples of a batch from the longest to the shortest."""
    return jnp.argsort(_required_lengths(batch, packed), descending=True)


def in_bucket(
    function: Callable[..., T],
    ends: tuple[int, ...],
    batch: Batch,
    *,
    packed: bool = False,
    axis_name: str | None = None,
) -> T:
    """Apply `function` to the batch, cut to the shortest of `ends` that drops only padding.

    Args:
        function: Function of a batch and, if `packed`, of `packed_length=`, whose result has a
            shape that does not depend on the length.
        ends: Bucket ends, ascending, the last one long enough for any sequence; with none, nothing
            is cut.
        batch: Batch to cut; its arrays may have further leading axes.
        packed: Whether `function` packs the batch to the length instead.
        axis_name: Name of a mapped axis whose batches are all cut to the same length: if each chose
            its own branch, all branches would be executed for all of them.
    """
    if not packed and len(ends) < 2:
        return function(batch)
    apply = _apply_packed if packed else _apply_cut
    branches = [functools.partial(apply, function, end) for end in ends]
    if len(branches) == 1:
        return branches[0](batch)
    longest = jnp.max(_required_lengths(batch, packed))
    if axis_name is not None:
        longest = jax.lax.pmax(longest, axis_name)
    index = jnp.sum(longest > jnp.asarray(ends[:-1]), dtype=jnp.int32)
    return jax.lax.switch(index, branches, batch)


def _apply_cut(function: Callable[[Batch], T], end: int, batch: Batch) -> T:
    return function(batch._replace(ids=batch.ids[..., :end], mask=batch.mask[..., :end]))


def _apply_packed(function: Callable[..., T], end: int, batch: Batch) -> T:
    return function(batch, packed_length=end)


def _required_lengths(batch: Batch, packed: bool) -> Int[Array, "*batch"]:
    """Number of positions that each example needs, of a pair the longer text.

    These are the positions up to the last token or, if `packed`, the real ones.
    """
    if packed:
        lengths = jnp.sum(batch.mask, axis=-1, dtype=jnp.int32)
    else:
        positions = 1 + jnp.arange(batch.mask.shape[-1], dtype=jnp.int32)
        lengths = jnp.max(jnp.where(batch.mask, positions, 0), axis=-1)
    pairs = lengths.ndim > batch.labels.ndim
    return jnp.max(lengths, axis=-1) if pairs else lengths
