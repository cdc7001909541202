"""How far a run has come, by the metrics.jsonl in its folder."""

import contextlib
import json
import pathlib
import statistics
from typing import NamedTuple

# The speed is that of so many calls of late: the first of each start compiles.
_CALLS = 20


class UnderWay(NamedTuple):
    """A run, begun or not.

    Attributes:
        step: training steps made.
        evaluated: the step evaluated last; 0 for none.
        examples_per_second: in training, over all seeds; None before the first step.
    """

    step: int = 0
    evaluated: int = 0
    examples_per_second: float | None = None


def read(metrics: pathlib.Path) -> UnderWay:
    """What `metrics` tells; lines that were cut short by a kill tell nothing."""
    steps, speeds = {"train": 0, "eval": 0}, []
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    for line in lines:
        with contextlib.suppress(ValueError):
            values = json.loads(line)
            steps[values["kind"]] = values["step"]
            if values["kind"] == "train":
                speeds.append(values["examples_per_second"])
    speed = statistics.median(speeds[-_CALLS:]) if speeds else None
    return UnderWay(steps["train"], steps["eval"], speed)
