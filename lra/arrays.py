"""Prepared data as padded arrays on the devices, and batches gathered from them by index."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from lra import sharding
from lra.data.prepared import Prepared, Sequences, Split
from lra.errors import UserError
from lra.tasks import Task

# Epoch whose order decides which examples are held out; no training reaches it.
_HOLDOUT_EPOCH = 2**63


class Examples(NamedTuple):
    """Examples of one split, on the host or on devices.

    Attributes:
        tokens: Tokens as stored, padded with 0.
        lengths: Lengths in positions, int32.
        labels: Labels, int32.
        pairs: Indices of the two sequences of each example, int32; None if example i is sequence i.
    """

    tokens: UInt8[Array | np.ndarray, "sequences length"]
    lengths: Int[Array | np.ndarray, " sequences"]
    labels: Int[Array | np.ndarray, " examples"]
    pairs: Int[Array | np.ndarray, "examples two"] | None


class Batch(NamedTuple):
    """Inputs of a model and labels.

    Attributes:
        ids: Token ids, int32 [batch, length]; for pairs [batch, 2, length].
        mask: Whether each position is real, bool, of the same shape.
        labels: Labels, int32 [batch].
    """

    ids: Int[Array, "batch *two length"]
    mask: Bool[Array, "batch *two length"]
    labels: Int[Array | np.ndarray, " batch"]


def padded_length(prepared: Prepared) -> int:
    """Length of the longest sequence, rounded up to a power of two; models are built for it."""
    return 1 << (prepared.manifest["max_length"] - 1).bit_length()


def stored_lengths(prepared: Prepared, name: str, *, real: bool = False) -> np.ndarray:
    """Number of positions of each example of a stored split, int [examples].

    Of a pair, the length of the longer text counts. With `real`, only positions whose token is not
    0 count.
    """
    sequences, _, pairs = prepared.split(name)
    lengths = np.diff(sequences.offsets)
    if real:
        lengths = np.array([np.count_nonzero(sequences[i]) for i in range(len(sequences))])
    return lengths if pairs is None else np.max(lengths[pairs], axis=1)


def load_examples(
    prepared: Prepared, names: tuple[str, ...], holdout: float
) -> dict[str, Examples]:
    """Load splits as padded NumPy arrays, by name; equal splits share their arrays.

    Args:
        prepared: Prepared data of the task.
        names: Names of the splits: `train`, `validation`, `test`.
        holdout: Fraction of the training examples that become the validation set; 0 for the stored
            validation set (which in Text is the test set). The choice is the same in every run.

    Raises:
        UserError: If the holdout leaves a split empty.
    """
    length = padded_length(prepared)
    aliases = {} if holdout else prepared.manifest["aliases"]
    sources = {name: aliases.get(name, name) for name in names}
    documents: tuple[np.ndarray, np.ndarray] | None = None
    loaded: dict[str, Examples] = {}
    for source in dict.fromkeys(sources.values()):
        split = _select(prepared, source, holdout)
        if split.pairs is None:
            padded = pad(split.sequences, length)
        else:  # all splits pair the same documents
            padded = documents = documents or pad(split.sequences, length)
        loaded[source] = Examples(*padded, split.labels, split.pairs)
    return {name: loaded[source] for name, source in sources.items()}


def check_fits(examples: Iterable[Examples], task: Task) -> None:
    """Raise UserError for ids or labels out of range, which JAX would clip silently."""
    for split in examples:
        largest, label = int(np.max(split.tokens)) + task.first_id, int(np.max(split.labels))
        if largest >= task.vocab_size:
            raise UserError(
                f"{task.name}: ids go up to {largest}, but the task has vocab_size = "
                f"{task.vocab_size}; correct lra/tasks.py or prepare other data"
            )
        if label >= task.num_classes or int(np.min(split.labels)) < 0:
            raise UserError(
                f"{task.name}: a label is not one of 0 to {task.num_classes - 1}, which the task "
                "has; correct lra/tasks.py or prepare other data"
            )


def pad(sequences: Sequences, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pad sequences with 0; return tokens, uint8 [n, length], and lengths, int32 [n]."""
    lengths = np.diff(sequences.offsets).astype(np.int32)
    if np.all(lengths == length):
        return sequences.tokens.reshape(-1, length), lengths
    tokens = np.zeros((len(sequences), length), np.uint8)
    tokens[np.arange(length) < lengths[:, None]] = sequences.tokens
    return tokens, lengths


def gather(
    examples: Examples,
    indices: Int[Array | np.ndarray, " batch"],
    task: Task,
    zero_is_padding: bool,
) -> Batch:
    """Gather the batch of the examples at `indices`, on the device.

    A position is real if it lies before the end of the sequence, since a raw byte may be 0; where
    zero is padding, its pixel must not be 0 either.
    """
    rows = indices if examples.pairs is None else examples.pairs[indices]
    tokens = examples.tokens[rows].astype(jnp.int32)
    positions = jax.lax.broadcasted_iota(jnp.int32, tokens.shape, tokens.ndim - 1)
    inside = positions < examples.lengths[rows][..., None]
    mask = inside & (tokens > 0) if zero_is_padding else inside
    return Batch(jnp.where(inside, tokens + task.first_id, 0), mask, examples.labels[indices])


def stored_index(prepared: Prepared, name: str, holdout: float) -> tuple[str, np.ndarray]:
    """Name of the stored split that has the examples of a split, and their indices there.

    Example i of the split `name` that `load_examples` returns is example `index[i]` of
    `prepared.split(stored)`; the index is int64 [examples], ascending.

    Args:
        prepared: Prepared data of the task.
        name: Name of the split: `train`, `validation` or `test`.
        holdout: Fraction of training examples held out, as in `load_examples`.

    Raises:
        UserError: If the holdout leaves a split empty.
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
    stored, index = stored_index(prepared, name, holdout)
    split = prepared.split(stored)
    if len(index) == len(split.labels):  # all of them: no copy needed
        return split
    if split.pairs is not None:
        return Split(split.sequences, split.labels[index], split.pairs[index])
    offsets = np.zeros(len(index) + 1, np.int64)
    np.cumsum(np.diff(split.sequences.offsets)[index], out=offsets[1:])
    tokens = np.concatenate([split.sequences[i] for i in index])
    return Split(Sequences(tokens, offsets), split.labels[index], None)


@functools.lru_cache(maxsize=32)  # consecutive training calls ask for the same few epochs
def permutation(total: int, seed: int, epoch: int) -> np.ndarray:
    """Random order of `total` examples, int64 [total], a pure function of (seed, epoch).

    Sorts the raw output of the Philox generator, which is the same in all versions of NumPy.
    """
    return np.argsort(np.random.Philox(key=[seed, epoch]).random_raw(total), kind="stable")


def training_indices(total: int, seed: int, start: int, count: int) -> np.ndarray:
    """Examples `start` to `start + count` of the infinite training stream, int32 [count].

    The stream is the concatenation of all epochs, each in its own order.
    """
    parts = []
    position, end = start, start + count
    while position < end:
        epoch, offset = divmod(position, total)
        size = min(total - offset, end - position)
        parts.append(permutation(total, seed, epoch)[offset : offset + size])
        position += size
    return np.concatenate(parts).astype(np.int32)


def put(splits: dict[str, Examples], where: jax.sharding.Sharding) -> dict[str, Examples]:
    """Put splits on the devices; arrays that splits share are put there once."""
    arrays = {id(x): x for x in jax.tree.leaves(splits)}
    placed = {name: sharding.put(np.asarray(x), where) for name, x in arrays.items()}
    return jax.tree.map(lambda x: placed[id(x)], splits)
