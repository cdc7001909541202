"""The tables of a group, as text in cells; how they are set is for `formats` and `page`."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lra.published import TABLE3, TASKS, TEST_EXAMPLES, XFORMERS
from lra.report.cells import (
    TITLES,
    Cell,
    Stat,
    average,
    differences,
    number_format,
    seeds,
    standard_error,
    task_title,
)
from lra.report.cells import number_formats as number_formats_of
from lra.report.groups import LRA_DATA, Group, Line
from lra.report.notes import (
    OTHER_DATA,
    commits_of,
    notes,
    number_formats,
    on_averages,
    on_number_formats,
)
from lra.row import Row

MISSING = "–"
BELOW = "‡"
ABOVE = "§"


class Table(NamedTuple):
    """A title, a line that says what the numbers are, header, lines of cells, and notes."""

    title: str
    caption: str
    header: list[str]
    lines: list[list[str]]
    notes: list[str]

    def text_columns(self) -> list[bool]:
        """Which columns hold words, to be set to the left, rather than numbers."""
        return [
            not any(line[column][:1].isdigit() for line in self.lines)
            for column in range(len(self.header))
        ]


@dataclasses.dataclass(frozen=True)
class _Accuracy:
    """What an accuracy table shows: one field of the rows."""

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


def tables(group: Group) -> list[Table]:
    """All tables of a group: accuracies, published ones beside them, costs, runs without result."""
    found = [_accuracy(group, _SELECTED)]
    if group.is_table3:
        found += [_published(group), _reruns()]
    found += [_accuracy(group, _LAST), _costs(group)]
    unfinished = _unfinished(group)
    return [*found, unfinished] if unfinished.lines else found


def percent(found: Stat | None) -> str:
    """`37.10 ± 0.42`, `37.10` for one value, `–` for none."""
    if found is None:
        return MISSING
    text = f"{100 * found.mean:.2f}"
    return text if found.std is None else f"{text} ± {100 * found.std:.2f}"


def _accuracy(group: Group, what: _Accuracy) -> Table:
    header = ["Attention", *map(task_title, group.tasks)]
    several, remarks = len(number_formats(group)) > 1, notes(group, selected=what is _SELECTED)

    def place(line: Line, task: str) -> str:
        parts = line.cells.get(task, [])
        return _place(parts, what.field, marked=group.is_table3, with_format=several)

    lines = [[line.title, *(place(line, task) for task in group.tasks)] for line in group.lines]
    if group.is_table3:
        header.append("Average")
        for line, texts in zip(group.lines, lines, strict=True):
            texts.append(_average(line.five, what.field, with_format=several))
        remarks += on_averages([texts[-1] for texts in lines])
    return Table(what.title, what.caption, header, lines, remarks)


def _average(five: Sequence[Cell], field: str, *, with_format: bool) -> str:
    """The mean over five cells, with whatever one of them is marked with."""
    if not five:
        return MISSING
    label = number_formats_of(five) if with_format else ""
    text = f"{percent(average(five, field))} ({seeds(five)}){_mark_of_data(five)}"
    return f"{text} [{label}]" if label else text


def _mark_of_data(parts: Iterable[Cell]) -> str:
    return OTHER_DATA if any(part.rows[0].data not in LRA_DATA for part in parts) else ""


def _place(parts: list[Cell], field: str, *, marked: bool, with_format: bool) -> str:
    """The text of one place: one cell, or several with what tells them apart.

    Args:
        parts: the cells.
        field: of their rows.
        marked: whether data that are not LRA's get a mark.
        with_format: whether a number format that they share is said.
    """
    if not parts:
        return MISSING
    formats = {number_format(part) for part in parts}
    told = ", ".join(formats) if with_format and len(formats) == 1 else ""
    texts = []
    for part, difference in zip(parts, differences(parts), strict=True):
        text, label = _cell(part, field), ", ".join(filter(None, (told, difference)))
        mark = _mark_of_data([part]) if marked else ""
        texts.append(f"{text}{mark}{f' [{label}]' if label else ''}")
    return " / ".join(texts)


def _cell(cell: Cell, field: str) -> str:
    if cell.ok:
        return f"{percent(cell.stat(field))} ({seeds([cell])})"
    return f"{'diverged' if cell.number_of('diverged') else 'failed'} ({seeds([cell])})"


def _published(group: Group) -> Table:
    lines, several = [], len(number_formats(group)) > 1
    for line in group.lines:
        if line.attention not in TABLE3 or line.options:
            continue
        published = TABLE3[line.attention]
        texts = [
            _difference(published[task], [cell] if cell else [], with_format=several)
            + _mark_of_noise(published[task] / 100, cell, task)
            for task, cell in ((task, line.cell(task)) for task in TASKS)
        ]
        mean = sum(published.values()) / len(TASKS)
        lines.append([line.title, *texts, _difference(mean, line.five, with_format=several)])
    remarks = ["Source: Xiong et al., arXiv 2102.03902, Table 3: single runs."]
    remarks += on_number_formats(group)
    text = "".join(cell for line in lines for cell in line)
    if OTHER_DATA in text:
        remarks.append(f"{OTHER_DATA} No difference: our data are not LRA's.")
    if BELOW in text or ABOVE in text:
        remarks.append(
            f"{BELOW} below, {ABOVE} above the published value by more than two standard "
            "deviations: binomial noise of the test sets, and our spread over seeds, once for the "
            "published run and once for our mean. Of one seed, whose spread is unknown, the noise "
            "alone."
        )
    header = ["Attention", *map(task_title, TASKS), "Average"]
    caption = "In percent; in brackets ours minus published."
    return Table("Published accuracy and difference", caption, header, lines, remarks)


def _difference(published: float, ours: Sequence[Cell], *, with_format: bool) -> str:
    """A published accuracy (%) and, in brackets, how far the mean over our cells is from it.

    Behind the difference stands what cells that are not like others say of themselves.
    """
    mark = _mark_of_data(ours)
    if mark or not ours:
        return f"{published:.2f}{mark}"
    number, formats = seeds(ours), number_formats_of(ours) if with_format else ""
    # A number alone is in the table of accuracies.
    told = ["" if number.isdigit() else number, formats]
    difference = f"{100 * average(ours).mean - published:+.2f}"
    return f"{published:.2f} ({', '.join(filter(None, [difference, *told]))})"


def _mark_of_noise(published: float, cell: Cell | None, task: str) -> str:
    """Whether a cell is further from a published fraction than two such runs differ by chance."""
    if cell is None or _mark_of_data([cell]):
        return ""
    difference = cell.stat().mean - published
    if abs(difference) <= 2 * standard_error(cell, published, TEST_EXAMPLES[task]):
        return ""
    return BELOW if difference < 0 else ABOVE


def _reruns() -> Table:
    lines = [
        [
            TITLES[name],
            *(f"{values[task]:.2f}" for task in TASKS),
            f"{sum(values.values()) / len(TASKS):.2f}",
        ]
        for name, values in XFORMERS.items()
    ]
    header = ["Attention", *map(task_title, TASKS), "Average"]
    caption = "In percent; how far two runs of the published code lie apart."
    notes = [
        "Source: facebookresearch/xformers, BENCHMARKS.md; ListOps trained for longer, 128 "
        "landmarks, Linformer at a quarter of the length."
    ]
    return Table("The published code run again by others", caption, header, lines, notes)


def _costs(group: Group) -> Table:
    header = [
        "Task",
        "Attention",
        "Parameters",
        "Examples/s",
        "Minutes",
        "Peak MB",
        "Seeds together",
        "Device",
        "Commit",
    ]
    lines = []
    for task in group.tasks:
        for line in group.lines:
            for cell in line.cells.get(task, []):
                # Seeds trained in different company or places have different costs.
                for place in dict.fromkeys(map(_program, cell.rows)):
                    part = Cell(tuple(row for row in cell.rows if _program(row) == place))
                    if part.rows[0].final:
                        lines.append([task_title(task), line.title, *_cost(part, *place)])
    caption = (
        "Training examples per second over all seeds trained together in one program; minutes of "
        "wall clock and peak memory of that program, evaluation and compilation included."
    )
    return Table("Cost", caption, header, lines, [])


def _program(row: Row) -> tuple:
    return row.device or MISSING, row.num_devices, row.seeds_in_program, row.dtype, commits_of(row)


def _cost(
    part: Cell, device: str, devices: int | None, seeds: int | None, dtype: str, commit: str
) -> list[str]:
    seconds = part.median("wall_seconds")
    many = f"{devices} x " if (devices or 1) > 1 else ""
    return [
        number(part.median("params")),
        number(part.median("examples_per_second")),
        MISSING if seconds is None else f"{seconds / 60:,.1f}",
        number(part.median("peak_memory_mb")),
        number(seeds),
        f"{many}{device}, {dtype}",
        commit,
    ]


def number(value: float | None) -> str:
    """`12,345`, two digits below ten, `–` for None."""
    if value is None:
        return MISSING
    return f"{value:,.2g}" if value < 10 and value != int(value) else f"{value:,.0f}"


def _diverged(row: Row) -> str:
    at = "" if row.diverged_step is None else f" at step {row.diverged_step:,}"
    return f"diverged{at}"


def _unfinished(group: Group) -> Table:
    lines = [
        [
            task_title(task),
            line.title,
            str(row.seed),
            row.error or _diverged(row),
        ]
        for line, task, cell in group.all_cells()
        for row in cell.rows
        if row.status != "ok"
    ]
    header = ["Task", "Attention", "Seed", "What happened"]
    return Table("Seeds without a result", "They are in no mean.", header, lines, [])
