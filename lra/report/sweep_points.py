"""The points of sweep figures: accuracy and speed against each option that was swept."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.protocol import defaults_of
from lra.report.cells import Cell, number_format, usual_platform
from lra.report.changes import OPTIONS
from lra.report.dots import Dot, dot
from lra.report.groups import Group
from lra.report.provenance import Platform

# Pairs of a value of an option and a cell that has it.
_Sized = list[tuple[float, Cell]]
_LARGEST = 2**31  # `lra.setting_values` refuses larger integers


class Sweep(NamedTuple):
    """One option of an attention at several values, all others fixed.

    Attributes:
        fixed: the other options that differ from their defaults: `pinv_iterations=8`.
        by_task: a dot for each value, by task.
        platforms: by task, the platform of all speeds.
        left_out: by task, the values that have rows but no dot, and why.
    """

    fixed: str
    by_task: dict[str, dict[float, Dot]]
    platforms: dict[str, Platform]
    left_out: dict[str, dict[float, str]]


def sweeps(group: Group) -> dict[tuple[str, str], list[Sweep]]:
    """By attention and option, every sweep of two values or more; that at the defaults first."""
    found = {
        key: [
            sweep
            for fixed in sorted(of_option, key=bool)
            if (sweep := _sweep(fixed, of_option[fixed], group)).by_task
        ]
        for key, of_option in _swept(group).items()
    }
    return {key: of_option for key, of_option in found.items() if of_option}


def _swept(group: Group) -> dict[tuple[str, str], dict[str, dict[str, _Sized]]]:
    """By attention and option, then by the fixed options and by task: values with cells."""
    found: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line, task, cell in group.all_cells():
        defaults = defaults_of(task, line.attention)
        options = {name: value for name, value in line.options.items() if value is not None}
        changed = {name: value for name, value in options.items() if defaults.get(name) != value}
        for name, value in options.items():
            if _can_be_drawn(value):
                option, fixed = name.removeprefix(OPTIONS), _titled(changed, but=name)
                found[line.attention, option][fixed][task].append((value, cell))
    return found


def _can_be_drawn(value: Any) -> bool:
    """Whether it is a number that a configuration may have; on an axis, larger ones overflow."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST


def _titled(options: dict[str, Any], but: str) -> str:
    return ", ".join(
        f"{name.removeprefix(OPTIONS)}={value}" for name, value in options.items() if name != but
    )


def _sweep(fixed: str, cells_of_task: dict[str, _Sized], group: Group) -> Sweep:
    """The curves of the tasks that have two values or more."""
    found = Sweep(fixed, {}, {}, {})
    for task in group.tasks:
        sized = cells_of_task.get(task, [])
        chosen = _chosen(sized, group.number_formats)
        usual = {number_format(cell) for cell in chosen.values()}
        if missing := sorted({value for value, _ in sized} - set(chosen)):
            found.left_out[task] = {
                value: _why([cell for size, cell in sized if size == value], usual)
                for value in missing
            }
        if len(chosen) > 1:
            platform = found.platforms[task] = usual_platform(chosen.values())
            found.by_task[task] = {value: dot(chosen[value], platform) for value in sorted(chosen)}
    return found


def _chosen(sized: _Sized, formats: Iterable[str]) -> dict[float, Cell]:
    """By value its cell, in the number format in which most values have exactly one."""
    by_format: dict[str, dict[float, list[Cell]]] = {name: {} for name in formats}
    for value, cell in sized:
        by_format[number_format(cell)].setdefault(value, []).append(cell)
    single = [
        {value: parts[0] for value, parts in sizes.items() if len(parts) == 1 and parts[0].ok}
        for sizes in by_format.values()
    ]
    return max(single, key=len)


def _why(parts: list[Cell], usual: set[str]) -> str:
    """Why the cells of a value have no dot.

    Args:
        parts: the cells.
        usual: the number format of the curve.
    """
    results = [cell for cell in parts if cell.ok]
    if not results:
        return "no result"
    formats = dict.fromkeys(map(number_format, results))
    return "seeds that differ" if usual.intersection(formats) else " and ".join(formats)
