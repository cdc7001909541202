"""What figures show of training: curves of the runs in some folders."""

import math
import os
import pathlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.errors import UserError
from lra.protocol import overrides_of
from lra.report.cells import attention_order, attention_title, value_order
from lra.report.changes import OPTIONS
from lra.settings import flatten
from lra.workdir import Workdir, read_metrics

# Of a curve of losses: more than a column can show is noise. Evaluations are events that choose
# the parameters, and those of every task's protocol are shown one by one.
MOST_LOSSES, MOST_EVALUATIONS = 80, 200


class Curve(NamedTuple):
    """A quantity over training steps; each of mean, low and high has a value a step."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class History(NamedTuple):
    """Training loss and validation accuracy of one run, over those seeds that have not diverged.

    Of its number of `seeds`, `ends` has how many are left, and from which step on.
    """

    attention: str
    title: str
    loss: Curve
    accuracy: Curve
    seeds: int = 1
    ends: tuple[tuple[int, int], ...] = ()


def histories(workdirs: Iterable[str]) -> dict[str, list[History]]:
    """By task, the curves of the runs in `workdirs`; other folders among them are passed over.

    They are in the order of tables: by attention, then by the values of what tells them apart.

    Raises:
        UserError: none of them holds a run that has been evaluated, or one is damaged.
    """
    found: dict[str, list[_Named]] = {}
    for root in workdirs:
        folder = Workdir(root)
        if not (folder.config.exists() and folder.metrics.exists()):
            continue
        config = folder.load_config()
        loss, accuracy = _read_metrics(folder.metrics)
        if not accuracy:
            continue
        seeds, attention = len(config.seeds), config.model.attention.name
        ends = _ends(seeds, sorted([*loss, *accuracy], key=lambda entry: entry[0]))
        history = History(
            attention,
            "",
            _curve(loss, MOST_LOSSES),
            _curve(accuracy, MOST_EVALUATIONS),
            seeds,
            ends,
        )
        found.setdefault(config.task, []).append(_Named(str(root), config, history))
    if not found:
        raise UserError("--curves names no folder of a run that has been evaluated")
    return {task: _titled(runs) for task, runs in found.items()}


class _Named(NamedTuple):
    """A run without its title, with its folder and configuration."""

    root: str
    config: Any
    run: History


def _titled(runs: list[_Named]) -> list[History]:
    """The runs of a task, called by the options of their attention and by what tells them apart.

    Where each has another attention, that tells them apart; where nothing else does, the seeds, and
    where these are the same, the folders.
    """
    flat = [flatten(one.config) for one in runs]
    options, others = _told([(one.run.attention, overrides_of(one.config)) for one in runs], flat)
    found = []
    for (root, config, run), values in zip(runs, flat, strict=True):
        names = [*options[run.attention], *others] if len(options) < len(runs) else []
        words = [f"{name.rpartition('.')[2]}={values[name]}" for name in names]
        title = ", ".join([attention_title(run.attention), *words])
        rank = attention_order(run.attention), [value_order(values[name]) for name in names]
        found.append((*rank, tuple(config.seeds), root, run._replace(title=title)))
    found.sort(key=lambda each: each[:4])
    *_, seeds, roots, ordered = zip(*found, strict=True)
    titles = [run.title for run in ordered]
    titles = _apart(titles, [f"seed{'s' * (len(s) > 1)} {' '.join(map(str, s))}" for s in seeds])
    titles = _apart(titles, [os.fsencode(root).decode(errors="replace") for root in roots])
    return [run._replace(title=title) for run, title in zip(ordered, titles, strict=True)]


def _apart(titles: list[str], words: list[str]) -> list[str]:
    """The titles, to equal ones their words added."""
    number = Counter(titles)
    return [
        f"{title}, {more}" if number[title] > 1 else title
        for title, more in zip(titles, words, strict=True)
    ]


def _told(
    changes: list[tuple[str, dict[str, Any]]], flat: list[dict[str, Any]]
) -> tuple[dict[str, list[str]], list[str]]:
    """The options that any run of each attention changes, and all other keys that vary.

    Args:
        changes: attention and overrides of each run.
        flat: the configuration of each.
    """
    options: dict[str, list[str]] = {attention: [] for attention, _ in changes}
    others = []
    for attention, changed in changes:
        for name in changed:
            if not name.startswith(OPTIONS):
                others.append(name)
            elif name not in options[attention]:
                options[attention].append(name)
    varied = {name for name in others if len({str(values[name]) for values in flat}) > 1}
    return options, sorted(varied)


def _ends(seeds: int, entries: Iterable[tuple[int, list[float]]]) -> tuple[tuple[int, int], ...]:
    """From which steps on fewer go on than before, and how many."""
    found = []
    for step, known in entries:
        if len(known) < seeds:
            seeds = len(known)
            found.append((step, seeds))
    return tuple(found)


def _read_metrics(path: pathlib.Path) -> tuple[list, list]:
    """Steps and values a seed of training loss and validation accuracy."""
    loss, accuracy = [], []
    for entry in read_metrics(path):
        if entry["kind"] == "train" and "loss" in entry:
            loss.append((entry["step"], _known(entry["loss"])))
        elif entry.get("split") == "validation" and "accuracy" in entry:
            accuracy.append((entry["step"], _known(entry["accuracy"])))
    return loss, accuracy


def _known(values: list[float | None]) -> list[float]:
    """Those of the seeds that have not diverged."""
    return [value for value in values if value is not None]


def _curve(entries: list[tuple[int, list[float]]], most: int) -> Curve:
    """Mean and range over the seeds; neighbours are averaged where there are more than `most`."""
    points = [(step, sum(v) / len(v), min(v), max(v)) for step, v in entries if v]
    width = max(1, math.ceil(len(points) / most))
    parts = [points[start : start + width] for start in range(0, len(points), width)]
    averages = [[sum(column) / len(part) for column in zip(*part, strict=True)] for part in parts]
    return Curve(*([point[field] for point in averages] for field in range(4)))
