"""Prepared data as the device holds it: padded arrays, and batches gathered from them by index."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from lra import sharding
from lra.data.prepared import Prepared, Sequences, Split
from lra.errors import UserError
from lra.tasks import Task

_ROWS = 512  # counted at a time

# The epoch in whose order examples are held out; no training reaches it.
_HOLDOUT_EPOCH = 2**63


class Examples(NamedTuple):
    """The examples of one split.

    Attributes:
        tokens: uint8 [sequences, padded length], as stored.
        lengths: int32 [sequences], in positions.
        labels: int32 [examples].
        pairs: int32 [examples, 2], indices of sequences; None where example i is sequence i.
    """

    tokens: Array
    lengths: Array
    labels: Array
    pairs: Array | None


class Batch(NamedTuple):
    """What a model sees: `ids` int32 and `mask` bool [batch, (2,) length], `labels` [batch]."""

    ids: Int[Array, "batch *two length"]
    mask: Bool[Array, "batch *two length"]
    labels: Int[Array, " batch"]


def padded_length(prepared: Prepared) -> int:
    """The length models are built for: the longest sequence's, rounded up to a power of two."""
    return 1 << (prepared.manifest["max_length"] - 1).bit_length()


def stored_lengths(prepared: Prepared, name: str, *, real: bool = False) -> np.ndarray:
    """Positions of each example of a stored split, int [examples]; of a pair the longer text's.

    `real`: only those whose token is not 0.
    """
    sequences, pairs = prepared.split(name).sequences, prepared.split(name).pairs
    lengths = _count_real(sequences) if real else np.diff(sequences.offsets)
    return lengths if pairs is None else np.max(lengths[pairs], axis=1)


def _count_real(sequences: Sequences) -> np.ndarray:
    counts, offsets = [], sequences.offsets
    for row in range(0, len(sequences), _ROWS):
        ends = offsets[row : row + _ROWS + 1]
        real = sequences.tokens[ends[0] : ends[-1]] != 0
        before = np.concatenate([[0], np.cumsum(real)])
        counts.append(np.diff(before[ends - ends[0]]))
    return np.concatenate(counts)


def load_examples(
    prepared: Prepared, names: tuple[str, ...], holdout: float
) -> dict[str, Examples]:
    """The named splits as padded NumPy arrays, by name; equal splits share their arrays.

    Args:
        prepared: the task's prepared data.
        names: of `train`, `validation`, `test`.
        holdout: share of the training examples that become the validation set; 0 for the stored
            validation set (which in Text is the test set). The choice is the same in every run.

    Raises:
        UserError: a holdout that leaves a split empty.
    """
    length = padded_length(prepared)
    aliases = {} if holdout else prepared.manifest["aliases"]
    documents: tuple[np.ndarray, np.ndarray] | None = None
    splits: dict[str, Examples] = {}
    for name in names:
        source = aliases.get(name, name)
        if source not in splits:
            split = _select(prepared, source, holdout)
            if split.pairs is None:
                padded = pad(split.sequences, length)
            else:  # all splits pair the same documents
                padded = documents = documents or pad(split.sequences, length)
            splits[source] = Examples(*padded, split.labels, split.pairs)
        splits[name] = splits[source]
    return {name: splits[name] for name in names}


def check_fits(examples: Iterable[Examples], task: Task) -> None:
    """Raises UserError for ids or labels that `task` has not: indexing would clip them silently."""
    for one in examples:
        largest, label = int(np.max(one.tokens)) + task.first_id, int(np.max(one.labels))
        if largest >= task.vocab_size:
            raise UserError(
                f"{task.name}: ids go up to {largest}, but the task has vocab_size = "
                f"{task.vocab_size}; correct lra/tasks.py or prepare other data"
            )
        if label >= task.num_classes or int(np.min(one.labels)) < 0:
            raise UserError(
                f"{task.name}: a label is not one of 0 to {task.num_classes - 1}, which the task "
                "has; correct lra/tasks.py or prepare other data"
            )


def pad(sequences: Sequences, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences as rows: tokens uint8 [n, length], 0 behind each end, and lengths int32 [n]."""
    lengths = np.diff(sequences.offsets).astype(np.int32)
    if np.all(lengths == length):
        return sequences.tokens.reshape(-1, length), lengths
    tokens = np.zeros((len(sequences), length), np.uint8)
    tokens[np.arange(length) < lengths[:, None]] = sequences.tokens
    return tokens, lengths


def gather(
    examples: Examples, indices: Int[Array, " batch"], task: Task, zero_is_padding: bool
) -> Batch:
    """The batch of the examples at `indices`, on the device.

    A position is real when it lies before the sequence's end (and, where zero is padding, when
    its pixel is not 0): a raw byte may be 0.
    """
    rows = indices if examples.pairs is None else examples.pairs[indices]
    tokens = examples.tokens[rows].astype(jnp.int32)
    positions = jax.lax.broadcasted_iota(jnp.int32, tokens.shape, tokens.ndim - 1)
    inside = positions < examples.lengths[rows][..., None]
    mask = inside & (tokens > 0) if zero_is_padding else inside
    return Batch(jnp.where(inside, tokens + task.first_id, 0), mask, examples.labels[indices])


def stored_index(prepared: Prepared, name: str, holdout: float) -> tuple[str, np.ndarray]:
    """Where the examples of a split are stored: the name of a stored split, positions there.

    Example i of the split `name` that `load_examples` returns is example `positions[i]` of
    `prepared.split(stored)`; positions are int64 [examples], ascending.

    Args:
        prepared: the task's prepared data.
        name: `train`, `validation` or `test`.
        holdout: as in `load_examples`.

    Raises:
        UserError: a holdout that leaves a split empty.
    """
    if not holdout or name == "test":
        stored = prepared.manifest["aliases"].get(name, name)
        return stored, np.arange(len(prepared.split(stored).labels))
    total = len(prepared.split("train").labels)
    held = round(total * holdout)
    if not 0 < held < total:
        raise UserError(f"data.holdout={holdout} of {total} training examples leaves a split empty")
    order = permutation(total, seed=0, epoch=_HOLDOUT_EPOCH)
    return "train", np.sort(order[:held] if name == "validation" else order[held:])


def _select(prepared: Prepared, name: str, holdout: float) -> Split:
    stored, chosen = stored_index(prepared, name, holdout)
    split = prepared.split(stored)
    if len(chosen) == len(split.labels):  # all: no copy
        return split
    if split.pairs is not None:
        return Split(split.sequences, split.labels[chosen], split.pairs[chosen])
    offsets = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(np.diff(split.sequences.offsets)[chosen], out=offsets[1:])
    tokens = np.concatenate([split.sequences[i] for i in chosen])
    return Split(Sequences(tokens, offsets), split.labels[chosen], None)


@functools.lru_cache(maxsize=32)  # consecutive calls of a training ask for the same few
def permutation(total: int, seed: int, epoch: int) -> np.ndarray:
    """An order of `total` examples, int64 [total]: a pure function of (seed, epoch).

    It sorts raw output of the Philox generator, which no version of NumPy may change.
    """
    return np.argsort(np.random.Philox(key=[seed, epoch]).random_raw(total), kind="stable")


def training_indices(total: int, seed: int, start: int, count: int) -> np.ndarray:
    """Examples `start` to `start + count` of the endless training stream, int32 [count].

    The stream is one epoch after the other, each in its own order.
    """
    parts = []
    position, end = start, start + count
    while position < end:
        epoch, offset = divmod(position, total)
        taken = min(total - offset, end - position)
        parts.append(permutation(total, seed, epoch)[offset : offset + taken])
        position += taken
    return np.concatenate(parts).astype(np.int32)


def put(splits: dict[str, Examples], where: jax.sharding.Sharding) -> dict[str, Examples]:
    """The same arrays on the devices; those that splits share are there once."""
    arrays = {id(x): x for x in jax.tree.leaves(splits)}
    placed = {name: sharding.put(np.asarray(x), where) for name, x in arrays.items()}
    return jax.tree.map(lambda x: placed[id(x)], splits)
