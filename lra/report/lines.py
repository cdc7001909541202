"""Lines of tables: the cells of an attention by task, and the number formats shown in them."""

import dataclasses
from collections import Counter
from typing import Any

from lra.published import TABLE_TASKS
from lra.report.cells import Cell, attention_order, attention_title, number_format, value_order
from lra.report.provenance import FLOAT32, number_format_of
from lra.row import Row


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a table: the cells of an attention, and the options that distinguish lines.

    `names` has the short name of each option, unlike any other in the group.
    """

    attention: str
    options: dict[str, Any]
    cells: dict[str, list[Cell]]
    names: dict[str, str]

    @property
    def title(self) -> str:
        """Title of the line in the table: `Nyströmformer, num_landmarks=32`."""
        options = [f"{self.names[key]}={value}" for key, value in self.options.items()]
        return ", ".join([attention_title(self.attention), *options])

    def cell(self, task: str) -> Cell | None:
        """Return the cell of a task; None unless there is exactly one and it has a result."""
        cells = self.cells.get(task, [])
        return cells[0] if len(cells) == 1 and cells[0].ok else None

    @property
    def five(self) -> tuple[Cell, ...]:
        """The cells of the five tasks of Table 3, to average over.

        Empty unless each task has exactly one cell, with a result and without failed runs, which
        are to be repeated.
        """
        cells = tuple(cell for task in TABLE_TASKS if (cell := self.cell(task)))
        complete = len(cells) == len(TABLE_TASKS) and not any(c.number_of("failed") for c in cells)
        return cells if complete else ()


def line_order(line: Line) -> tuple:
    """Sort key for lines: by attention, then by the values of the options."""
    return attention_order(line.attention), [value_order(v) for v in line.options.values()]


def accuracy_order(cells: list[Cell]) -> float:
    """Sort key for lines with one task: the best accuracy first."""
    accuracy = cells[0].stat() if cells else None
    return -accuracy.mean if accuracy else 0.0


def number_formats(rows: list[Row]) -> tuple[str, ...]:
    """Return the rows' number formats, the one with most results first; float32 wins ties."""
    results = Counter({number_format_of(row): 0 for row in rows})
    results.update(number_format_of(row) for row in rows if row.status == "ok")
    return tuple(sorted(results, key=lambda name: (-results[name], name != FLOAT32, name)))


def split_formats(line: Line, formats: tuple[str, ...]) -> tuple[Line, Line]:
    """Split a line into cells of one number format per place, and the cells in other formats.

    A place shows the format in which it has most results, the first of `formats` if several have
    as many.
    """
    shown, apart = {}, {}
    for task, cells in line.cells.items():
        ranked = sorted(cells, key=lambda c: (-len(c.ok), formats.index(number_format(c))))
        chosen = number_format(ranked[0]) if ranked else ""
        shown[task] = [cell for cell in cells if number_format(cell) == chosen]
        others = [cell for cell in cells if number_format(cell) != chosen]
        if others:
            apart[task] = others
    return (
        dataclasses.replace(line, cells=shown),
        dataclasses.replace(line, cells=apart),
    )
