"""Learning curves, read from the workdirs of runs or from files (`lra.report.curve_files`)."""

import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lra import records
from lra.errors import UserError
from lra.metrics import read_metrics
from lra.protocol import ATTENTION_KEYS, overrides_of
from lra.report import curve_files
from lra.report.cells import attention_order, attention_title, value_order
from lra.report.changes import short_names
from lra.report.notes import OTHER_DATA
from lra.row import LRA_DATA
from lra.settings import flatten
from lra.tasks import get_task
from lra.workdir import Workdir

# Maximal number of points of a curve. More losses than a column can show are noise. Evaluations
# select the parameters, so every evaluation of every task's protocol has a point.
MOST_LOSSES, MOST_EVALUATIONS = 80, 200


# Number of steps that an entry covers, its step, and the values of the seeds.
_Entry = tuple[int, float, list[float]]


class Curve(NamedTuple):
    """Mean, minimum and maximum over the seeds at some training steps."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class History(NamedTuple):
    """Training loss and validation accuracy of one run, over the seeds that have not diverged.

    `seeds` is the number of seeds at the start. `ends` has an entry each time that seeds diverge:
    the step, and the number of seeds left. `val_is_test` and `data` are as in a row; `data` is None
    where it is not known.
    """

    attention: str
    title: str
    loss: Curve
    accuracy: Curve
    seeds: int = 1
    ends: tuple[tuple[int, int], ...] = ()
    val_is_test: bool = False
    data: str | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the data are known not to be LRA's."""
        return self.data is not None and self.data not in LRA_DATA


class _Run(NamedTuple):
    """A run: its folder, its config, and its curves without a title."""

    root: str
    config: Any
    history: History


def histories(places: Iterable[str]) -> dict[str, list[History]]:
    """Read the curves of the runs in `places`, by task.

    They are sorted as in tables: by attention, then by the values that differ. Folders that hold no
    run are skipped, and files that are not .jsonl, such as earlier reports beside the runs.

    Args:
        places: Workdirs, and files of curves (.jsonl).

    Raises:
        UserError: Nothing holds a run that has been evaluated, or a place is missing or damaged.
    """
    runs_by_task: dict[str, list[_Run]] = {}
    for place in sorted(places):
        for run in _runs(place):
            runs_by_task.setdefault(run.config.task, []).append(run)
    if not runs_by_task:
        raise UserError(
            "--curves names no folder of a run that has been evaluated, and no file of curves "
            "(.jsonl)"
        )
    return {task: _titled(runs) for task, runs in runs_by_task.items()}


def _runs(place: str) -> Iterator[_Run]:
    """Yield the evaluated runs of a workdir, of which there is one at most, or of a file."""
    folder = Workdir(place)
    if not folder.root.exists():
        raise UserError(f"--curves names {place}, which is not there")
    if folder.root.is_file():
        for curve in curve_files.read(folder.root) if folder.root.suffix == ".jsonl" else ():
            loss, accuracy = (
                [(step, [value]) for step, value in zip(curve.step, values, strict=bool(values))]
                for values in (curve.train_loss, curve.val_accuracy)
            )
            yield _run(place, curve.config, curve.data, loss, accuracy)
    elif folder.config.exists() and folder.metrics.exists():
        config, (loss, accuracy) = folder.load_config(), _read_metrics(folder.metrics)
        if accuracy:
            yield _run(place, config, _data_of(folder), loss, accuracy)


def _data_of(folder: Workdir) -> str | None:
    """Return the mark of a run's data; None for a run of older code that has not ended."""
    rows = records.read(folder.rows, repair=False) if folder.rows.exists() else []
    if rows:
        return rows[0].data
    return folder.load_facts()["data"] if folder.facts.exists() else None


def _run(place: str, config: Any, data: str | None, loss: list, accuracy: list) -> _Run:
    seeds, attention = len(config.seeds), config.model.attention.name
    ends = _ends(seeds, sorted([*loss, *accuracy], key=lambda entry: entry[0]))
    curves = _curve(loss, MOST_LOSSES, spans=True), _curve(accuracy, MOST_EVALUATIONS)
    val_is_test = get_task(config.task).lacks_validation and not config.data.holdout
    history = History(attention, "", *curves, seeds, ends, val_is_test, data)
    return _Run(str(place), config, history)


def _titled(runs: list[_Run]) -> list[History]:
    """Sort the curves of a task's runs and give them distinct titles.

    Equal titles get what differs of their runs appended: the seeds, then the data, the folders.
    """
    flat = [flatten(run.config) for run in runs]
    keys_of = _keys_in_titles(runs, flat)
    names = short_names(itertools.chain.from_iterable(keys_of.values()))
    sortable = []
    for run, values in zip(runs, flat, strict=True):
        attention = run.history.attention
        keys = keys_of[attention]
        words = [f"{names[key]}={values[key]}" for key in keys]
        order = attention_order(attention), [value_order(values[key]) for key in keys]
        order = (*order, tuple(run.config.seeds), run.root)
        sortable.append((order, run, ", ".join([attention_title(attention), *words])))
    sortable.sort(key=lambda each: each[0])
    _, ordered, titles = zip(*sortable, strict=True)
    seeds = [run.config.seeds for run in ordered]
    for words in (
        [f"seed{'s' if len(s) > 1 else ''} {' '.join(map(str, s))}" for s in seeds],
        [f"data={run.history.data or 'unknown'}" for run in ordered],
        [os.fsencode(run.root).decode(errors="replace") for run in ordered],
    ):
        titles = _distinguish(titles, words)
    return [
        run.history._replace(title=title + OTHER_DATA * run.history.is_marked)
        for run, title in zip(ordered, titles, strict=True)
    ]


def _keys_in_titles(runs: list[_Run], flat: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return, by attention, the keys whose values appear in the titles of its runs.

    These are the options that any run of the attention changes, and other changed keys that differ
    among the runs. There are none if each run has a different attention.
    """
    options: dict[str, dict[str, None]] = {run.history.attention: {} for run in runs}
    others: dict[str, None] = {}
    for run in runs:
        for key in overrides_of(run.config):
            keys = options[run.history.attention] if key.startswith(ATTENTION_KEYS) else others
            keys[key] = None
    if len(options) == len(runs):
        return {attention: [] for attention in options}
    differing = sorted(key for key in others if len({str(values[key]) for values in flat}) > 1)
    return {attention: [*own, *differing] for attention, own in options.items()}


def _distinguish(titles: Sequence[str], words: list[str]) -> list[str]:
    """Append its entry of `words` to each title that another has with another entry."""
    distinct = Counter(title for title, _ in set(zip(titles, words, strict=True)))
    return [
        f"{title}, {more}" if distinct[title] > 1 else title
        for title, more in zip(titles, words, strict=True)
    ]


def _ends(seeds: int, entries: Iterable[tuple[int, list[float]]]) -> tuple[tuple[int, int], ...]:
    """Return each step at which the number of remaining seeds falls, with that number."""
    ends = []
    for step, known in entries:
        if len(known) < seeds:
            seeds = len(known)
            ends.append((step, seeds))
    return tuple(ends)


def _read_metrics(path: pathlib.Path) -> tuple[list, list]:
    """Read training losses and validation accuracies, each as a list of (step, seeds' values)."""
    loss, accuracy = [], []
    for entry in read_metrics(path):
        if entry["kind"] == "train":
            loss.append((entry["step"], _known(entry["loss"])))
        elif entry.get("split") == "validation":
            accuracy.append((entry["step"], _known(entry["accuracy"])))
    return loss, accuracy


def _known(values: list[float | None]) -> list[float]:
    """Return the values of the seeds that have not diverged."""
    return [value for value in values if value is not None]


def _curve(entries: list[tuple[int, list[float]]], most: int, *, spans: bool = False) -> Curve:
    """Merge entries into points that cover at least 1/`most` of the steps each.

    Entries are weighted by the number of steps since the previous one: an evaluation often cuts a
    call short, and the loss of few steps is mostly noise. If an entry is a mean over these steps
    (`spans`), it belongs to the middle of them. Each seed is averaged by itself, so that minimum
    and maximum are those of seeds; entries with different numbers of seeds are not merged.
    """
    steps = [step for step, _ in entries]
    lengths = [max(1, step - before) for before, step in itertools.pairwise([0, *steps])]
    known = [
        (length, step - spans * (length - 1) / 2, values)
        for length, (step, values) in zip(lengths, entries, strict=True)
        if values
    ]
    least = steps[-1] / most if steps else 0
    points = [
        _merge(part)
        for _, same_seeds in itertools.groupby(known, key=lambda entry: len(entry[2]))
        for part in _parts(list(same_seeds), least)
    ]
    return Curve(*([point[field] for point in points] for field in range(4)))


def _parts(entries: list[_Entry], least: float) -> list[list[_Entry]]:
    """Group neighbouring entries that cover `least` steps together; the rest joins the last."""
    parts: list[list[_Entry]] = []
    part: list[_Entry] = []
    for entry in entries:
        part.append(entry)
        if sum(length for length, _, _ in part) >= least:
            parts.append(part)
            part = []
    if parts:
        parts[-1] += part
    elif part:
        parts.append(part)
    return parts


def _merge(entries: list[_Entry]) -> tuple[float, float, float, float]:
    """Weighted mean of the steps; mean, minimum and maximum of the seeds' weighted means."""
    lengths, steps, values = zip(*entries, strict=True)
    seeds = [_weighted_mean(lengths, column) for column in zip(*values, strict=True)]
    return _weighted_mean(lengths, steps), sum(seeds) / len(seeds), min(seeds), max(seeds)


def _weighted_mean(weights: Sequence[int], values: Sequence[float]) -> float:
    total = sum(weights)
    return sum(weight / total * value for weight, value in zip(weights, values, strict=True))
