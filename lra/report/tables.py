"""Tables of a group."""

import dataclasses
import math
from collections import defaultdict

from lra.report.cells import task_title
from lra.report.cost_table import cost_table
from lra.report.groups import Group
from lra.report.lines import Line
from lra.report.notes import OTHER_DATA, OTHER_FORMATS, notes, on_averages, on_choice, on_other_data
from lra.report.places import average_text, place_text
from lra.report.published_tables import published_table, reruns_table
from lra.report.table import Table
from lra.row import Row


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


def tables(group: Group) -> list[Table]:
    """Return all tables of a group.

    Those are accuracies, published ones (validation accuracies if it is not the paper's table),
    costs and seeds without a result.
    """
    # The first caption also describes the section.
    first = _accuracy_table(group, _SELECTED)
    result = [first._replace(caption=" ".join(filter(None, [group.setting, first.caption])))]
    if group.is_table3:
        result += [published_table(group), reruns_table()]
    result.append(_accuracy_table(group, _LAST))
    if not group.is_table3 and any(c.stat(_VALIDATION.field) for _, _, c in group.all_cells()):
        result.append(_validation_table(group))
    details = (_other_formats_table(group), cost_table(group), _unfinished_table(group))
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
