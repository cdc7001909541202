"""Groups of rows that may share a table, because protocol and data are comparable.

The first group is the paper's table: rows that follow the protocol `table3` as the present code
has it, on official or generated data; a task without such rows shows those on other data, with a
mark. Rows of other tasks than LRA's, with the defaults of their configs, are the second. All others
are grouped by the keys that they change (other than options of the attention) and by their data.
Keys whose values vary, as in a sweep, distinguish the lines of a group. A group that is a sweep
also has the rows of other groups that are points of it (`grids`): those of the first two groups
for options of an attention, and for any other key those with its default.
"""

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from lra.protocol import ATTENTION_KEYS
from lra.published import LRA_TASKS, TABLE3, TABLE_TASKS
from lra.report import changes
from lra.report.cells import Cell, attention_title, divide_into_cells, task_title
from lra.report.grids import merge_sections
from lra.report.lines import Line, accuracy_order, line_order, number_formats, split_formats
from lra.report.names import named_keys, slug_of
from lra.report.provenance import Program
from lra.row import LRA_DATA, Row
from lra.tasks import TASKS

_LRA_DATA_TITLE = " or ".join(LRA_DATA)
_TITLE_OF_TABLE = "Long Range Arena: protocol of Table 3 (Nyströmformer)"
_TITLE_OF_OWN = "Tasks beside LRA's: defaults of their configs"


@dataclasses.dataclass(frozen=True)
class Group:
    """Rows that may share a table.

    Attributes:
        slug: Name of the group in file names.
        title: Unique title of the group's section.
        setting: Sentences on what the rows change in the protocol and on their data; empty for
            the paper's table.
        is_table3: Whether this is the paper's table.
        tasks: Tasks, the columns of the table.
        lines: Lines of the table; the cells in one place share a number format.
        apart: Lines with the cells of the same places in other number formats.
        number_formats: Number formats of the rows, the one with most results first.
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
        """List every cell with its line and task, in the order of the table, `apart` last."""
        return [
            (line, task, cell)
            for line in (*self.lines, *self.apart)
            for task in self.tasks
            for cell in line.cells.get(task, [])
        ]

    def programs(self) -> Iterator[tuple[Line, str, Program, Cell]]:
        """Iterate over programs: line, task, program, and the `costly` rows that it trained.

        The costs of programs differ by device, number of seeds or code.
        """
        for task in self.tasks:
            for line in (*self.lines, *self.apart):
                for cell in line.cells.get(task, []):
                    for program, part in cell.costly.by_program.items():
                        yield line, task, program, part

    def data_of(self, task: str) -> list[str]:
        """Return the values of `Row.data` of a task that are not LRA's."""
        marks = {
            row.data for _, name, cell in self.all_cells() if name == task for row in cell.rows
        }
        return sorted(marks - set(LRA_DATA))


def group(rows: Iterable[Row]) -> list[Group]:
    """Divide rows into groups, the paper's table first."""
    rows = list(rows)
    table_data = _data_of_the_table(rows)
    table, own, members = [], [], defaultdict(list)
    for row in rows:
        if changes.is_table3(row) and row.data in table_data[row.task]:
            (table if row.task in LRA_TASKS else own).append(row)
        else:
            members[tuple(sorted(changes.of_protocol(row))), _data_title(row)].append(row)
    groups = []
    if table:
        groups.append(_make_group("table3", "", table, is_table3=True))
    if own:
        setting = f"Nothing changed from the defaults. Data: {_marks(own)}."
        made = _make_group("own-tasks", setting, own)
        groups.append(dataclasses.replace(made, title=_TITLE_OF_OWN))
    known = defaultdict(list)
    for row in table + own:
        known[_data_title(row)].append(row)
    for (keys, data), others in sorted(merge_sections(members, known, _LRA_DATA_TITLE).items()):
        only_options = not keys and data == _LRA_DATA_TITLE
        slug = "options" if only_options else slug_of(keys, data)
        setting = f"{changes.describe_changes(others)} Data: {_marks(others)}."
        other = "" if data == _LRA_DATA_TITLE else "other data"
        groups.append(_make_group(slug, setting, others, keys, other))
    return _numbered(groups)


def _marks(rows: list[Row]) -> str:
    return " and ".join(sorted({row.data for row in rows}))


def _numbered(groups: list[Group]) -> list[Group]:
    """Make titles unique by appending a number to those that an earlier group has: `... (2)`."""
    count: Counter[str] = Counter()
    result = []
    for group in groups:
        count[group.title] += 1
        number = f" ({count[group.title]})" if count[group.title] > 1 else ""
        result.append(dataclasses.replace(group, title=group.title + number))
    return result


def _data_title(row: Row) -> str:
    return _LRA_DATA_TITLE if row.data in LRA_DATA else row.data


def _data_of_the_table(rows: list[Row]) -> dict[str, set[str]]:
    """Return, by task, the values of `Row.data` whose rows fill the first two groups."""
    chosen: dict[str, set[str]] = {}
    for task in {row.task for row in rows}:
        task_rows = [row for row in rows if row.task == task and changes.is_table3(row)]
        # Failed runs count only if the task has no others.
        marks = Counter(row.data for row in [row for row in task_rows if row.final] or task_rows)
        chosen[task] = set(LRA_DATA)
        if marks and not chosen[task] & set(marks):
            chosen[task] = {marks.most_common(1)[0][0]}
    return chosen


def _make_group(
    slug: str,
    setting: str,
    rows: list[Row],
    keys: tuple[str, ...] = (),
    other: str = "",
    *,
    is_table3: bool = False,
) -> Group:
    """Build a group of rows that change the same `keys`; its title ends with `other`, if any."""
    tasks = _sort_tasks({row.task for row in rows})
    if is_table3:
        tasks = (*TABLE_TASKS, *(task for task in tasks if task not in TABLE_TASKS))
    # If any line of an attention changes an option, all of its lines show it.
    varying = {} if is_table3 else dict.fromkeys(changes.varying(rows))
    shown_keys: dict[str, dict[str, None]] = defaultdict(varying.copy)
    for row in rows:
        shown_keys[row.attention].update(dict.fromkeys(changes.options(row)))
    rows_by_line: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        rows_by_line[row.attention, str(changes.values(row, shown_keys[row.attention]))].append(row)
    if is_table3:
        for attention in TABLE3:
            rows_by_line.setdefault((attention, "{}"), [])
    names = changes.short_names((*itertools.chain.from_iterable(shown_keys.values()), *keys))
    lines = [
        Line(
            attention,
            changes.values(members[0], shown_keys[attention]) if members else {},
            {task: divide_into_cells(row for row in members if row.task == task) for task in tasks},
            names,
        )
        for (attention, _), members in rows_by_line.items()
    ]
    if not is_table3 and len(tasks) == 1 and len({line.attention for line in lines}) == len(lines):
        lines.sort(key=lambda line: accuracy_order(line.cells[tasks[0]]))
    else:
        lines.sort(key=line_order)
    formats = number_formats(rows)
    shown, apart = zip(*(split_formats(line, formats) for line in lines), strict=True)
    apart = tuple(line for line in apart if line.cells)
    title = _TITLE_OF_TABLE if is_table3 else _title(lines, tasks, keys, other)
    return Group(slug, title, setting, is_table3, tasks, shown, apart, formats)


def _title(lines: list[Line], tasks: tuple[str, ...], keys: tuple[str, ...], other: str) -> str:
    """`Other settings: Performer on ListOps, epsilon, learning_rate and 3 shared, other data`."""
    attentions = {line.attention for line in lines}
    subject = attention_title(lines[0].attention)
    if len(attentions) > 1:
        subject = f"{len(attentions)} attentions"
    where = f"{len(tasks)} tasks" if len(tasks) > 1 else task_title(tasks[0])
    options = (name for line in lines for name in line.options)
    several, names = _varying(lines), lines[0].names
    changed = [names[key] for key in dict.fromkeys((*several, *options, *keys))]
    named = named_keys(changed[: len(several)], changed[len(several) :])
    return ", ".join(filter(None, [f"Other settings: {subject} on {where}", named, other]))


def _varying(lines: list[Line]) -> list[str]:
    """List the keys whose values differ: options among the lines of an attention, others among all.

    Attentions have sizes of their own, which need not be alike.
    """
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in lines:
        for key, value in line.options.items():
            owner = line.attention if key.startswith(ATTENTION_KEYS) else ""
            values[key][owner].add(str(value))
    return [key for key, sets in values.items() if any(len(found) > 1 for found in sets.values())]


def _sort_tasks(tasks: Iterable[str]) -> tuple[str, ...]:
    order = [*TABLE_TASKS, *(task for task in TASKS if task not in TABLE_TASKS)]
    return tuple(sorted(tasks, key=lambda task: (order.index(task) if task in order else 99, task)))
