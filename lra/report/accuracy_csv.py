"""All cells of accuracy as CSV: whatever a table shows or misses, and the averages."""

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lra.published import TABLE3
from lra.report.cells import Cell, Stat, average
from lra.report.groups import LRA_DATA, Group, Line
from lra.row import STATUSES

# What a line takes from the rows as it is, and what it says by mean or median.
_SHARED = ("protocol", "data", "dtype", "matmul_precision", "steps")
_PROGRAM = ("seeds_in_program", "device", "num_devices")
_CODE = ("jax", "commits")
_ACCURACIES = ("test_accuracy", "test_accuracy_last", "val_accuracy")
_COSTS = ("examples_per_second", "wall_seconds", "peak_memory_mb")
_HEADER = (
    "group",
    "task",
    "attention",
    "options",
    "status",
    "mark",
    *_SHARED,
    *(f"seeds_{status}" for status in STATUSES),
    *(f"{field}_{what}" for field in _ACCURACIES for what in ("mean", "std")),
    "published",
    "difference",
    "params",
    *_COSTS,
    *_PROGRAM,
    *_CODE,
)
_AVERAGE = "average"

_Facts = dict[str, Any]


def accuracy_csv(groups: Iterable[Group]) -> str:
    """A line for each cell and each place without one; accuracies are fractions.

    In the table of the paper there is one more for each attention, of the task `average`; its
    `seeds_ok` is the least of any task, the other counts of seeds are sums. `status` is `ok`,
    `diverged`, `failed` or `missing`, `mark` says `other data` (not LRA's) and `other number
    format` (than the table shows there). Several devices, versions of JAX and commits are listed;
    costs are given where all seeds had them, and the size of their program, in common.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _HEADER, lineterminator="\n")
    writer.writeheader()
    for group in groups:
        for line in group.lines:
            writer.writerows(_of_line(group, line))
            if group.is_table3:
                writer.writerow(_of_average(group, line))
        for line in group.apart:
            writer.writerows(_of_line(group, line, apart=True))
    return text.getvalue()


def _of_line(group: Group, line: Line, *, apart: bool = False) -> Iterator[_Facts]:
    for task in group.tasks:
        place = _place(group, line, task)
        published = TABLE3.get(line.attention, {}).get(task) if group.is_table3 else None
        parts = line.cells.get(task, [])
        for cell in parts:
            facts = place | _accuracies([cell], cell.stat, published) | _costs(cell)
            if apart:
                facts["mark"] = "; ".join(filter(None, [facts["mark"], "other number format"]))
            yield facts
        if not parts and not apart:
            yield place | _accuracies([], None, published)


def _of_average(group: Group, line: Line) -> _Facts:
    of_tasks, five = TABLE3.get(line.attention), line.five
    published = statistics.fmean(of_tasks.values()) if of_tasks else None
    facts = _place(group, line, _AVERAGE)
    facts |= _accuracies(five, lambda field: average(five, field), published)
    if five:
        facts["seeds_ok"] = average(five).n
    return facts


def _place(group: Group, line: Line, task: str) -> _Facts:
    return {
        "group": group.slug,
        "task": task,
        "attention": line.attention,
        "options": str(line.options or ""),
    }


def _accuracies(
    parts: Sequence[Cell], stat: Callable[[str], Stat | None] | None, published: float | None
) -> _Facts:
    """What is known of one cell, of five to average over, or of none.

    Args:
        parts: the cells.
        stat: from a field to its statistics over the cells.
        published: accuracy in percent.
    """
    facts: _Facts = {"published": None if published is None else round(published / 100, 6)}
    if not parts:
        return facts | {"status": "missing"}
    rows = [(part.ok or part.rows)[0] for part in parts]
    facts |= {name: _same(getattr(row, name) for row in rows) for name in _SHARED}
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
        facts["difference"] = round(facts["test_accuracy_mean"] - published / 100, 6)
    return facts


def _costs(cell: Cell) -> _Facts:
    programs = cell.by_program()
    rows = [row for row in cell.rows if row.final]
    facts: _Facts = {name: _same(getattr(row, name) for row in rows) for name in _PROGRAM}
    facts["params"] = cell.median("params")
    facts["jax"] = _listed(program.jax_version for program in programs)
    facts["commits"] = _listed(program.commits for program in programs)
    if len({(row.device, row.num_devices) for row in rows}) > 1:
        facts["device"] = _listed(program.platform.devices for program in programs)
    if len(programs) == 1:
        facts |= {field: cell.median(field) for field in _COSTS}
    return facts


def _listed(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _same(values: Iterable[object]) -> object:
    """What all of them are; None where they differ."""
    first, *others = set(values) or [None]
    return None if others else first
