"""Length buckets: a part of a batch is cut to the shortest of a few lengths that holds it.

Half of ListOps' padded positions and two thirds of Text's are padding, which costs a model of fixed
shapes as much as tokens do. On a CPU a batch is sorted by length and taken in parts (`lra.parts`),
which thus differ in their longest sequence; the program has a branch for each length. Results
differ only by rounding: every attention gives the same on a shorter sequence as on the padded one
(`models.attention.contract`), and dropout's draws for a position do not depend on what follows it.

Other devices cut nothing: the longest sequence of a whole training batch nearly always needs the
full length, and branches were not timed there.

Where zero is padding, it lies between the tokens, and sequences are packed instead, if that leaves
out much (`models.attention.packing`): 40,000 generated images of Pathfinder have 203 to 549 real
positions of 1,024. Their length is then how many are real. Other devices pack to a single length,
that of the longest sequence. Whether sequences are packed depends on the training data alone, since
the draws of dropout then count real positions.
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

_STEP = 256  # buckets end at multiples: of blocks of exact attention, of segments of landmarks
# At most so many buckets, since each is compiled, in training together with its backward pass.
_MOST, _MOST_OF_EVALUATIONS = 4, 8
_SHORTEST = 1024  # padded lengths below are not cut: compilation would cost more than it saves
_LEAST_SAVING = 0.1  # of the positions
_PACKED_STEP = 64  # ends of packed buckets are multiples


def choose_lengths(
    lengths: np.ndarray, padded: int, *, devices: int = 1, evaluation: bool = False
) -> tuple[int, ...]:
    """Ends of buckets, ascending, the last one `padded`; only that where cutting is no use.

    Args:
        lengths: of the training examples, int [examples], in positions.
        padded: the length they are padded to.
        devices: that share the batch or the seeds.
        evaluation: whether for evaluations, which may have more of them.
    """
    most = _MOST_OF_EVALUATIONS if evaluation else _MOST
    whole = (padded,)
    if devices > 1 or this_backend() != "cpu" or padded < _SHORTEST:
        return whole
    quantiles = np.quantile(lengths, np.arange(1, most) / most)
    steps = {max(1, math.ceil(length / _STEP)) for length in quantiles}
    ends = (*(step * _STEP for step in sorted(steps) if step * _STEP < padded), padded)
    if bucket_ends(lengths, ends).mean() > (1 - _LEAST_SAVING) * padded:
        return whole
    return ends


def choose_packed_lengths(
    lengths: np.ndarray, longest: int, padded: int, *, devices: int = 1
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Ends of buckets of packed sequences, ascending, of training and of evaluations.

    None where packing is no use: where on a CPU, to the training examples, it would save little. A
    single long example thus does not keep a CPU from packing, but takes what other devices gain.

    Args:
        lengths: of the training examples, int [examples], in real positions.
        longest: of all examples, those of other splits too.
        padded: the length they are padded to.
        devices: that share the batch or the seeds.
    """
    ends = _packed_ends(lengths, int(lengths.max()), padded, _MOST)
    saves = bucket_ends(lengths, ends).mean() <= (1 - _LEAST_SAVING) * padded
    if padded < _SHORTEST or not saves:
        return None
    # Elsewhere one, of the longest.
    numbers = (1, 1) if devices > 1 or this_backend() != "cpu" else (_MOST, _MOST_OF_EVALUATIONS)
    training, evaluation = (_packed_ends(lengths, longest, padded, most) for most in numbers)
    return training, evaluation


def _packed_ends(lengths: np.ndarray, longest: int, padded: int, most: int) -> tuple[int, ...]:
    """At most so many; the last one holds the longest."""
    quantiles = np.quantile(lengths, np.arange(1, most) / most)
    ends = {_PACKED_STEP * max(1, math.ceil(x / _PACKED_STEP)) for x in (*quantiles, longest)}
    return tuple(sorted({min(end, padded) for end in ends}))


def bucket_ends(lengths: np.ndarray, ends: tuple[int, ...]) -> np.ndarray:
    """The end of the bucket of each length."""
    return np.asarray(ends)[np.searchsorted(ends, lengths)]


def evaluation_order(lengths: np.ndarray, batch: int) -> np.ndarray:
    """Sorts examples by length, the longest first, and shuffles the batches that are full.

    So the calls of an evaluation, of several batches each, take about equally long.
    """
    order = np.argsort(-lengths, kind="stable")
    full = len(order) // batch
    whole, rest = np.split(order, [full * batch])
    return np.concatenate([whole.reshape(full, batch)[permutation(full, 0, 0)].ravel(), rest])


def by_length(batch: Batch, *, packed: bool = False) -> Int[Array, " batch"]:
    """The order of a batch's examples from the longest to the shortest."""
    return jnp.argsort(_needed(batch, packed), descending=True)


def in_bucket(
    function: Callable[..., T],
    ends: tuple[int, ...],
    batch: Batch,
    *,
    packed: bool = False,
    axis_name: str | None = None,
) -> T:
    """Applies `function` to the batch, cut to the shortest of `ends` that drops only padding.

    Args:
        function: takes a batch, and where it is to be packed `packed_length=`; its result's shape
            does not depend on the length.
        ends: of the buckets, ascending, the last one that of the longest sequence; none: nothing is
            cut.
        batch: to be cut; its arrays may have further axes in front.
        packed: whether it is not to be cut, but packed by `function`.
        axis_name: of a mapped axis whose batches are cut alike: if each chose its own branch, all
            branches would be executed for all of them.
    """
    if not packed and len(ends) < 2:
        return function(batch)
    of_end = _of_packed if packed else _of_cut
    branches = [functools.partial(of_end, function, end) for end in ends]
    if len(branches) == 1:
        return branches[0](batch)
    longest = jnp.max(_needed(batch, packed))
    if axis_name is not None:
        longest = jax.lax.pmax(longest, axis_name)
    number = jnp.sum(longest > jnp.asarray(ends[:-1]), dtype=jnp.int32)
    return jax.lax.switch(number, branches, batch)


def _of_cut(function: Callable[[Batch], T], end: int, batch: Batch) -> T:
    return function(batch._replace(ids=batch.ids[..., :end], mask=batch.mask[..., :end]))


def _of_packed(function: Callable[..., T], end: int, batch: Batch) -> T:
    return function(batch, packed_length=end)


def _needed(batch: Batch, packed: bool) -> Int[Array, "*batch"]:
    """Positions of each example up to its last token (of a pair: of the longer text).

    Packed, those that are real.
    """
    if packed:
        needed = jnp.sum(batch.mask, axis=-1, dtype=jnp.int32)
    else:
        positions = 1 + jnp.arange(batch.mask.shape[-1], dtype=jnp.int32)
        needed = jnp.max(jnp.where(batch.mask, positions, 0), axis=-1)
    pairs = needed.ndim > batch.labels.ndim
    return jnp.max(needed, axis=-1) if pairs else needed
