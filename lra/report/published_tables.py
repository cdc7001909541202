"""Tables of published accuracies, beside which a group's own stand."""

from lra.published import TABLE3, TABLE_TASKS, XFORMERS
from lra.report.cells import TITLES, task_title
from lra.report.groups import Group
from lra.report.noise import on_marks
from lra.report.notes import OTHER_DATA, on_number_formats
from lra.report.places import difference_text
from lra.report.table import Table

_HEADER = ["Attention", *map(task_title, TABLE_TASKS), "Average"]

_SOURCES = (
    "Source: Xiong et al., arXiv 2102.03902, Table 3, which names no seeds and no spread.",
    "ListOps: the published numbers were probably made on data without brackets (inferred: LRA's "
    "code dropped them until 4 March 2021, and the numbers were out on 14 February); ours keep "
    "them.",
)


def published_table(group: Group) -> Table:
    """Return the accuracies of Nyströmformer's Table 3, in brackets ours minus published."""
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


def reruns_table() -> Table:
    """Return the accuracies that others published of runs of their own."""
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
