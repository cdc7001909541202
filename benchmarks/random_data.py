"""Random examples of a task's shape: what a step costs does not depend on what it learns."""

import os

import numpy as np

from lra.data.prepared import TaskWriter
from lra.tasks import Task

# Longest sequence, training, validation and test examples of the official data (LRA).
SIZES = {
    "listops": (2000, 96_000, 2_000, 2_000),
    "text": (4096, 25_000, 25_000, 25_000),
    "retrieval": (4000, 147_086, 18_090, 17_437),
    "image": (1024, 45_000, 5_000, 10_000),
    "pathfinder": (1024, 160_000, 20_000, 20_000),
    "pathx": (16_384, 160_000, 20_000, 20_000),
}


def write_random(folder: str | os.PathLike, task: Task, count: int, length: int) -> None:
    """Prepared data with `count` examples of `length` tokens in each split."""
    rng = np.random.default_rng(0)
    high = 256 if task.first_id or task.pixels else task.vocab_size
    with TaskWriter(folder, task.name) as writer:
        if task.pairs:
            writer.sequences("docs", rng.integers(1, high, (count, length)).astype(np.uint8))
        for split in ("train", "validation", "test"):
            labels = rng.integers(0, task.num_classes, count).astype(np.int32)
            if task.pairs:
                pairs = rng.integers(0, count, (count, 2)).astype(np.int32)
                writer.array(f"{split}/pairs.npy", pairs)
            else:
                writer.sequences(split, rng.integers(1, high, (count, length)).astype(np.uint8))
            writer.array(f"{split}/labels.npy", labels)
        counts = dict.fromkeys(("train", "validation", "test"), count)
        writer.finish(data="random", source="benchmark", counts=counts, max_length=length)
