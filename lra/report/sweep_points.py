"""Points of sweep figures: accuracy and speed against each option that was swept."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.protocol import defaults_of
from lra.report.cells import Cell, number_format, usual_platform
from lra.report.dots import Dot, dot
from lra.report.groups import Group
from lra.report.provenance import Platform

# Pairs of an option's value and a cell with this value.
_Sized = list[tuple[float, Cell]]
_LARGEST = 2**31  # `lra.setting_values` refuses larger integers


class Sweep(NamedTuple):
    """One option of an attention at several values, all others fixed.

    Attributes:
        fixed: Other options that differ from their defaults: `pinv_iterations=8`.
        by_task: Dot of each value, by task.
        platforms: Platform of all speeds, by task.
        left_out: Values that have rows but no dot, and why, by task.
    """

    fixed: str
    by_task: dict[str, dict[float, Dot]]
    platforms: dict[str, Platform]
    left_out: dict[str, dict[float, str]]


def sweeps(group: Group) -> dict[tuple[str, str], list[Sweep]]:
    """Return all sweeps of two or more values, by attention and option.

    The sweep with all other options at their defaults comes first.
    """
    by_option = {
        key: [
            sweep
            for fixed in sorted(cells, key=bool)
            if (sweep := _sweep(fixed, cells[fixed], group)).by_task
        ]
        for key, cells in _swept_cells(group).items()
    }
    return {key: option_sweeps for key, option_sweeps in by_option.items() if option_sweeps}


def _swept_cells(group: Group) -> dict[tuple[str, str], dict[str, dict[str, _Sized]]]:
    """Return values with cells by attention and option, then by fixed options, then by task."""
    result: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line, task, cell in group.all_cells():
        defaults = defaults_of(task, line.attention)
        options = {key: value for key, value in line.options.items() if value is not None}
        changed = {
            line.names[key]: value for key, value in options.items() if defaults.get(key) != value
        }
        for key, value in options.items():
            if _can_be_drawn(value):
                option = line.names[key]
                fixed = _join_options(changed, excluded=option)
                result[line.attention, option][fixed][task].append((value, cell))
    return result


def _can_be_drawn(value: Any) -> bool:
    """Whether a value is a number that a config may hold; larger ones overflow on an axis."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST


def _join_options(options: dict[str, Any], excluded: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items() if name != excluded)


def _sweep(fixed: str, cells_of_task: dict[str, _Sized], group: Group) -> Sweep:
    """Build the sweep of one option, with a curve for each task that has two or more values."""
    sweep = Sweep(fixed, {}, {}, {})
    for task in group.tasks:
        sized = cells_of_task.get(task, [])
        chosen = _cell_by_value(sized, group.number_formats)
        formats = {number_format(cell) for cell in chosen.values()}
        if missing := sorted({value for value, _ in sized} - set(chosen)):
            sweep.left_out[task] = {
                value: _why_no_dot([cell for size, cell in sized if size == value], formats)
                for value in missing
            }
        if len(chosen) > 1:
            platform = sweep.platforms[task] = usual_platform(chosen.values())
            sweep.by_task[task] = {value: dot(chosen[value], platform) for value in sorted(chosen)}
    return sweep


def _cell_by_value(sized: _Sized, formats: Iterable[str]) -> dict[float, Cell]:
    """Return the cell of each value in the number format in which most values have just one."""
    by_format: dict[str, dict[float, list[Cell]]] = {name: {} for name in formats}
    for value, cell in sized:
        by_format[number_format(cell)].setdefault(value, []).append(cell)
    single = [
        {value: parts[0] for value, parts in sizes.items() if len(parts) == 1 and parts[0].ok}
        for sizes in by_format.values()
    ]
    return max(single, key=len)


def _why_no_dot(parts: list[Cell], curve_formats: set[str]) -> str:
    """Return why the cells of a value have no dot.

    Args:
        parts: Cells of the value.
        curve_formats: Number format of the curve; empty if there is no curve.
    """
    results = [cell for cell in parts if cell.ok]
    if not results:
        return "no result"
    formats = dict.fromkeys(map(number_format, results))
    return "seeds that differ" if curve_formats.intersection(formats) else " and ".join(formats)
