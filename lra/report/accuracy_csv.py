"""Accuracies as CSV, one line per cell, with empty cells and averages; and their costs."""

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lra.published import TABLE3
from lra.report.cells import Cell, Stat, average
from lra.report.groups import Group
from lra.report.lines import Line
from lra.report.noise import noise
from lra.row import LRA_DATA, STATUSES, Row

_DIFFERENCE = ("difference", "difference_error", "difference_least")
_PLACE = ("group", "task", "attention", "options")
# Fields that all rows of a cell share; then those given as mean and standard deviation.
_SHARED = ("protocol", "data", "data_sha256", "val_is_test", "dtype", "matmul_precision", "steps")
_ACCURACIES = ("test_accuracy", "test_accuracy_last", "val_accuracy")
_HEADER = (
    *_PLACE,
    "status",
    "mark",
    *_SHARED,
    "seeds",
    *(f"seeds_{status}" for status in STATUSES),
    *(f"{field}_{statistic}" for field in _ACCURACIES for statistic in ("mean", "std")),
    "published",
    *_DIFFERENCE,
    "params",
    "devices",
    "jax",
    "commits",
)
_PROGRAM = ("seeds_in_program", "device", "num_devices")
_COSTS = ("examples_per_second", "wall_seconds", "peak_memory_mb")
_COSTS_HEADER = (
    *_PLACE,
    *_SHARED,
    "seeds",
    "params",
    *_COSTS,
    *_PROGRAM,
    "jax",
    "commits",
)
_AVERAGE = "average"

_Facts = dict[str, Any]


def accuracy_csv(groups: Iterable[Group]) -> str:
    """Return a CSV file with one line per cell, missing ones included; accuracies are fractions.

    The paper's table has one more line per attention, of the task `average`, whose seed counts
    are sums over the tasks. `status` is `ok`, `diverged`, `failed` or `missing`; `mark` holds
    `other data` (not LRA's) and `other number format` (than the table shows there). `seeds` (those
    with results) and `options` are JSON. `difference_error` is the expected standard deviation of
    the difference, `difference_least` the smallest difference that is marked (see `noise.noise`).
    If there are several devices, JAX versions or commits, all are listed.
    """
    return csv_text(_HEADER, (facts for group in groups for facts in _group_facts(group)))


def costs_csv(groups: Iterable[Group]) -> str:
    """Return a CSV file with one line per program of each cell: median costs over its seeds."""
    return csv_text(
        _COSTS_HEADER,
        (
            _place(group, line, task)
            | _shared(part.rows, (*_SHARED, "params", *_PROGRAM))
            | {field: part.median(field) for field in _COSTS}
            | {"num_devices": next(iter(part.known("num_devices")), None)}
            | {"seeds": json.dumps([row.seed for row in part.rows])}
            | {"jax": program.platform.jax_version, "commits": program.commits}
            for group in groups
            for line, task, program, part in group.programs()
        ),
    )


def csv_text(header: Sequence[str], lines: Iterable[_Facts]) -> str:
    """Return the text of a CSV file; values that a line lacks are left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _group_facts(group: Group) -> Iterator[_Facts]:
    for line in group.lines:
        yield from _line_facts(group, line)
        if group.is_table3:
            yield _average_facts(group, line)
    for line in group.apart:
        for facts in _line_facts(group, line, apart=True):
            marks = [facts["mark"], "other number format"]
            yield facts | {"mark": "; ".join(filter(None, marks))}


def _line_facts(group: Group, line: Line, *, apart: bool = False) -> Iterator[_Facts]:
    for task in group.tasks:
        place = _place(group, line, task)
        compared = group.is_table3 and not apart
        published = TABLE3.get(line.attention, {}).get(task) if compared else None
        cells = line.cells.get(task, [])
        for cell in cells:
            facts = place | _accuracies([cell], cell.stat, published) | _provenance(cell)
            if len(cells) > 1:  # no difference is shown in the table either
                facts |= dict.fromkeys(_DIFFERENCE)
            yield facts
        if not cells and not apart:
            yield place | _accuracies([], None, published)


def _average_facts(group: Group, line: Line) -> _Facts:
    by_task, cells = TABLE3.get(line.attention), line.five
    published = statistics.fmean(by_task.values()) if by_task else None
    return _place(group, line, _AVERAGE) | _accuracies(
        cells, lambda field: average(cells, field), published
    )


def _place(group: Group, line: Line, task: str) -> _Facts:
    return {
        "group": group.slug,
        "task": task,
        "attention": line.attention,
        "options": json.dumps(line.options, sort_keys=True),
    }


def _accuracies(
    cells: Sequence[Cell],
    stat: Callable[[str], Stat | None] | None,
    published: float | None,
) -> _Facts:
    """Return the accuracies of one cell, of the five cells of an average, or of an empty place.

    Args:
        cells: The cells.
        stat: Function from a field's name to its statistics over the cells.
        published: Published accuracy in percent.
    """
    facts: _Facts = {"published": None if published is None else round(published / 100, 6)}
    if not cells:
        return facts | {"status": "missing"}
    rows = [(cell.ok or cell.rows)[0] for cell in cells]
    facts |= _shared(rows, _SHARED)
    facts |= {f"seeds_{s}": sum(cell.number_of(s) for cell in cells) for s in STATUSES}
    facts["status"] = cells[0].status
    other_data = any(row.data not in LRA_DATA for row in rows)
    facts["mark"] = "other data" if other_data else ""
    for field in _ACCURACIES:
        statistic = stat(field)
        if statistic:
            facts[f"{field}_mean"] = round(statistic.mean, 6)
            facts[f"{field}_std"] = None if statistic.std is None else round(statistic.std, 6)
    if published is not None and not other_data and "test_accuracy_mean" in facts:
        chance = noise(cells)
        facts["difference"] = round(facts["test_accuracy_mean"] - published / 100, 6)
        if chance:
            facts["difference_error"] = round(chance.std, 6)
            facts["difference_least"] = round(chance.least, 6)
    return facts


def _provenance(cell: Cell) -> _Facts:
    """Return number of parameters, seeds, devices, JAX versions and commits of one cell."""
    programs = cell.by_program
    return _shared((row for row in cell.rows if row.final), ("params",)) | {
        "seeds": json.dumps([row.seed for row in cell.ok]),
        "devices": _join_distinct(program.platform.devices for program in programs),
        "jax": _join_distinct(program.platform.jax_version for program in programs),
        "commits": _join_distinct(program.commits for program in programs),
    }


def _join_distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _shared(rows: Iterable[Row], names: Iterable[str]) -> _Facts:
    """Return the values of the named fields, None for those in which rows differ."""
    rows = list(rows)
    distinct = {name: {getattr(row, name) for row in rows} for name in names}
    return {name: next(iter(s)) if len(s) == 1 else None for name, s in distinct.items()}
