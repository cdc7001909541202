"""Dots of figures, one per cell, and the panels of accuracy against speed."""

import statistics
from collections import Counter
from typing import NamedTuple

from lra.published import TABLE_TASKS
from lra.report import changes
from lra.report.cells import Cell, Stat, average, number_format, usual_platform
from lra.report.groups import Group
from lra.report.lines import Line
from lra.report.places import mark_of_data
from lra.report.provenance import Platform
from lra.report.speeds import Case, Speeds, case

UNSTEADY = 1.3  # speeds that differ more tell more of their machine than of the method


class Dot(NamedTuple):
    """A cell, or an average over five, in a figure.

    Attributes:
        accuracy: Test accuracy, a fraction.
        speed: Training examples/s, as measured separately, or else of the fastest of the cell's
            programs on the platform of the figure.
        params: Number of parameters.
        seeds_together: Number of seeds that these programs train at once; None for an average or
            a speed that was measured separately.
        slowest: Training examples/s of the slowest of these programs.
        marked: Whether the table marks the cell because its data are not LRA's.
        seeds: Test accuracy of each seed; empty for an average.
        lost: Number of seeds that diverged or failed.
        case: What was trained; None for an average.
        commit: Commit at which the speed was measured separately.
    """

    accuracy: Stat
    speed: float | None
    params: float | None = None
    seeds_together: int | None = None
    slowest: float | None = None
    marked: bool = False
    seeds: tuple[float, ...] = ()
    lost: int = 0
    case: Case | None = None
    commit: str | None = None

    def timed(self, measured: Speeds) -> "Dot":
        """Return the dot with the measured speed of its case, or without one."""
        speed = measured.examples_per_second.get(self.case)
        commit = measured.commits.get(self.case)
        return self._replace(speed=speed, seeds_together=None, slowest=None, commit=commit)

    @property
    def is_steady(self) -> bool:
        """Whether the fastest of these programs is at most `UNSTEADY` times as fast as others."""
        return not self.speed or not self.slowest or self.speed <= UNSTEADY * self.slowest


class Panels(NamedTuple):
    """Panels of accuracy against speed, one per task.

    Attributes:
        by_task: Dot of each attention, by task, with `""` for the average over the five tasks;
            only tasks with two dots or more.
        platform: Platform on which all speeds were measured.
        missing: Kinds of cells that have results but no dot: `of other devices`, ...
    """

    by_task: dict[str, dict[str, Dot]]
    platform: Platform | None
    missing: list[str]


def dot(cell: Cell, platform: Platform | None) -> Dot:
    """Return the dot of a cell with a result; it has no speed if the cell ran elsewhere."""
    part, row = cell.on(platform), cell.rows[0]
    changed = changes.options(row) | changes.of_protocol(row)
    speeds = part.known("examples_per_second")
    return Dot(
        cell.stat(),
        max(speeds, default=None),
        cell.median("params"),
        part.rows[0].seeds_in_program if part.rows else None,
        min(speeds, default=None),
        seeds=tuple(cell.known("test_accuracy")),
        lost=len(cell.rows) - len(cell.ok),
        case=case(row.task, row.attention, changed),
    )


def panels(group: Group, measured: Speeds | None = None) -> Panels:
    """Return the panels of a group; the speed of an average is the geometric mean.

    Args:
        group: Group whose cells are drawn.
        measured: Measured speeds of the protocol's steps, used in place of the runs' own.
    """
    platform = usual_platform(
        cell for line in group.lines for parts in line.cells.values() for cell in parts
    )
    if measured:
        platform = measured.platform
    by_task: dict[str, dict[str, Dot]] = {task: {} for task in group.tasks}
    missing: dict[str, None] = {}
    num_lines = Counter(line.attention for line in group.lines)
    for line in group.lines:
        for task in group.tasks:
            several = num_lines[line.attention] > 1
            reason = _why_no_dot(line, task, platform, measured, several=several)
            if reason is None:
                cell = line.cell(task)
                marked = group.is_table3 and bool(mark_of_data([cell]))
                cell_dot = _measured_dot(cell, platform, measured)
                by_task[task][line.attention] = cell_dot._replace(marked=marked)
            elif reason:
                missing[reason] = None
    if group.is_table3:
        averages = {line.attention: _average_dot(line, by_task) for line in group.lines}
        by_task[""] = {attention: mean for attention, mean in averages.items() if mean}
    if any(len(dots) == 1 for dots in by_task.values()):
        missing["alone in their column"] = None
    by_task = {task: dots for task, dots in by_task.items() if len(dots) > 1}
    return Panels(by_task, platform, list(missing))


def _measured_dot(cell: Cell, platform: Platform | None, measured: Speeds | None) -> Dot:
    """Return the dot of a cell, with its measured speed if speeds were measured."""
    run_dot = dot(cell, platform)
    return run_dot.timed(measured) if measured else run_dot


def _why_no_dot(
    line: Line, task: str, platform: Platform | None, measured: Speeds | None, *, several: bool
) -> str | None:
    """Return why a place has no dot; '' if it has no result, None if it has a dot.

    Args:
        line: Line of the place.
        task: Task of the place.
        platform: Platform of all speeds of the figure.
        measured: Measured speeds; None for those of the runs.
        several: Whether the attention has other lines too.
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
    cell_dot = _measured_dot(cell, platform, measured)
    if cell_dot.speed and cell_dot.params:
        return None
    return f"without a {'number of parameters' if cell_dot.speed else 'speed'}"


def _difference(cell: Cell, platform: Platform) -> str:
    """Name what distinguishes the platforms of a cell's programs from that of the figure."""
    if number_format(cell) != platform.number_format:
        return "number formats"
    platforms = (program.platform for program in cell.by_program)
    same_devices = any(other.devices == platform.devices for other in platforms)
    return "versions of JAX" if same_devices else "devices"


def _average_dot(line: Line, by_task: dict[str, dict[str, Dot]]) -> Dot | None:
    dots = [
        by_task[task][line.attention] for task in TABLE_TASKS if line.attention in by_task[task]
    ]
    if len(dots) < len(TABLE_TASKS) or not line.five:
        return None
    return Dot(
        average(line.five),
        statistics.geometric_mean(each.speed for each in dots),
        sum(each.params for each in dots) / len(dots),
        marked=any(each.marked for each in dots),
    )
