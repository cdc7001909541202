"""What the figures of sweeps show: accuracy and speed against each option that was swept."""

from typing import NamedTuple

from lra.protocol import departures
from lra.report.cells import Cell, Stat, number_format, usual_platform
from lra.report.changes import OPTIONS
from lra.report.groups import Group
from lra.report.provenance import Platform

# By attention and option, then by task.
_Swept = dict[tuple[str, str], dict[str, list[tuple[float, Cell]]]]


class Point(NamedTuple):
    """One size of an attention: the option's value, accuracy (fraction), examples/s on a platform.

    The platform is the same for all points of a curve; the speed is that of a program with so many
    `seeds_together`, on these `jax_versions`.
    """

    value: float
    accuracy: Stat
    speed: float | None
    platform: Platform | None = None
    seeds_together: int | None = None
    jax_versions: tuple[str, ...] = ()


def sweeps(group: Group) -> dict[tuple[str, str], dict[str, list[Point]]]:
    """By attention and option, then by task, the points of each option that was swept.

    They are those where the attention's other options have their defaults.
    """
    curves = {
        key: {
            task: points
            for task in group.tasks
            if len(points := _points(by_task.get(task, []), group.number_formats)) > 1
        }
        for key, by_task in _swept(group).items()
    }
    # Two points make a curve.
    return {key: by_task for key, by_task in curves.items() if by_task}


def left_out(group: Group, attention: str, option: str) -> dict[str, dict[float, str]]:
    """By task the values of an option that have rows but no point on its curve, and why."""
    found = {}
    for task, sized in _swept(group)[attention, option].items():
        shown = _chosen(sized, group.number_formats)
        usual = {number_format(cell) for cell in shown.values()}
        found[task] = {
            value: _why([cell for size, cell in sized if size == value], usual)
            for value in sorted({value for value, _ in sized} - set(shown))
        }
    return {task: values for task, values in found.items() if values}


def _swept(group: Group) -> _Swept:
    """The cells of each value of each option."""
    found: _Swept = {}
    for line, task, cell in group.all_cells():
        options = {name: value for name, value in line.options.items() if value is not None}
        changed = set(departures(task, line.attention, options))
        for name, value in options.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and changed <= {name}:
                by_task = found.setdefault((line.attention, name.removeprefix(OPTIONS)), {})
                by_task.setdefault(task, []).append((value, cell))
    return found


def _chosen(sized: list[tuple[float, Cell]], formats: tuple[str, ...]) -> dict[float, Cell]:
    """The cell of each size that has one, in the number format in which most sizes have."""
    by_format: dict[str, dict[float, list[Cell]]] = {name: {} for name in formats}
    for value, cell in sized:
        by_format[number_format(cell)].setdefault(value, []).append(cell)
    single = [
        {value: parts[0] for value, parts in sizes.items() if len(parts) == 1 and parts[0].ok}
        for sizes in by_format.values()
    ]
    return max(single, key=len)


def _points(sized: list[tuple[float, Cell]], formats: tuple[str, ...]) -> list[Point]:
    chosen = _chosen(sized, formats)
    platform = usual_platform(chosen.values())
    points = []
    for value, cell in sorted(chosen.items()):
        timed = cell.on(platform)
        speed = timed.median("examples_per_second")
        program = timed.seeds_together, timed.jax_versions
        points.append(Point(value, cell.stat(), speed, platform, *program))
    return points


def _why(parts: list[Cell], usual: set[str]) -> str:
    """Why the cells of a value make no point.

    Args:
        parts: the cells.
        usual: the number format of the curve.
    """
    results = [cell for cell in parts if cell.ok]
    if not results:
        return "no result"
    formats = dict.fromkeys(map(number_format, results))
    return "seeds that differ" if usual.intersection(formats) else " and ".join(formats)
