"""Tables as Markdown and LaTeX, cells as CSV."""

import csv
import io
from collections.abc import Iterable

from lra.published import TABLE3
from lra.report.cells import Cell
from lra.report.figures import Figure
from lra.report.groups import LRA_DATA, Group
from lra.report.tables import Table
from lra.row import STATUSES

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"\S{}",
    "×": r"$\times$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "ö": r"\"o",
    ">": r"$>$",
    "<": r"$<$",
}

# What a line of CSV takes from the rows as it is, and what it says by mean or median.
_SHARED = ("protocol", "data", "task", "attention", "dtype", "matmul_precision", "steps")
_PROGRAM = ("seeds_in_program", "device", "num_devices")
_ACCURACIES = ("test_accuracy", "test_accuracy_last", "val_accuracy")
_COSTS = ("params", "examples_per_second", "wall_seconds", "peak_memory_mb")
_CSV_HEADER = (
    "group",
    *_SHARED,
    "options",
    *(f"seeds_{status}" for status in STATUSES),
    *(f"{field}_{what}" for field in _ACCURACIES for what in ("mean", "std")),
    "published",
    "difference",
    *_COSTS,
    *_PROGRAM,
)


def document(sections: list[tuple[str, list[Table], list[Figure]]], sources: str) -> str:
    """All sections as one Markdown document; it finds the figures in `figures/`."""
    lines = ["# Results", "", f"Rendered by `python -m lra.report` from {sources}.", ""]
    for title, tables, figures in sections:
        lines += [f"## {title}", ""]
        lines += map(_section_of, tables[:1])
        for figure in figures:
            lines += [f"![{figure.caption}](figures/{figure.name}.png)", "", figure.caption, ""]
        lines += map(_section_of, tables[1:])
    return "\n".join(lines)


def _section_of(table: Table) -> str:
    return "\n".join([f"### {table.title}", "", table.caption, "", plain(table)])


def plain(table: Table) -> str:
    """Header, lines and notes as a pipe table that reads well as it is."""
    is_text = table.text_columns()
    columns = list(zip(table.header, *table.lines, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for text, width in zip(is_text, widths, strict=True)
    ]
    lines = [_pipe(cells, widths, is_text) for cells in (table.header, rule, *table.lines)]
    for note in table.notes:
        lines += ["", note]
    return "\n".join([*lines, ""])


def latex(table: Table) -> str:
    """A `table` environment that needs the package booktabs."""
    columns = "".join("l" if text else "r" for text in table.text_columns())
    caption = " ".join([f"{table.title}.", table.caption, *table.notes])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escape(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _ampersand(table.header),
            r"\midrule",
            *map(_ampersand, table.lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def as_csv(groups: Iterable[Group]) -> str:
    """One line a cell, with all its numbers; accuracies are fractions."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV_HEADER, lineterminator="\n")
    writer.writeheader()
    for group in groups:
        for line, _, cell in group.all_cells():
            writer.writerow(_facts(group, cell) | {"options": str(line.options or "")})
    return text.getvalue()


def _facts(group: Group, cell: Cell) -> dict[str, object]:
    row = (cell.ok or cell.rows)[0]
    facts: dict[str, object] = {name: getattr(row, name) for name in _SHARED + _PROGRAM}
    facts |= {f"seeds_{status}": cell.number_of(status) for status in STATUSES}
    for field in _ACCURACIES:
        found = cell.stat(field)
        if found:
            facts[f"{field}_mean"] = round(found.mean, 6)
            facts[f"{field}_std"] = None if found.std is None else round(found.std, 6)
    facts |= {field: cell.median(field) for field in _COSTS}
    published = TABLE3.get(row.attention, {}).get(row.task) if group.is_table3 else None
    if published is not None:
        facts["published"] = published / 100
        if "test_accuracy_mean" in facts and row.data in LRA_DATA:
            facts["difference"] = round(facts["test_accuracy_mean"] - published / 100, 6)
    return facts | {"group": group.slug}


def _pipe(cells: Iterable[str], widths: list[int], is_text: list[bool]) -> str:
    padded = [
        cell.replace("|", "/").ljust(width) if text else cell.rjust(width)
        for cell, width, text in zip(cells, widths, is_text, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _ampersand(cells: Iterable[str]) -> str:
    return " & ".join(map(_escape, cells)) + r" \\"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
