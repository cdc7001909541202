"""Notes on accuracies: those under the tables, and the first paragraph of a report."""

from collections import defaultdict
from collections.abc import Iterable

from lra.published import LRA_TASKS, TABLE3, TABLE_TASKS
from lra.report.cells import number_format, task_title
from lra.report.changes import is_table3
from lra.report.groups import Group
from lra.report.lines import Line
from lra.report.provenance import FLOAT32, platform_of
from lra.row import LRA_DATA, Row

OTHER_DATA = "†"
OTHER_FORMATS = "Other number formats"
# Start of the mark that `lra.data.listops` gives to data generated with other lengths.
_SHORTER = "differs (lengths"
# How `lra.data` generates examples of LRA's tasks; for a user's own task there are no released
# examples to tell them from.
_BY_ITS_PARAMETERS = (
    "drawn here by the generator's published parameters (LRA's intensities and number of "
    "distractors are inferred)"
)
_DRAWN_ANEW = {
    "listops": "drawn here from its distribution",
    "pathfinder": _BY_ITS_PARAMETERS,
    "pathx": _BY_ITS_PARAMETERS,
}


def notes(group: Group, *, selected: bool) -> list[str]:
    """Return the notes needed to read an accuracy table.

    Args:
        group: Group of the table.
        selected: Whether the accuracies are those of the best parameters on the validation set.
    """
    rows = [row for _, _, cell in group.all_cells() for row in cell.rows]
    texts = [*_on_comparability(group), *_on_generated_data(rows), *on_number_formats(group)]
    if any(row.status != "ok" for row in rows):
        texts.append("n of m seeds: the others diverged or failed and are in no mean.")
    if selected:
        texts += [
            f"{task_title(task)}: validation = test, as LRA has it: the parameters were chosen on "
            "the test set."
            for task in dict.fromkeys(row.task for row in rows if row.val_is_test)
        ]
        texts += _on_chance({row.data for row in rows if row.task == "listops"})
    return texts


def on_choice(group: Group) -> list[str]:
    """Name the tasks whose validation accuracies are of the test set, so choose nothing."""
    rows = [row for _, _, cell in group.all_cells() for row in cell.rows if row.val_is_test]
    return [
        f"{task_title(task)}: validation = test, as LRA has it: to choose by these is to choose on "
        "the test set, and none is in bold (--config.data.holdout=0.1 validates on a tenth of the "
        "training set instead)."
        for task in dict.fromkeys(row.task for row in rows)
    ]


def on_averages(group: Group, texts: list[str]) -> list[str]:
    """Explain the averages of a table, and why a line with five filled cells has none.

    Args:
        group: Group of the table.
        texts: Averages as shown; only what occurs in them is explained.
    """
    remarks = []
    if any("±" in text for text in texts):
        remarks.append(
            "Average: ± is sqrt(s1^2 + ... + s5^2) / 5 of the five cells' standard deviations, "
            "that of an average over single runs; none where a cell has one seed."
        )
    if any(" to " in text for text in texts):
        remarks.append("k to n: the least and the most seeds of the five cells.")
    if any("runs" in text for text in texts):
        remarks.append("n of m runs: seeds of some of the five cells diverged, and are in no mean.")
    return remarks + [
        f"{line.title} has no average: {', '.join(reasons)}."
        for line in group.lines
        if all(line.cells.get(task) for task in TABLE_TASKS) and (reasons := _why_no_average(line))
    ]


def _why_no_average(line: Line) -> list[str]:
    """Return why a line with five filled places has no average; empty if it has one."""
    reasons = []
    for task in TABLE_TASKS:
        cell = line.cell(task)
        if len(line.cells[task]) > 1:
            reasons.append(f"seeds of {task_title(task)} differ")
        elif cell is None:
            reasons.append(f"no result on {task_title(task)}")
        elif cell.number_of("failed"):
            reasons.append(f"a failed seed of {task_title(task)} is to be tried again")
    return reasons


def _on_comparability(group: Group) -> list[str]:
    if group.is_table3:
        return on_other_data(group)
    if not set(group.tasks) & set(LRA_TASKS):
        return []
    if any(group.data_of(task) for task in group.tasks):
        return ["These are not LRA numbers: the data are others."]
    exceptions = _lines_of_table3(group)
    exception_note = f", except that of {'; '.join(exceptions)}" if exceptions else ""
    return [f"Not comparable with Table 3: the protocol is another{exception_note}."]


def _lines_of_table3(group: Group) -> list[str]:
    """Name the lines of a sweep that are cells of Table 3, with their tasks if not all are."""
    titles = []
    for line in (*group.lines, *group.apart):
        filled = {task: parts for task, parts in line.cells.items() if parts}
        tasks = [
            task_title(task)
            for task, parts in filled.items()
            if all(is_table3(row) for cell in parts for row in cell.rows)
        ]
        if tasks:
            where = f" on {', '.join(tasks)}" if len(tasks) < len(filled) else ""
            titles.append(f"{line.title}{where}")
    return list(dict.fromkeys(titles))


def on_other_data(group: Group) -> list[str]:
    """Explain the mark of other data in a table."""
    marks = {task: group.data_of(task) for task in group.tasks}
    return [
        f"{OTHER_DATA} {task_title(task)} on other data: {'; '.join(task_marks)}."
        for task, task_marks in marks.items()
        if task_marks
    ]


def _on_generated_data(rows: list[Row]) -> list[str]:
    generated = [row for row in rows if row.data == "generated"]
    return [
        f"{task_title(task)}: as many examples as LRA has, {_DRAWN_ANEW[task]}, not the released "
        "ones."
        for task in dict.fromkeys(row.task for row in generated)
        if task in _DRAWN_ANEW
    ]


def on_number_formats(group: Group, whose: str = "") -> list[str]:
    """Name the number format of cells that do not name theirs, and where others are shown.

    Args:
        group: Group of the table.
        whose: `Ours` in a table that also has published numbers.
    """
    usual = group.number_formats[0]
    shown = {number_format(cell) for line in group.lines for c in line.cells.values() for cell in c}
    texts = []
    if usual != FLOAT32:
        text = f"all in {usual}." if shown == {usual} else f"in {usual} where nothing else is said."
        text = f"{whose} {text}".strip()
        texts.append(text[0].upper() + text[1:])
    if group.apart:
        texts.append(
            "Where a cell has results in several number formats, those in the format with the most "
            f"seeds are shown ({' before '.join(group.number_formats)} in a tie); the others are "
            f"in the table '{OTHER_FORMATS}'."
        )
    return texts


def _on_chance(data: set[str]) -> list[str]:
    """State the accuracy of guessing on ListOps (measured on generated expressions).

    On other lengths it is not known here: it depends on all of the generator's parameters.
    """
    if data.intersection(LRA_DATA):
        return [
            "ListOps: the most frequent class is right in 17.0 %, the best guess from the root "
            "operator alone in 36.1 % of cases; in a test set of 2,000 these vary by about a point."
        ]
    if any(mark.startswith(_SHORTER) for mark in data):
        return [
            "ListOps: python -m lra.data.inspect listops --data_dir=DIR, with the folder of these "
            "data, prints how often guessing is right: by the most frequent class, and by the root "
            "operator."
        ]
    return []


def summary(groups: Iterable[Group]) -> str:
    """Return the first paragraph: number of cells of Table 3 with results, data and devices.

    Empty if no row belongs to Table 3.
    """
    table = next((group for group in groups if group.is_table3), None)
    if table is None:
        return ""
    places = [
        [cell for cell in line.cells.get(task, []) if cell.ok]
        for line in table.lines
        for task in TABLE_TASKS
        if line.attention in TABLE3
    ]
    filled = [cells for cells in places if cells]
    text = f"Cells of Table 3 with results: {len(filled)} of {len(TABLE3) * len(TABLE_TASKS)}"
    if not filled:
        return f"{text}."
    seeds = sorted(len({row.seed for cell in cells for row in cell.ok}) for cells in filled)
    number = f"{seeds[0]}" if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]}"
    rows = [row for cells in filled for cell in cells for row in cell.ok]
    tasks_by_data: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        tasks_by_data[row.data][task_title(row.task)] = None
    data = "; ".join(f"{mark} ({', '.join(tasks)})" for mark, tasks in tasks_by_data.items())
    devices = "; ".join(dict.fromkeys(platform_of(row).title for row in rows))
    seeds_per_cell = f"of {number} seed{'' if number == '1' else 's'} each"
    return f"{text}, {seeds_per_cell}. Data: {data}. Devices: {devices}."
