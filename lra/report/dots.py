"""Dots of figures, one a cell, and the panels of accuracy against speed."""

import statistics
from collections import Counter
from typing import NamedTuple

from lra.published import TASKS
from lra.report.cells import Cell, Stat, average, number_format, usual_platform
from lra.report.groups import Group, Line
from lra.report.places import mark_of_data
from lra.report.provenance import Platform
from lra.report.speeds import Speeds


class Dot(NamedTuple):
    """A cell, or an average over five, in a figure.

    Attributes:
        accuracy: of the test set, a fraction.
        speed: training examples/s, as measured apart or else of the fastest of its programs on the
            platform of the figure.
        params: number of parameters.
        seeds_together: how many seeds these programs train at once; None for an average or a speed
            that was measured apart.
        slowest: speed of the slowest of them.
        marked: whether the table marks the cell: its data are not LRA's.
    """

    accuracy: Stat
    speed: float | None
    params: float | None = None
    seeds_together: int | None = None
    slowest: float | None = None
    marked: bool = False


class Panels(NamedTuple):
    """Accuracy against speed.

    Attributes:
        by_task: the dot of each attention, by task, and under `""` for the average over the five
            tasks; only tasks with two dots or more.
        platform: where all speeds were taken.
        missing: which cells with results have no dot: `of other devices`, ...
    """

    by_task: dict[str, dict[str, Dot]]
    platform: Platform | None
    missing: list[str]


def dot(cell: Cell, platform: Platform | None) -> Dot:
    """The dot of a cell with a result; without a speed if it did not run on this platform."""
    there = cell.on(platform)
    speeds = there.known("examples_per_second")
    return Dot(
        cell.stat(),
        max(speeds, default=None),
        cell.median("params"),
        there.rows[0].seeds_in_program if there.rows else None,
        min(speeds, default=None),
    )


def panels(group: Group, measured: Speeds | None = None) -> Panels:
    """The panels of a group; the speed of an average is the geometric mean.

    Args:
        group: whose cells are drawn.
        measured: speeds of the protocol's steps, which then take the place of the runs' own.
    """
    platform = usual_platform(
        cell for line in group.lines for parts in line.cells.values() for cell in parts
    )
    if measured:
        platform = measured.platform
    found: dict[str, dict[str, Dot]] = {task: {} for task in group.tasks}
    missing: dict[str, None] = {}
    lines_of = Counter(line.attention for line in group.lines)
    for line in group.lines:
        for task in group.tasks:
            several = lines_of[line.attention] > 1
            reason = _why_none(line, task, platform, measured, several=several)
            if reason is None:
                cell = line.cell(task)
                marked = group.is_table3 and bool(mark_of_data([cell]))
                shown = _shown(cell, platform, measured)
                found[task][line.attention] = shown._replace(marked=marked)
            elif reason:
                missing[reason] = None
    if group.is_table3:
        averages = {line.attention: _average_dot(line, found) for line in group.lines}
        found[""] = {attention: mean for attention, mean in averages.items() if mean}
    if any(len(of_task) == 1 for of_task in found.values()):
        missing["alone in their column"] = None
    by_task = {task: of_task for task, of_task in found.items() if len(of_task) > 1}
    return Panels(by_task, platform, list(missing))


def _shown(cell: Cell, platform: Platform | None, measured: Speeds | None) -> Dot:
    """The dot of a cell, with the speed that was measured of it if any were."""
    if measured is None:
        return dot(cell, platform)
    row = cell.rows[0]
    speed = measured.examples_per_second.get((row.task, row.attention))
    return Dot(cell.stat(), speed, cell.median("params"))


def _why_none(
    line: Line, task: str, platform: Platform | None, measured: Speeds | None, *, several: bool
) -> str | None:
    """Why a place has no dot; '' if it has no result, None if it has a dot.

    Args:
        line: of the place.
        task: of the place.
        platform: where all speeds were taken.
        measured: the speeds, if they are not those of the runs.
        several: whether its attention has other lines too.
    """
    parts = [cell for cell in line.cells.get(task, []) if cell.ok]
    if not parts:
        return ""
    if several:
        return "of an attention with several lines"
    cell = line.cell(task)
    if cell is None:
        alike = len({cell.ok[0].steps for cell in parts}) == 1
        return f"of seeds that differ in {'data or overrides' if alike else 'steps'}"
    if measured is None and not cell.on(platform).rows:
        return f"of other {_difference(cell, platform)}"
    shown = _shown(cell, platform, measured)
    if shown.speed and shown.params:
        return None
    return f"without a {'number of parameters' if shown.speed else 'speed'}"


def _difference(cell: Cell, platform: Platform) -> str:
    """How the platforms of a cell's programs differ from the one of the figure."""
    if number_format(cell) != platform.number_format:
        return "number formats"
    elsewhere = (program.platform for program in cell.by_program())
    same_devices = any(other.devices == platform.devices for other in elsewhere)
    return "versions of JAX" if same_devices else "devices"


def _average_dot(line: Line, by_task: dict[str, dict[str, Dot]]) -> Dot | None:
    own = [by_task[task][line.attention] for task in TASKS if line.attention in by_task[task]]
    if len(own) < len(TASKS) or not line.five:
        return None
    return Dot(
        average(line.five),
        statistics.geometric_mean(each.speed for each in own),
        sum(each.params for each in own) / len(own),
        marked=any(each.marked for each in own),
    )
