"""Random examples with a task's lengths and padding: no other content affects a step's cost."""

import os
from collections.abc import Sequence

import numpy as np

from lra.data.task_writer import TaskWriter
from lra.tasks import Task

# Positions of the longest sequence of LRA's data.
LONGEST = {
    "listops": 2000,
    "text": 4096,
    "retrieval": 4000,
    "image": 1024,
    "pathfinder": 1024,
    "pathx": 16_384,
}

# Deciles of the lengths of training examples (ListOps as generated, IMDb's reviews). In the other
# tasks nearly all have the greatest length.
_DECILES = {
    "listops": (501, 578, 660, 748, 845, 956, 1079, 1225, 1405, 1644, 1999),
    "text": (52, 512, 664, 742, 843, 979, 1160, 1429, 1853, 2617, 4096),
}

# Deciles of the shares of pixels that are not 0, in 40,000 generated images; in Image nearly all.
_REAL_DECILES = {
    "pathfinder": np.array([203, 318, 335, 347, 358, 369, 380, 392, 406, 425, 549]) / 1024,
}


def usual_lengths(task: str, count: int) -> np.ndarray:
    """Lengths of `count` sequences, distributed as in the task's data, int [count]."""
    return _distributed(_DECILES.get(task, (LONGEST[task],) * 2), count).astype(int)


def _distributed(deciles: Sequence[float], count: int) -> np.ndarray:
    shares = (np.arange(count) + 0.5) / count
    numbers = np.interp(shares, np.linspace(0, 1, len(deciles)), deciles)
    return np.random.default_rng(0).permutation(numbers)


def write_random(
    folder: str | os.PathLike, task: Task, lengths: np.ndarray, max_length: int
) -> None:
    """Writes prepared data whose splits have a sequence of each of `lengths`.

    Pixels are 0 as often as in the task's data, anywhere.
    """
    rng, count = np.random.default_rng(0), len(lengths)
    high = 256 if task.first_id or task.pixels else task.vocab_size

    def sequences() -> list[np.ndarray]:
        real = _distributed(_REAL_DECILES.get(task.name, (1, 1)), count)
        made = [rng.integers(1, high, length).astype(np.uint8) for length in lengths]
        for sequence, share in zip(made, real, strict=True):
            kept = round(share * len(sequence))
            sequence[rng.permutation(len(sequence))[kept:]] = 0
        return made

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
