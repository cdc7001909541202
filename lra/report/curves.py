"""Learning curves of runs, as their figures show them."""

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lra.errors import UserError
from lra.protocol import ATTENTION_KEYS, overrides_of
from lra.published import LRA_TASKS
from lra.report import curve_runs
from lra.report.cells import attention_order, attention_title, value_order
from lra.report.changes import short_names
from lra.report.curve_points import Curve, Entry, curve
from lra.report.curve_runs import Run
from lra.report.notes import OTHER_DATA
from lra.row import LRA_DATA
from lra.settings import flatten
from lra.tasks import get_task

# Maximal number of points of a curve. More losses than a column can show are noise. Evaluations
# select the parameters, so every evaluation of every task's protocol has a point.
MOST_LOSSES, MOST_EVALUATIONS = 80, 200
_MOST_TOGETHER = 8  # curves of several attentions in one figure


class History(NamedTuple):
    """Training loss and validation accuracy of a setting, over seeds that have not diverged.

    `seeds` is the number of seeds at the start. `ends` has an entry each time that seeds diverge:
    the step, and the number of seeds left. `val_is_test` is as in a row. `other_data` is the mark
    of data that are known not to be LRA's.
    """

    attention: str
    title: str
    loss: Curve
    accuracy: Curve
    seeds: int = 1
    ends: tuple[tuple[int, int], ...] = ()
    val_is_test: bool = False
    other_data: str | None = None


def histories(places: Iterable[str]) -> dict[tuple[str, ...], list[History]]:
    """Read the curves of the runs in `places`, by figure: task, or task and attention.

    Runs that differ in their seeds alone have a curve together, if they were evaluated at the same
    steps and all or none have losses. Attentions that have more than 8 curves together in a task
    get a figure each. Curves are sorted as in tables: by attention, then by the values that differ.
    Folders that hold no run are skipped, and files that are not .jsonl, such as earlier reports
    beside the runs.

    Args:
        places: Workdirs, and files of curves (.jsonl).

    Raises:
        UserError: Nothing holds a run that has been evaluated, or a place is missing or damaged.
    """
    runs_by_task: dict[str, list[Run]] = {}
    for place in sorted(places):
        for run in curve_runs.read(place):
            runs_by_task.setdefault(run.config.task, []).append(run)
    if not runs_by_task:
        raise UserError(
            "--curves names no folder of a run that has been evaluated, and no file of curves "
            "(.jsonl)"
        )
    return {
        figure: _titled(of_figure, one_attention=len(figure) > 1)
        for task, runs in runs_by_task.items()
        for figure, of_figure in _figures(task, curve_runs.merge_seeds(runs)).items()
    }


def _figures(task: str, runs: list[Run]) -> dict[tuple[str, ...], list[Run]]:
    """Divide the runs of a task among figures."""
    if len(runs) <= _MOST_TOGETHER:
        return {(task,): runs}
    attentions = sorted({run.attention for run in runs}, key=attention_order)
    return {
        (task, attention): [run for run in runs if run.attention == attention]
        for attention in attentions
    }


def _history(run: Run, title: str) -> History:
    config, seeds = run.config, len(run.config.seeds)
    is_other = config.task in LRA_TASKS and run.data not in (None, *LRA_DATA)
    return History(
        attention=run.attention,
        title=title + OTHER_DATA * is_other,
        loss=curve(run.loss, MOST_LOSSES, spans=True),
        accuracy=curve(run.accuracy, MOST_EVALUATIONS),
        seeds=seeds,
        ends=_ends(seeds, sorted([*run.loss, *run.accuracy], key=lambda entry: entry[0])),
        val_is_test=get_task(config.task).lacks_validation and not config.data.holdout,
        other_data=run.data if is_other else None,
    )


def _titled(runs: list[Run], *, one_attention: bool) -> list[History]:
    """Sort the curves of a figure's runs and give them distinct titles.

    Equal titles get what differs of their runs appended: the seeds, then the data, the folders.
    """
    flat = [flatten(run.config) for run in runs]
    keys_of = _keys_in_titles(runs, flat, one_attention)
    names = short_names(itertools.chain.from_iterable(keys_of.values()))
    sortable = []
    for run, values in zip(runs, flat, strict=True):
        keys = keys_of[run.attention]
        words = [f"{names[key]}={values[key]}" for key in keys]
        order = attention_order(run.attention), [value_order(values[key]) for key in keys]
        order = (*order, tuple(run.config.seeds), run.root)
        sortable.append((order, run, ", ".join([attention_title(run.attention), *words])))
    sortable.sort(key=lambda each: each[0])
    _, ordered, titles = zip(*sortable, strict=True)
    seeds = [run.config.seeds for run in ordered]
    for words in (
        [f"seed{'s' if len(s) > 1 else ''} {' '.join(map(str, s))}" for s in seeds],
        [f"data={run.data or 'unknown'}" for run in ordered],
        [os.fsencode(run.root).decode(errors="replace") for run in ordered],
    ):
        titles = _distinguish(titles, words)
    return [_history(run, title) for run, title in zip(ordered, titles, strict=True)]


def _keys_in_titles(
    runs: list[Run], flat: list[dict[str, Any]], one_attention: bool
) -> dict[str, list[str]]:
    """Return, by attention, the keys whose values appear in the titles of its runs.

    These are the options that any run of the attention changes, and other changed keys that differ
    among the runs. There are none if each run has a different attention, except in a figure of
    `one_attention`, beside which there are others.
    """
    options: dict[str, dict[str, None]] = {run.attention: {} for run in runs}
    others: dict[str, None] = {}
    for run in runs:
        for key in overrides_of(run.config):
            keys = options[run.attention] if key.startswith(ATTENTION_KEYS) else others
            keys[key] = None
    if len(options) == len(runs) and not one_attention:
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


def _ends(seeds: int, entries: Iterable[Entry]) -> tuple[tuple[int, int], ...]:
    """Return each step at which the number of remaining seeds falls, with that number."""
    ends = []
    for step, known in entries:
        if len(known) < seeds:
            seeds = len(known)
            ends.append((step, seeds))
    return tuple(ends)
