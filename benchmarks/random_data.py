"""Random examples with a task's lengths and padding, which alone affect the cost of a step."""

import os
from collections.abc import Sequence

import numpy as np

from lra.data.task_writer import TaskWriter
from lra.tasks import Task

# Length of the longest sequence in LRA's data.
LONGEST = {
    "listops": 2000,
    "text": 4096,
    "retrieval": 4000,
    "image": 1024,
    "pathfinder": 1024,
    "pathx": 16_384,
}

# Deciles of the lengths of training examples (ListOps as generated, IMDb's reviews). In the other
# tasks nearly all sequences have the maximum length.
_DECILES = {
    "listops": (501, 578, 660, 748, 845, 956, 1079, 1225, 1405, 1644, 1999),
    "text": (52, 512, 664, 742, 843, 979, 1160, 1429, 1853, 2617, 4096),
}

# Deciles of the share of non-zero pixels, in 40,000 generated images. In Image it is nearly 1.
_REAL_DECILES = {
    "pathfinder": np.array([203, 318, 335, 347, 358, 369, 380, 392, 406, 425, 549]) / 1024,
}


def usual_lengths(task: str, count: int) -> np.ndarray:
    """Return lengths of `count` sequences, distributed as in the task's data, int [count]."""
    return _sample(_DECILES.get(task, (LONGEST[task],) * 2), count).astype(int)


def _sample(deciles: Sequence[float], count: int) -> np.ndarray:
    """Return `count` evenly spaced quantiles of a distribution in random order."""
    levels = (np.arange(count) + 0.5) / count
    quantiles = np.interp(levels, np.linspace(0, 1, len(deciles)), deciles)
    return np.random.default_rng(0).permutation(quantiles)


def write_random(
    folder: str | os.PathLike, task: Task, lengths: np.ndarray, max_length: int
) -> None:
    """Write prepared data, each of whose splits has one sequence of each of `lengths`.

    As many pixels are 0 as in the task's data, at random positions.
    """
    rng, count = np.random.default_rng(0), len(lengths)
    high = task.vocab_size - task.first_id

    def sequences() -> list[np.ndarray]:
        real_shares = _sample(_REAL_DECILES.get(task.name, (1, 1)), count)
        tokens = [rng.integers(1, high, length).astype(np.uint8) for length in lengths]
        for sequence, share in zip(tokens, real_shares, strict=True):
            num_real = round(share * len(sequence))
            sequence[rng.permutation(len(sequence))[num_real:]] = 0
        return tokens

    with TaskWriter(folder, task.name) as writer:
        if task.pairs:
            writer.sequences("docs", sequences())
        for split in ("train", "validation", "test"):
            labels = rng.integers(0, task.num_classes, count).astype(np.int32)
            if task.pairs:
                pairs = rng.integers(0, count, (count, 2)).astype(np.int32)
                writer.array(f"{split}/pairs.npy", pairs)
            else:
                writer.sequences(split, sequences())
            writer.array(f"{split}/labels.npy", labels)
        counts = dict.fromkeys(("train", "validation", "test"), count)
        writer.finish(data="random", source="benchmark", counts=counts, max_length=max_length)
