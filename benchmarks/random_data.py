"""Random examples with a task's lengths: the cost of a step does not depend on their content."""

import os

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


def usual_lengths(task: str, count: int) -> np.ndarray:
    """Lengths of `count` sequences, distributed as in the task's data, int [count]."""
    deciles = _DECILES.get(task, (LONGEST[task],) * 2)
    shares = (np.arange(count) + 0.5) / count
    lengths = np.interp(shares, np.linspace(0, 1, len(deciles)), deciles).astype(int)
    return np.random.default_rng(0).permutation(lengths)


def write_random(
    folder: str | os.PathLike, task: Task, lengths: np.ndarray, max_length: int
) -> None:
    """Writes prepared data whose splits have a sequence of each of `lengths`."""
    rng, count = np.random.default_rng(0), len(lengths)
    high = 256 if task.first_id or task.pixels else task.vocab_size

    def sequences() -> list[np.ndarray]:
        return [rng.integers(1, high, length).astype(np.uint8) for length in lengths]

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
