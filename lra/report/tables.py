"""Tables of a group, with text in their cells; `formats` and `page` render them."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from lra.published import TABLE3, TABLE_TASKS, XFORMERS
from lra.report.cells import TITLES, Cell, task_title
from lra.report.groups import Group, Line
from lra.report.noise import on_marks
from lra.report.notes import (
    OTHER_DATA,
    OTHER_FORMATS,
    notes,
    on_averages,
    on_choice,
    on_number_formats,
    on_other_data,
)
from lra.report.places import (
    MISSING,
    average_text,
    difference_text,
    mark_of_data,
    place_text,
)
from lra.report.provenance import Program
from lra.row import Row

_HEADER = ["Attention", *map(task_title, TABLE_TASKS), "Average"]


class Table(NamedTuple):
    """A title, a caption that describes the numbers, a header, lines of cells, and notes.

    The columns with indices in `words` hold text, the others numbers. A folded table holds details:
    only its title is shown until the reader unfolds it. `bold` has line and column of the texts in
    bold.
    """

    title: str
    caption: str
    header: list[str]
    lines: list[list[str]]
    notes: list[str]
    words: tuple[int, ...] = (0,)
    folded: bool = False
    bold: frozenset[tuple[int, int]] = frozenset()

    def text_columns(self) -> list[bool]:
        """Return for each column whether it holds text, which is left-aligned."""
        return [column in self.words for column in range(len(self.header))]

    def marked_up(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the lines with escaped texts, those in bold put into `bold`, such as `**{}**`."""
        return [
            [
                bold.format(escape(text)) if (number, column) in self.bold else escape(text)
                for column, text in enumerate(line)
            ]
            for number, line in enumerate(self.lines)
        ]


@dataclasses.dataclass(frozen=True)
class _Accuracy:
    """An accuracy shown in a table: a field of the rows, with title and caption of the table."""

    field: str
    title: str
    caption: str


_SELECTED = _Accuracy(
    "test_accuracy",
    "Test accuracy",
    "In percent, with the parameters that were best on the validation set: mean ± standard "
    "deviation over seeds (their number).",
)
_LAST = _Accuracy(
    "test_accuracy_last",
    "Test accuracy without selection",
    "In percent, with the parameters after the last step: mean ± standard deviation over seeds "
    "(their number).",
)
_VALIDATION = _Accuracy(
    "val_accuracy",
    "Validation accuracy (at the selected step)",
    "In percent, with the parameters that were best on the validation set: mean ± standard "
    "deviation over seeds (their number).",
)

_SOURCES = (
    "Source: Xiong et al., arXiv 2102.03902, Table 3, which names no seeds and no spread.",
    "ListOps: the published numbers were probably made on data without brackets (inferred: LRA's "
    "code dropped them until 4 March 2021, and the numbers were out on 14 February); ours keep "
    "them.",
)


def tables(group: Group) -> list[Table]:
    """Return all tables of a group.

    Those are accuracies, published ones (validation accuracies if it is not the paper's table),
    costs and seeds without a result.
    """
    # The first caption also describes the section.
    first = _accuracy_table(group, _SELECTED)
    result = [first._replace(caption=" ".join(filter(None, [group.setting, first.caption])))]
    if group.is_table3:
        result += [_published_table(group), _reruns_table()]
    result.append(_accuracy_table(group, _LAST))
    if not group.is_table3 and any(c.stat(_VALIDATION.field) for _, _, c in group.all_cells()):
        result.append(_validation_table(group))
    details = (_other_formats_table(group), _costs_table(group), _unfinished_table(group))
    return result + [table for table in details if table.lines]


def _accuracy_table(group: Group, accuracy: _Accuracy) -> Table:
    header = ["Attention", *map(task_title, group.tasks)]
    usual, remarks = group.number_formats[0], notes(group, selected=accuracy is _SELECTED)
    lines = [_line_texts(group, line, accuracy, usual) for line in group.lines]
    if group.is_table3:
        header.append("Average")
        for line, texts in zip(group.lines, lines, strict=True):
            texts.append(average_text(line.five, accuracy.field, usual))
        remarks += on_averages(group, [texts[-1] for texts in lines])
    return Table(accuracy.title, accuracy.caption, header, lines, remarks)


def _validation_table(group: Group) -> Table:
    """Return the table to choose settings by, with the best line of each attention in bold."""
    table, bold = _accuracy_table(group, _VALIDATION), _best_places(group)
    caption = table.caption
    if bold:
        caption += (
            " Choose settings by this table, not by the test accuracies, and compare the same "
            "seeds. Of the lines of an attention whose seeds all have results the best is in bold, "
            "if these are the same seeds."
        )
    remarks = [*table.notes, *on_choice(group)]
    return table._replace(caption=caption, notes=remarks, bold=bold, folded=True)


def _best_places(group: Group) -> frozenset[tuple[int, int]]:
    """Return line and column of the best validation accuracies, of two or more of an attention.

    Where the validation set is the test set, there is nothing to choose by. A mean over fewer seeds
    than were trained is no best one: those that diverged or failed are not in it. Nor is there one
    if the lines of the attention have different seeds, or one has several cells in the column.
    """
    places = set()
    for column, task in enumerate(group.tasks, 1):
        means: dict[str, dict[int, float]] = defaultdict(dict)
        seeds: dict[str, set[frozenset[int]]] = defaultdict(set)
        for number, line in enumerate(group.lines):
            cell = line.cell(task)
            if cell is None and any(other.ok for other in line.cells.get(task, [])):
                means[line.attention][number] = math.nan
            stat = cell.stat(_VALIDATION.field) if cell else None
            if stat and not any(row.val_is_test for row in cell.rows):
                complete = len(cell.ok) == len(cell.rows)
                means[line.attention][number] = stat.mean if complete else -math.inf
                if complete:
                    seeds[line.attention].add(frozenset(row.seed for row in cell.rows))
        for attention, of_lines in means.items():
            if len(seeds[attention]) > 1 or any(map(math.isnan, of_lines.values())):
                continue
            best = max(of_lines.values())
            if len(of_lines) > 1 and best > -math.inf:
                places |= {(number, column) for number, mean in of_lines.items() if mean == best}
    return frozenset(places)


def _line_texts(group: Group, line: Line, accuracy: _Accuracy, usual: str | None) -> list[str]:
    """Return the texts of a line: its title, and one text per task."""
    cells = (line.cells.get(task, []) for task in group.tasks)
    texts = (place_text(c, accuracy.field, usual, marked=group.is_table3) for c in cells)
    return [line.title, *texts]


def _other_formats_table(group: Group) -> Table:
    """Return the table of cells that no other table of accuracies shows."""
    lines = [_line_texts(group, line, _SELECTED, None) for line in group.apart]
    caption = (
        "Cells in another number format than the other tables show in their place; they are in "
        f"no average and no difference. {_SELECTED.caption}"
    )
    header = ["Attention", *map(task_title, group.tasks)]
    marked = any(OTHER_DATA in text for line in lines for text in line)
    remarks = on_other_data(group) if marked else []
    return Table(OTHER_FORMATS, caption, header, lines, remarks)


def _published_table(group: Group) -> Table:
    lines, usual = [], group.number_formats[0]
    for line in group.lines:
        if line.attention not in TABLE3 or line.options:
            continue
        published = TABLE3[line.attention]
        texts = [
            difference_text(published[task], [cell] if cell else [], usual)
            for task, cell in ((task, line.cell(task)) for task in TABLE_TASKS)
        ]
        mean = sum(published.values()) / len(TABLE_TASKS)
        lines.append([line.title, *texts, difference_text(mean, line.five, usual)])
    remarks = [*_SOURCES, *on_number_formats(group, whose="Ours")]
    text = "".join(cell for line in lines for cell in line)
    if OTHER_DATA in text:
        remarks.append(f"{OTHER_DATA} No difference: our data are not LRA's.")
    if any(len(cells) > 1 for line in group.lines for cells in line.cells.values()):
        remarks.append("No difference where several cells stand in one place.")
    if "(" in text:
        cells = (line.cell(task) for line in group.lines for task in TABLE_TASKS)
        remarks.append(on_marks(filter(None, cells)))
    caption = "In percent; in brackets ours minus published."
    return Table("Published accuracy and difference", caption, _HEADER, lines, remarks)


def _reruns_table() -> Table:
    lines = [
        [
            TITLES[name],
            *(f"{values[task]:.2f}" for task in TABLE_TASKS),
            f"{sum(values.values()) / len(TABLE_TASKS):.2f}",
        ]
        for name, values in XFORMERS.items()
    ]
    caption = (
        "In percent; by code adapted from the published one, with settings of its own (below)."
    )
    notes = [
        "Source: facebookresearch/xformers, BENCHMARKS.md; ListOps trained for longer, 128 "
        "landmarks, Linformer at a quarter of the length, Performer's features redrawn."
    ]
    return Table("Run again by others (xFormers)", caption, _HEADER, lines, notes)


def _costs_table(group: Group) -> Table:
    header = [
        "Task",
        "Attention",
        "Parameters",
        "Examples/s",
        "Minutes",
        "Peak MB",
        "Seeds together",
        "Device",
        "JAX",
        "Commit",
    ]
    lines = [
        [_marked_title(group, task, part), line.title, *_cost_texts(part, program)]
        for line, task, program, part in group.programs()
    ]
    caption = (
        "Training examples per second over all seeds trained together in one program; minutes of "
        "wall clock and peak memory of that program, evaluation and compilation included; where a "
        "line stands for several programs, the least and the most. These runs shared their "
        "machines with other work; benchmarks.train_step compares methods better."
    )
    folded = not group.is_table3
    remarks = on_other_data(group) if any(OTHER_DATA in texts[0] for texts in lines) else []
    return Table("Cost", caption, header, lines, remarks, words=(0, 1, 7, 8, 9), folded=folded)


def _marked_title(group: Group, task: str, part: Cell) -> str:
    """Return the title of a task, in the paper's table with the mark of other data than LRA's."""
    return task_title(task) + (mark_of_data([part]) if group.is_table3 else "")


def _cost_texts(part: Cell, program: Program) -> list[str]:
    minutes = [seconds / 60 for seconds in part.known("wall_seconds")]
    return [
        number(part.median("params")),
        _span(part.known("examples_per_second"), number),
        _span(minutes, "{:,.1f}".format),
        _span(part.known("peak_memory_mb"), number),
        number(program.seeds),
        program.platform.title,
        program.platform.jax_version,
        program.commits,
    ]


def number(value: float | None) -> str:
    """Format a number: `12,345`, two significant digits below ten, `–` for None."""
    if value is None:
        return MISSING
    return f"{value:,.2g}" if value < 10 else f"{value:,.0f}"


def _span(values: list[float], format_value: Callable[[float], str]) -> str:
    """Format a range of values: `28`, `28 to 63` if they differ, `–` if there are none."""
    if not values:
        return MISSING
    return " to ".join(dict.fromkeys(map(format_value, (min(values), max(values)))))


def _diverged(row: Row) -> str:
    at = "" if row.diverged_step is None else f" at step {row.diverged_step:,}"
    return f"diverged{at}"


def _unfinished_table(group: Group) -> Table:
    lines = [
        [
            task_title(task),
            line.title,
            str(row.seed),
            _diverged(row) if row.status == "diverged" else row.error,
        ]
        for line, task, cell in group.all_cells()
        for row in cell.rows
        if row.status != "ok"
    ]
    header = ["Task", "Attention", "Seed", "What happened"]
    caption = "They are in no mean."
    return Table("Seeds without a result", caption, header, lines, [], words=(0, 1, 3))
