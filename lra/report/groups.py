"""Groups: rows that may stand in one table, because protocol and data are comparable.

The first group is the table of the paper: rows that follow the protocol `table3` as the present
code has it, on official or generated data; a task that has none shows its rows on other data, with
a mark. All other rows are grouped by the keys that they change (options of the attention aside) and
by their data. Keys whose values vary, as in a sweep, tell the lines of a group apart. A group that
is a sweep over options of an attention, or over one other key, shows the cells of the table again,
since they are a point of it.
"""

import dataclasses
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from lra.published import TABLE3 as PUBLISHED
from lra.published import TASKS
from lra.report import changes
from lra.report.cells import (
    Cell,
    attention_order,
    attention_title,
    cells,
    number_format,
    task_title,
    value_order,
)
from lra.report.provenance import FLOAT32, Program, number_format_of
from lra.row import Row
from lra.tasks import TASKS as ALL_TASKS

# The marks of data whose accuracies can be compared with LRA's; all others are shown.
LRA_DATA = ("official", "generated")
_LRA_DATA_TITLE = " or ".join(LRA_DATA)
_LONGEST_SLUG, _LONGEST_NAME = 60, 120
_TITLE_OF_TABLE = "Long Range Arena: protocol of Table 3 (Nyströmformer)"


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: the cells of an attention, with the options that tell lines apart."""

    attention: str
    options: dict[str, Any]
    cells: dict[str, list[Cell]]

    @property
    def title(self) -> str:
        """What the table calls it: `Nyströmformer, num_landmarks=32`."""
        options = [f"{k.removeprefix(changes.OPTIONS)}={v}" for k, v in self.options.items()]
        return ", ".join([attention_title(self.attention), *options])

    def cell(self, task: str) -> Cell | None:
        """The cell of a task; None unless there is exactly one and it has a result."""
        found = self.cells.get(task, [])
        return found[0] if len(found) == 1 and found[0].ok else None

    @property
    def five(self) -> tuple[Cell, ...]:
        """The cells of the five tasks of Table 3, to average over.

        Empty unless each task has exactly one, with a result, and no failed run is to be repeated.
        """
        found = tuple(cell for task in TASKS if (cell := self.cell(task)))
        complete = len(found) == len(TASKS) and not any(c.number_of("failed") for c in found)
        return found if complete else ()


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that may stand in one table.

    Attributes:
        slug: its name in names of files.
        title: of its section; no two groups share one.
        setting: in sentences, what its rows change of the protocol, and their data; empty for the
            table of the paper.
        is_table3: whether it is the table of the paper.
        tasks: its columns.
        lines: its lines; the cells of a place have one number format.
        apart: the other cells of such places, which are in another number format.
        number_formats: of its rows, the one with most results first.
    """

    slug: str
    title: str
    setting: str
    is_table3: bool
    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    apart: tuple[Line, ...]
    number_formats: tuple[str, ...]

    def all_cells(self) -> list[tuple[Line, str, Cell]]:
        """Every cell with its line and task, in the order of the table; those of `apart` last."""
        return [
            (line, task, cell)
            for line in (*self.lines, *self.apart)
            for task in self.tasks
            for cell in line.cells.get(task, [])
        ]

    def programs(self) -> Iterator[tuple[Line, str, Program, Cell]]:
        """Every program with its line, its task and those `costly` rows of a cell that it trained.

        Programs differ in costs: by device, number of seeds or code.
        """
        for task in self.tasks:
            for line in (*self.lines, *self.apart):
                for cell in line.cells.get(task, []):
                    for program, part in cell.costly.by_program().items():
                        yield line, task, program, part

    def data_of(self, task: str) -> list[str]:
        """The marks of a task's data that are not LRA's."""
        marks = {
            row.data for _, name, cell in self.all_cells() if name == task for row in cell.rows
        }
        return sorted(marks - set(LRA_DATA))


def group(rows: Iterable[Row]) -> list[Group]:
    """All rows in groups, the table first."""
    rows = list(rows)
    of_table = _data_of_the_table(rows)
    table, members = [], defaultdict(list)
    for row in rows:
        if changes.is_table3(row) and row.data in of_table[row.task]:
            table.append(row)
        else:
            members[tuple(sorted(changes.of_protocol(row))), _data_title(row)].append(row)
    groups = []
    if table:
        groups.append(_make("table3", "", table, is_table3=True))
    for (keys, data), others in sorted(members.items()):
        is_of_options = not keys and data == _LRA_DATA_TITLE
        slug = "options" if is_of_options else _slug(keys, data)
        if not keys or (len(keys) == 1 and changes.varying(others)):
            # A sweep, of which cells of the table are points.
            swept = {(row.task, row.attention) for row in others}
            same_data = (row for row in table if _data_title(row) == data)
            others += [row for row in same_data if (row.task, row.attention) in swept]
        marks = " and ".join(sorted({row.data for row in others}))
        setting = f"{changes.told(others)} Data: {marks}."
        other = "" if data == _LRA_DATA_TITLE else "other data"
        groups.append(_make(slug, setting, others, keys, other))
    return _numbered(groups)


def _numbered(groups: list[Group]) -> list[Group]:
    """The groups, with a number added to titles that an earlier group has: `... (2)`."""
    taken: Counter[str] = Counter()
    found = []
    for one in groups:
        taken[one.title] += 1
        number = f" ({taken[one.title]})" if taken[one.title] > 1 else ""
        found.append(dataclasses.replace(one, title=one.title + number))
    return found


def _slug(keys: tuple[str, ...], data: str) -> str:
    """A name that depends on keys and data alone, not on the other groups."""
    words = [name.rpartition(".")[2] for name in keys] or ["data"]
    number = zlib.crc32(json.dumps([keys, data]).encode()) & 0xFFFF
    return f"{file_name('-'.join(words)[:_LONGEST_SLUG])}-{number:04x}"


def file_name(text: str) -> str:
    """`text` as the name of a file, without its ending.

    If more than dots had to be replaced, a checksum keeps the name unlike others.
    """
    wanted = text.replace(".", "-")
    name = re.sub(r"[^\w=-]+", "-", wanted, flags=re.ASCII)[:_LONGEST_NAME]
    if name == wanted:
        return name
    return f"{name}-{zlib.crc32(text.encode(errors='replace')) & 0xFFFF:04x}"


def _data_title(row: Row) -> str:
    return _LRA_DATA_TITLE if row.data in LRA_DATA else row.data


def _data_of_the_table(rows: list[Row]) -> dict[str, set[str]]:
    """By task, the marks of data whose rows fill cells of the table."""
    chosen: dict[str, set[str]] = {}
    for task in {row.task for row in rows}:
        of_task = [row for row in rows if row.task == task and changes.is_table3(row)]
        # Failed runs count only if there are no others.
        marks = Counter(row.data for row in [row for row in of_task if row.final] or of_task)
        chosen[task] = set(LRA_DATA)
        if marks and not chosen[task] & set(marks):
            chosen[task] = {marks.most_common(1)[0][0]}
    return chosen


def _make(
    slug: str,
    setting: str,
    rows: list[Row],
    keys: tuple[str, ...] = (),
    other: str = "",
    *,
    is_table3: bool = False,
) -> Group:
    """A group of rows that change the same `keys`; its title ends with `other`, if anything."""
    tasks = _in_order({row.task for row in rows})
    if is_table3:
        tasks = (*TASKS, *(task for task in tasks if task not in TASKS))
    # If any line of an attention changes an option, all of its lines show it.
    varying = {} if is_table3 else dict.fromkeys(changes.varying(rows))
    shown: dict[str, dict[str, None]] = defaultdict(varying.copy)
    for row in rows:
        shown[row.attention].update(dict.fromkeys(changes.options(row)))
    lines: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        lines[row.attention, str(changes.values(row, shown[row.attention]))].append(row)
    if is_table3:
        for attention in PUBLISHED:
            lines.setdefault((attention, "{}"), [])
    made = [
        Line(
            attention,
            changes.values(members[0], shown[attention]) if members else {},
            {task: cells(row for row in members if row.task == task) for task in tasks},
        )
        for (attention, _), members in lines.items()
    ]
    if not is_table3 and len(tasks) == 1 and len({line.attention for line in made}) == len(made):
        made.sort(key=lambda line: _rank(line.cells[tasks[0]]))
    else:
        made.sort(key=_order)
    formats = _number_formats(rows)
    lines_of_table, apart = zip(*(_divide(line, formats) for line in made), strict=True)
    apart = tuple(line for line in apart if line.cells)
    title = _TITLE_OF_TABLE if is_table3 else _title(made, tasks, keys, other)
    return Group(slug, title, setting, is_table3, tasks, lines_of_table, apart, formats)


def _title(lines: list[Line], tasks: tuple[str, ...], keys: tuple[str, ...], other: str) -> str:
    """`Other settings: Performer on ListOps, epsilon, learning_rate and 3 more, other data`."""
    attentions = {line.attention for line in lines}
    who = (
        f"{len(attentions)} attentions"
        if len(attentions) > 1
        else attention_title(lines[0].attention)
    )
    where = f"{len(tasks)} tasks" if len(tasks) > 1 else task_title(tasks[0])
    options = (name for line in lines for name in line.options)
    changed = list(changes.short_names((*options, *keys)).values())
    named = [", ".join(changed[:2]) + f" and {len(changed) - 2} more" * (len(changed) > 2)]
    return ", ".join(filter(None, [f"Other settings: {who} on {where}", *named, other]))


def _number_formats(rows: list[Row]) -> tuple[str, ...]:
    """The formats of the rows, the one with most results first; if equal, float32."""
    results = Counter({number_format_of(row): 0 for row in rows})
    results.update(number_format_of(row) for row in rows if row.status == "ok")
    return tuple(sorted(results, key=lambda name: (-results[name], name != FLOAT32, name)))


def _divide(line: Line, formats: tuple[str, ...]) -> tuple[Line, Line]:
    """A line in two: one number format for each place, and the cells in other formats.

    A place shows the first of `formats` in which it has a result.
    """
    shown, apart = {}, {}
    for task, parts in line.cells.items():
        ranked = sorted(parts, key=lambda cell: (not cell.ok, formats.index(number_format(cell))))
        chosen = number_format(ranked[0]) if ranked else ""
        shown[task] = [cell for cell in parts if number_format(cell) == chosen]
        others = [cell for cell in parts if number_format(cell) != chosen]
        if others:
            apart[task] = others
    return (
        dataclasses.replace(line, cells=shown),
        dataclasses.replace(line, cells=apart),
    )


def _in_order(tasks: Iterable[str]) -> tuple[str, ...]:
    order = [*TASKS, *(task for task in ALL_TASKS if task not in TASKS)]
    return tuple(sorted(tasks, key=lambda task: (order.index(task) if task in order else 99, task)))


def _rank(parts: list[Cell]) -> float:
    """Sort key: the best accuracy first."""
    found = parts[0].stat() if parts else None
    return -found.mean if found else 0.0


def _order(line: Line) -> tuple:
    """Sort key: by attention, then by the values of the options."""
    return attention_order(line.attention), [value_order(v) for v in line.options.values()]
