"""Progress of a run, read from the files in its folder."""

import hashlib
import pathlib
import statistics
from typing import Any, NamedTuple

from lra.metrics import read_metrics
from lra.workdir import Workdir

# Number of latest training calls whose median is the speed. The first call is excluded, since it
# compiles; so does the first call of each later start, but these are too few to affect the median.
_CALLS = 20


class UnderWay(NamedTuple):
    """Progress of a run, which may not have started yet.

    Attributes:
        step: Number of training steps made.
        evaluated: Step of the last evaluation; 0 for none.
        examples_per_second: Training speed over all seeds; None before the second call.
    """

    step: int = 0
    evaluated: int = 0
    examples_per_second: float | None = None


def read(metrics: pathlib.Path) -> UnderWay:
    """Read the progress from a file of metrics."""
    steps = {"train": 0, "eval": 0}
    speeds = []
    for values in _lines(metrics):
        steps[values["kind"]] = values["step"]
        speeds.append(values.get("examples_per_second"))
    recent = [speed for speed in speeds if speed][1:][-_CALLS:]
    return UnderWay(steps["train"], steps["eval"], statistics.median(recent) if recent else None)


def _lines(metrics: pathlib.Path) -> list[dict[str, Any]]:
    """Return the lines of a file, or none if it cannot be read; the run itself reports that."""
    try:
        return read_metrics(metrics)
    except OSError:
        return []


def fingerprint(folder: Workdir) -> tuple[UnderWay, dict[str, str]]:
    """Return a fingerprint that changes with every step, evaluation or new part of an evaluation.

    A part that is merely saved again has the same bytes and does not change it.
    """
    parts = folder.evaluations.glob("*.npz")
    return read(folder.metrics), {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts
    }
