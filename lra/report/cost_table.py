"""Table of what the trainings of a group cost."""

from collections.abc import Callable

from lra.report.cells import Cell, task_title
from lra.report.groups import Group
from lra.report.notes import OTHER_DATA, on_other_data
from lra.report.places import MISSING, mark_of_data
from lra.report.provenance import Program
from lra.report.table import Table


def cost_table(group: Group) -> Table:
    """Return the table of costs, a line per program; without lines if none are known."""
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
