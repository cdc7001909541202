"""Accuracies as CSV, a line for each cell, empty ones and averages included; and their costs."""

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lra.published import TABLE3
from lra.report.cells import Cell, Stat, average
from lra.report.groups import LRA_DATA, Group, Line
from lra.report.noise import noise
from lra.row import STATUSES, Row

_OF_DIFFERENCE = ("difference", "difference_error", "difference_least")
_PLACE = ("group", "task", "attention", "options")
# Fields that all rows of a cell share; then those of which a line has mean and deviation.
_SHARED = ("protocol", "data", "data_sha256", "val_is_test", "dtype", "matmul_precision", "steps")
_ACCURACIES = ("test_accuracy", "test_accuracy_last", "val_accuracy")
_HEADER = (
    *_PLACE,
    "status",
    "mark",
    *_SHARED,
    "seeds",
    *(f"seeds_{status}" for status in STATUSES),
    *(f"{field}_{what}" for field in _ACCURACIES for what in ("mean", "std")),
    "published",
    *_OF_DIFFERENCE,
    "params",
    "devices",
    "jax",
    "commits",
)
_PROGRAM = ("seeds_in_program", "device", "num_devices")
_COSTS = ("examples_per_second", "wall_seconds", "peak_memory_mb")
_HEADER_OF_COSTS = (
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
    """A line for each cell and each place without one; accuracies are fractions.

    In the table of the paper there is one more for each attention, of the task `average`; its
    counts of seeds are sums over the tasks. `status` is `ok`, `diverged`, `failed` or `missing`,
    `mark` says `other data` (not LRA's) and `other number format` (than the table shows there).
    `seeds` and `options` are JSON, the seeds those with results. `difference_error` is the standard
    deviation to expect of the difference, `difference_least` the least one that is marked
    (`noise.noise`). Several devices, versions of JAX and commits are listed.
    """
    return csv_text(_HEADER, (facts for group in groups for facts in _of_group(group)))


def costs_csv(groups: Iterable[Group]) -> str:
    """A line for each program of each cell, as in the tables of costs: medians over its seeds."""
    return csv_text(
        _HEADER_OF_COSTS,
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
    """A CSV file; a line may lack values."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _of_group(group: Group) -> Iterator[_Facts]:
    for line in group.lines:
        yield from _of_line(group, line)
        if group.is_table3:
            yield _of_average(group, line)
    for line in group.apart:
        for facts in _of_line(group, line, apart=True):
            marks = [facts["mark"], "other number format"]
            yield facts | {"mark": "; ".join(filter(None, marks))}


def _of_line(group: Group, line: Line, *, apart: bool = False) -> Iterator[_Facts]:
    for task in group.tasks:
        place = _place(group, line, task)
        compared = group.is_table3 and not apart
        published = TABLE3.get(line.attention, {}).get(task) if compared else None
        parts = line.cells.get(task, [])
        for cell in parts:
            facts = place | _accuracies([cell], cell.stat, published) | _code(cell)
            if len(parts) > 1:  # as in the table
                facts |= dict.fromkeys(_OF_DIFFERENCE)
            yield facts
        if not parts and not apart:
            yield place | _accuracies([], None, published)


def _of_average(group: Group, line: Line) -> _Facts:
    of_tasks, five = TABLE3.get(line.attention), line.five
    published = statistics.fmean(of_tasks.values()) if of_tasks else None
    return _place(group, line, _AVERAGE) | _accuracies(
        five, lambda field: average(five, field), published
    )


def _place(group: Group, line: Line, task: str) -> _Facts:
    return {
        "group": group.slug,
        "task": task,
        "attention": line.attention,
        "options": json.dumps(line.options, sort_keys=True),
    }


def _accuracies(
    parts: Sequence[Cell],
    stat: Callable[[str], Stat | None] | None,
    published: float | None,
) -> _Facts:
    """The accuracies of one cell, of the five cells of an average, or of an empty place.

    Args:
        parts: the cells.
        stat: from a field to its statistics over the cells.
        published: accuracy in percent.
    """
    facts: _Facts = {"published": None if published is None else round(published / 100, 6)}
    if not parts:
        return facts | {"status": "missing"}
    rows = [(part.ok or part.rows)[0] for part in parts]
    facts |= _shared(rows, _SHARED)
    facts |= {f"seeds_{s}": sum(part.number_of(s) for part in parts) for s in STATUSES}
    facts["status"] = parts[0].status
    other_data = any(row.data not in LRA_DATA for row in rows)
    facts["mark"] = "other data" if other_data else ""
    for field in _ACCURACIES:
        found = stat(field)
        if found:
            facts[f"{field}_mean"] = round(found.mean, 6)
            facts[f"{field}_std"] = None if found.std is None else round(found.std, 6)
    if published is not None and not other_data and "test_accuracy_mean" in facts:
        of_chance = noise(parts)
        facts["difference"] = round(facts["test_accuracy_mean"] - published / 100, 6)
        if of_chance:
            facts["difference_error"] = round(of_chance.std, 6)
            facts["difference_least"] = round(of_chance.least, 6)
    return facts


def _code(cell: Cell) -> _Facts:
    """Parameters, seeds, devices, versions and commits of one cell."""
    programs = cell.by_program()
    return _shared((row for row in cell.rows if row.final), ("params",)) | {
        "seeds": json.dumps([row.seed for row in cell.ok]),
        "devices": _listed(program.platform.devices for program in programs),
        "jax": _listed(program.platform.jax_version for program in programs),
        "commits": _listed(program.commits for program in programs),
    }


def _listed(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _shared(rows: Iterable[Row], names: Iterable[str]) -> _Facts:
    """The values of some fields where all rows agree; None where they differ."""
    rows = list(rows)
    values = {name: {getattr(row, name) for row in rows} for name in names}
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in values.items()}
