"""How far a run has come, by what is in its folder."""

import hashlib
import pathlib
import statistics
from typing import Any, NamedTuple

from lra.workdir import Workdir, read_metrics

# The speed is the median of so many of the latest training calls. The first call is left out, since
# it compiled; so did the first of each later start, but these are too few to move a median.
_CALLS = 20


class UnderWay(NamedTuple):
    """A run, begun or not.

    Attributes:
        step: training steps made.
        evaluated: the step evaluated last; 0 for none.
        examples_per_second: in training, over all seeds; None before the second call.
    """

    step: int = 0
    evaluated: int = 0
    examples_per_second: float | None = None


def read(metrics: pathlib.Path) -> UnderWay:
    """What `metrics` tells."""
    steps = {"train": 0, "eval": 0}
    speeds = []
    for values in _lines(metrics):
        steps[values["kind"]] = values["step"]
        speeds.append(values.get("examples_per_second"))
    known = [speed for speed in speeds if speed][1:][-_CALLS:]
    return UnderWay(steps["train"], steps["eval"], statistics.median(known) if known else None)


def _lines(metrics: pathlib.Path) -> list[dict[str, Any]]:
    """Those of a file; of none where it cannot be read, which the run itself will tell."""
    try:
        return read_metrics(metrics)
    except OSError:
        return []


def progress(folder: Workdir) -> tuple[UnderWay, dict[str, str]]:
    """A fingerprint of progress: it changes with each step, evaluation or newly saved part of one.

    A part that was only saved once more has the same bytes, and changes nothing.
    """
    parts = folder.evaluations.glob("*.npz")
    return read(folder.metrics), {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in parts
    }
