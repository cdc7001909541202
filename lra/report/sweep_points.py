"""Points of sweep figures: accuracy and speed against each option that was swept."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.protocol import defaults_of
from lra.report.cells import Cell, number_format, usual_platform
from lra.report.dots import Dot, dot
from lra.report.groups import Group
from lra.report.provenance import Platform
from lra.report.speeds import Speeds

# Pairs of an option's value and a cell with this value.
_Sized = list[tuple[float, Cell]]
_DEFAULT = "default"
_LARGEST = 2**31  # `lra.setting_values` refuses larger integers


class Sweep(NamedTuple):
    """One option of an attention at several values, all others fixed.

    Attributes:
        fixed: Values of the other options; `default` of those whose defaults differ by task.
        changed: Names of those that differ from their defaults.
        by_task: Dot of each value, by task.
        platforms: Platform of all speeds, by task.
        left_out: Values that have rows but no dot, and why, by task.
    """

    fixed: dict[str, str]
    changed: tuple[str, ...]
    by_task: dict[str, dict[float, Dot]]
    platforms: dict[str, Platform]
    left_out: dict[str, dict[float, str]]

    @property
    def dots(self) -> list[Dot]:
        """All dots, of all tasks."""
        return [dot for dots in self.by_task.values() for dot in dots.values()]


class _Lines(NamedTuple):
    """Cells of lines that change the same other options.

    Attributes:
        others: Values of the other options: of those at their defaults, one a task.
        changed: Names of those that differ from their defaults.
        by_task: Values of the option and cells, by task.
    """

    others: dict[str, dict[str, None]]
    changed: tuple[str, ...]
    by_task: dict[str, _Sized]


def sweeps(group: Group) -> dict[tuple[str, str], list[Sweep]]:
    """Return all sweeps of two or more values, by attention and option.

    The sweep with all other options at their defaults comes first.
    """
    by_option = {
        key: [
            sweep
            for changed in sorted(lines, key=bool)
            if (sweep := _sweep(lines[changed], group)).by_task
        ]
        for key, lines in _swept_lines(group).items()
    }
    return {key: option_sweeps for key, option_sweeps in by_option.items() if option_sweeps}


def timed(shown: list[Sweep], measured: Iterable[Speeds]) -> list[Sweep] | None:
    """Return the sweeps of a figure with measured speeds; None unless one platform has them all."""
    dots = [dot for sweep in shown for dot in sweep.dots]
    for speeds in measured:
        if all(dot.case in speeds.examples_per_second for dot in dots):
            return [_timed(sweep, speeds) for sweep in shown]
    return None


def _timed(sweep: Sweep, speeds: Speeds) -> Sweep:
    by_task = {
        task: {value: dot.timed(speeds) for value, dot in dots.items()}
        for task, dots in sweep.by_task.items()
    }
    return sweep._replace(by_task=by_task, platforms=dict.fromkeys(by_task, speeds.platform))


def labels(shown: list[Sweep]) -> list[str]:
    """Name the sweeps of a figure by the options in which they differ, those at defaults too."""
    names = dict.fromkeys(name for sweep in shown for name in sweep.fixed)
    several = [name for name in names if len({sweep.fixed.get(name) for sweep in shown}) > 1]
    return [_join(sweep.fixed, several) or "defaults" for sweep in shown]


def shared(shown: list[Sweep]) -> str:
    """Name the options that all sweeps of a figure change to the same values."""
    first = shown[0].fixed
    alike = [
        name
        for name in first
        if all(name in sweep.changed and sweep.fixed[name] == first[name] for sweep in shown)
    ]
    return _join(first, alike)


def _join(fixed: dict[str, str], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={fixed[name]}" for name in names if name in fixed)


def _swept_lines(group: Group) -> dict[tuple[str, str], dict[str, _Lines]]:
    """Return what was swept by attention and option, then by the other options changed."""
    result: dict = defaultdict(dict)
    for line, task, cell in group.all_cells():
        defaults = defaults_of(task, line.attention)
        options = {key: value for key, value in line.options.items() if value is not None}
        texts = {line.names[key]: str(value) for key, value in options.items()}
        departing = [line.names[key] for key, v in options.items() if defaults.get(key) != v]
        for key, value in options.items():
            if _can_be_drawn(value):
                option = line.names[key]
                changed = tuple(name for name in departing if name != option)
                lines = result[line.attention, option].setdefault(
                    _join(texts, changed), _Lines(defaultdict(dict), changed, defaultdict(list))
                )
                lines.by_task[task].append((value, cell))
                for name, text in texts.items():
                    if name != option:
                        lines.others[name][text] = None
    return result


def _can_be_drawn(value: Any) -> bool:
    """Whether a value is a number that a config may hold; larger ones overflow on an axis."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST


def _sweep(lines: _Lines, group: Group) -> Sweep:
    """Build the sweep of one option, with a curve for each task that has two or more values."""
    fixed = {
        name: next(iter(texts)) if len(texts) == 1 else _DEFAULT
        for name, texts in lines.others.items()
    }
    sweep = Sweep(fixed, lines.changed, {}, {}, {})
    for task in group.tasks:
        sized = lines.by_task.get(task, [])
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
