"""What figures show: accuracy against speed, and curves of training."""

import math
import pathlib
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lra.errors import UserError
from lra.protocol import overrides_of
from lra.published import TASKS
from lra.report.cells import (
    Cell,
    Stat,
    attention_title,
    average,
    usual_platform,
)
from lra.report.changes import OPTIONS
from lra.report.groups import Group, Line
from lra.report.places import mark_of_data
from lra.report.provenance import Platform
from lra.settings import flatten
from lra.workdir import Workdir, read_metrics

# A curve has at most so many points: more than a column can show is noise.
_MOST_POINTS = 80


class Dot(NamedTuple):
    """An attention on a task, or on all: examples/s, accuracy (fraction), number of parameters.

    It is marked where the table marks its cell: the data are not LRA's. The speed is that of a
    program with so many `seeds_together`, None for all tasks, on these `jax_versions`.
    """

    attention: str
    speed: float
    accuracy: Stat
    params: float
    marked: bool = False
    seeds_together: int | None = None
    jax_versions: tuple[str, ...] = ()


class Curve(NamedTuple):
    """A quantity over training steps; each of mean, low and high has a value a step."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class History(NamedTuple):
    """Training loss and validation accuracy of one run, over its seeds."""

    attention: str
    title: str
    loss: Curve
    accuracy: Curve


def dots(group: Group) -> dict[str, list[Dot]]:
    """By task, and under `""` for the average over the five, what is fast and what is accurate.

    The speed of the average is the geometric mean. An attention with several sizes or cells has
    no single dot and is left out, as is a cell that was not trained on the group's platform.
    """
    lines = [line for line in group.lines if not _is_swept(group, line.attention)]
    platform = platform_of_dots(group)
    found = {}
    for task in group.tasks:
        of_task = [_dot(group, line, cell, platform) for line in lines if (cell := line.cell(task))]
        found[task] = [dot for dot in of_task if dot]
    if group.is_table3:
        found[""] = [dot for line in lines if (dot := _average_dot(line, found))]
    return {task: of_task for task, of_task in found.items() if of_task}


def platform_of_dots(group: Group) -> Platform | None:
    """Where the speeds of its dots were taken."""
    return usual_platform(
        cell for line in group.lines for parts in line.cells.values() for cell in parts
    )


def histories(workdirs: Iterable[str]) -> dict[str, list[History]]:
    """By task, the curves of the runs in `workdirs`; other folders among them are passed over.

    Raises:
        UserError: none of them holds a run that has been evaluated, or one is damaged.
    """
    found: dict[str, list[tuple[Any, Curve, Curve]]] = {}
    for root in workdirs:
        folder = Workdir(root)
        if not (folder.config.exists() and folder.metrics.exists()):
            continue
        config = folder.load_config()
        loss, accuracy = _read_metrics(folder.metrics)
        if not accuracy:
            continue
        found.setdefault(config.task, []).append((config, _curve(loss), _curve(accuracy)))
    if not found:
        raise UserError("--curves names no folder of a run that has been evaluated")
    return {task: _titled(runs) for task, runs in found.items()}


def _titled(runs: list[tuple[Any, Curve, Curve]]) -> list[History]:
    """The runs of a task, called by the options of their attention and by what tells them apart."""
    changes = [overrides_of(config) for config, *_ in runs]
    flat = [flatten(config) for config, *_ in runs]
    varied = {
        name
        for name in set().union(*changes)
        if len({str(values.get(name)) for values in flat}) > 1
    }
    histories = []
    for (config, loss, accuracy), changed, values in zip(runs, changes, flat, strict=True):
        attention = config.model.attention.name
        told = [name for name in changed if name.startswith(OPTIONS)]
        told += sorted(name for name in varied if not name.startswith(OPTIONS))
        words = [f"{name.rpartition('.')[2]}={values[name]}" for name in told]
        title = ", ".join([attention_title(attention), *words])
        histories.append(History(attention, title, loss, accuracy))
    titles = Counter(history.title for history in histories)
    return [
        history
        if titles[history.title] == 1
        else history._replace(title=f"{history.title}, {_seeds(config.seeds)}")
        for history, (config, *_) in zip(histories, runs, strict=True)
    ]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {' '.join(map(str, seeds))}"


def _is_swept(group: Group, attention: str) -> bool:
    return sum(line.attention == attention for line in group.lines) > 1


def _dot(group: Group, line: Line, cell: Cell, platform: Platform | None) -> Dot | None:
    timed = cell.on(platform)
    speed, params = timed.median("examples_per_second"), cell.median("params")
    if not (speed and params):
        return None
    marked = group.is_table3 and bool(mark_of_data([cell]))
    program = timed.seeds_together, timed.jax_versions
    return Dot(line.attention, speed, cell.stat(), params, marked, *program)


def _average_dot(line: Line, by_task: dict[str, list[Dot]]) -> Dot | None:
    own = [dot for task in TASKS for dot in by_task[task] if dot.attention == line.attention]
    if len(own) < len(TASKS) or not line.five:
        return None
    return Dot(
        line.attention,
        statistics.geometric_mean(dot.speed for dot in own),
        average(line.five),
        sum(dot.params for dot in own) / len(own),
        any(dot.marked for dot in own),
    )


def _read_metrics(path: pathlib.Path) -> tuple[list, list]:
    """Steps and values a seed of training loss and validation accuracy."""
    loss, accuracy = [], []
    for entry in read_metrics(path):
        if entry["kind"] == "train":
            loss.append((entry["step"], _known(entry.get("loss", []))))
        elif entry.get("split") == "validation":
            accuracy.append((entry["step"], _known(entry.get("accuracy", []))))
    return loss, accuracy


def _known(values: list[float | None]) -> list[float]:
    """Those of the seeds that have not diverged."""
    return [value for value in values if value is not None]


def _curve(entries: list[tuple[int, list[float]]]) -> Curve:
    """Mean and range over the seeds; neighbours are averaged where there are too many."""
    entries = [entry for entry in entries if entry[1]]
    width = max(1, math.ceil(len(entries) / _MOST_POINTS))
    columns: list[list[float]] = [[], [], [], []]
    for start in range(0, len(entries), width):
        part = entries[start : start + width]
        parts: list[Any] = [
            [step for step, _ in part],
            [sum(values) / len(values) for _, values in part],
            [min(values) for _, values in part],
            [max(values) for _, values in part],
        ]
        for column, numbers in zip(columns, parts, strict=True):
            column.append(sum(numbers) / len(numbers))
    return Curve(*columns)
