"""Tasks of the benchmark, with the facts about each that a configuration cannot change.

CONTRIBUTING.md explains how to add one.
"""

import dataclasses

from lra.errors import UserError
from lra.near_names import near_match


@dataclasses.dataclass(frozen=True)
class Task:
    """Facts about one task (LRA, arXiv 2011.04006).

    Attributes:
        name: Name of the task, its config file and its folder of prepared data.
        title: Name in tables.
        vocab_size: Number of token ids that occur, including 0 for padding. The code behind Table 3
            of the Nyströmformer paper has 32 for ListOps and 512 for bytes; its unused embedding
            rows account for the difference in parameter counts.
        first_id: Offset that is added to a stored byte to make its id.
        num_classes: Number of labels.
        counts: Number of examples of each split of LRA's data. A task not from LRA needs its own
            only to be measured by `benchmarks.train_step`.
        pairs: Whether an example has two documents.
        pixels: Whether bytes are pixels of square images; those with value 0 may count as padding.
        source: Argument of `--source` for `lra.data.prepare`; empty if the data are generated.
    """

    name: str
    title: str
    vocab_size: int
    first_id: int
    num_classes: int
    counts: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    pairs: bool = False
    pixels: bool = False
    source: str = ""

    @property
    def lacks_validation(self) -> bool:
        """Whether LRA has no validation set for this task, so that the test set takes its place."""
        return bool(self.counts) and "validation" not in self.counts


_PATHFINDER = {"train": 160_000, "validation": 20_000, "test": 20_000}
TASKS = {
    task.name: task
    for task in (
        # 15 symbols, stored as ids 1 to 15 (lra.data.listops.VOCABULARY).
        Task(
            "listops",
            "ListOps",
            vocab_size=16,
            first_id=0,
            num_classes=10,
            counts={"train": 96_000, "validation": 2_000, "test": 2_000},
        ),
        # Bytes; id = byte + 1.
        Task(
            "text",
            "Text",
            vocab_size=257,
            first_id=1,
            num_classes=2,
            counts={"train": 25_000, "test": 25_000},
            source="download",
        ),
        Task(
            "retrieval",
            "Retrieval",
            vocab_size=257,
            first_id=1,
            num_classes=2,
            counts={"train": 147_086, "validation": 18_090, "test": 17_437},
            pairs=True,
            source="FOLDER",  # with LRA's new_aan_pairs.*.tsv
        ),
        # Grey levels; id = level.
        Task(
            "image",
            "Image",
            vocab_size=256,
            first_id=0,
            num_classes=10,
            counts={"train": 45_000, "validation": 5_000, "test": 10_000},
            pixels=True,
            source="download",
        ),
        Task(
            "pathfinder",
            "Pathfinder",
            vocab_size=256,
            first_id=0,
            num_classes=2,
            counts=_PATHFINDER,
            pixels=True,
        ),
        Task(
            "pathx",
            "Path-X",
            vocab_size=256,
            first_id=0,
            num_classes=2,
            counts=_PATHFINDER,
            pixels=True,
        ),
    )
}


def get_task(name: str) -> Task:
    """Look up the task called `name`; raises UserError, with a near match, if there is none."""
    if name not in TASKS:
        raise UserError(f"unknown task '{name}'{near_match(str(name), TASKS)}")
    return TASKS[name]
