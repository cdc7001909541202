"""Learning curves, read from the folders of runs."""

import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lra.errors import UserError
from lra.protocol import overrides_of
from lra.report.cells import attention_order, attention_title, value_order
from lra.report.changes import OPTIONS, short_names
from lra.settings import flatten
from lra.workdir import Workdir, read_metrics

# The most points of a curve. More losses than a column can show are noise. Evaluations choose the
# parameters, so there is room for each one of every task's protocol.
MOST_LOSSES, MOST_EVALUATIONS = 80, 200


# The number of steps that a point stands for; its step, and mean, lowest and highest of the seeds.
_Point = tuple[int, tuple[float, float, float, float]]


class Curve(NamedTuple):
    """Mean and range over the seeds at some training steps."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class History(NamedTuple):
    """Training loss and validation accuracy of one run, over those seeds that have not diverged.

    `seeds` is their number at first; `ends` has, each time that some diverge, the step and how many
    are left.
    """

    attention: str
    title: str
    loss: Curve
    accuracy: Curve
    seeds: int = 1
    ends: tuple[tuple[int, int], ...] = ()


def histories(workdirs: Iterable[str]) -> dict[str, list[History]]:
    """By task, the curves of the runs in `workdirs`; folders that hold no run are skipped.

    They are sorted as in tables: by attention, then by the values that differ.

    Raises:
        UserError: none of them holds a run that has been evaluated, one is damaged or not there.
    """
    found: dict[str, list[_Run]] = {}
    for root in sorted(workdirs):
        folder = Workdir(root)
        if not folder.root.exists():
            raise UserError(f"--curves names {root}, which is not there")
        if not (folder.config.exists() and folder.metrics.exists()):
            continue
        config = folder.load_config()
        loss, accuracy = _read_metrics(folder.metrics)
        if not accuracy:
            continue
        seeds, attention = len(config.seeds), config.model.attention.name
        ends = _ends(seeds, sorted([*loss, *accuracy], key=lambda entry: entry[0]))
        curves = _curve(loss, MOST_LOSSES), _curve(accuracy, MOST_EVALUATIONS)
        history = History(attention, "", *curves, seeds, ends)
        found.setdefault(config.task, []).append(_Run(str(root), config, history))
    if not found:
        raise UserError("--curves names no folder of a run that has been evaluated")
    return {task: _titled(runs) for task, runs in found.items()}


class _Run(NamedTuple):
    """A run: its folder, its configuration, and its curves without their title."""

    root: str
    config: Any
    history: History


def _titled(runs: list[_Run]) -> list[History]:
    """The curves of a task's runs, in order and with titles that differ.

    To equal titles the seeds are added, and the folders where these are equal too.
    """
    flat = [flatten(run.config) for run in runs]
    keys_of = _keys_in_titles(runs, flat)
    names = short_names(itertools.chain.from_iterable(keys_of.values()))
    found = []
    for run, values in zip(runs, flat, strict=True):
        attention = run.history.attention
        keys = keys_of[attention]
        words = [f"{names[key]}={values[key]}" for key in keys]
        order = attention_order(attention), [value_order(values[key]) for key in keys]
        order = (*order, tuple(run.config.seeds), run.root)
        found.append((order, run, ", ".join([attention_title(attention), *words])))
    found.sort(key=lambda each: each[0])
    _, ordered, titles = zip(*found, strict=True)
    seeds = [run.config.seeds for run in ordered]
    titles = _apart(titles, [f"seed{'s' * (len(s) > 1)} {' '.join(map(str, s))}" for s in seeds])
    titles = _apart(titles, [os.fsencode(run.root).decode(errors="replace") for run in ordered])
    return [run.history._replace(title=title) for run, title in zip(ordered, titles, strict=True)]


def _keys_in_titles(runs: list[_Run], flat: list[dict[str, Any]]) -> dict[str, list[str]]:
    """By attention the keys whose values are in the titles of its runs.

    They are the options that any run of the attention changes, and other keys that are changed and
    differ among the runs; none where each run has another attention.
    """
    options: dict[str, dict[str, None]] = {run.history.attention: {} for run in runs}
    others: dict[str, None] = {}
    for run in runs:
        for key in overrides_of(run.config):
            keys = options[run.history.attention] if key.startswith(OPTIONS) else others
            keys[key] = None
    if len(options) == len(runs):
        return {attention: [] for attention in options}
    differing = sorted(key for key in others if len({str(values[key]) for values in flat}) > 1)
    return {attention: [*own, *differing] for attention, own in options.items()}


def _apart(titles: Sequence[str], words: list[str]) -> list[str]:
    """The titles, with their words added to those that are equal."""
    number = Counter(titles)
    return [
        f"{title}, {more}" if number[title] > 1 else title
        for title, more in zip(titles, words, strict=True)
    ]


def _ends(seeds: int, entries: Iterable[tuple[int, list[float]]]) -> tuple[tuple[int, int], ...]:
    """Each step from which on fewer seeds are left than before, and how many are left."""
    found = []
    for step, known in entries:
        if len(known) < seeds:
            seeds = len(known)
            found.append((step, seeds))
    return tuple(found)


def _read_metrics(path: pathlib.Path) -> tuple[list, list]:
    """Training losses and validation accuracies: of each a list of (step, values of the seeds)."""
    loss, accuracy = [], []
    for entry in read_metrics(path):
        if entry["kind"] == "train":
            loss.append((entry["step"], _known(entry["loss"])))
        elif entry.get("split") == "validation":
            accuracy.append((entry["step"], _known(entry["accuracy"])))
    return loss, accuracy


def _known(values: list[float | None]) -> list[float]:
    """The values of the seeds that have not diverged."""
    return [value for value in values if value is not None]


def _curve(entries: list[tuple[int, list[float]]], most: int) -> Curve:
    """Mean and range over the seeds, in points of at least one `most`-th of the steps.

    The value of an entry is a mean over the steps since the one before it, so each counts by its
    number of steps: an evaluation often cuts a call to a few steps, whose loss is mostly noise.
    """
    steps = [step for step, _ in entries]
    lengths = [max(1, step - before) for before, step in itertools.pairwise([0, *steps])]
    points = [
        (length, (step, sum(v) / len(v), min(v), max(v)))
        for length, (step, v) in zip(lengths, entries, strict=True)
        if v
    ]
    means = [_weighted_mean(part) for part in _parts(points, steps[-1] / most if steps else 0)]
    return Curve(*([point[field] for point in means] for field in range(4)))


def _parts(points: list[_Point], least: float) -> list[list[_Point]]:
    """Neighbouring points, as many together as have `least` steps; what is left joins the last."""
    parts: list[list[_Point]] = []
    part: list[_Point] = []
    for point in points:
        part.append(point)
        if sum(length for length, _ in part) >= least:
            parts.append(part)
            part = []
    if parts:
        parts[-1] += part
    elif part:
        parts.append(part)
    return parts


def _weighted_mean(points: list[_Point]) -> list[float]:
    steps = sum(length for length, _ in points)
    columns = zip(*(values for _, values in points), strict=True)
    return [
        sum(length / steps * value for (length, _), value in zip(points, column, strict=True))
        for column in columns
    ]
