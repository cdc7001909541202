"""Tables as Markdown and LaTeX."""

from collections.abc import Iterable

from lra.report.figures import Figure
from lra.report.tables import Table

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


def document(sections: list[tuple[str, list[Table], list[Figure]]], sources: str) -> str:
    """All sections as one Markdown document; it finds the figures in `figures/`."""
    lines = ["# Results", "", f"Rendered by `python -m lra.report` from {sources}.", ""]
    if len(sections) > 1:
        lines += [*(f"- [{title}](#{_anchor(title)})" for title, _, _ in sections), ""]
    for title, tables, figures in sections:
        lines += [f"## {title}", ""]
        lines += map(_section_of, tables[:1])
        for figure in figures:
            lines += [f"![{figure.caption}](figures/{figure.name}.png)", "", figure.caption, ""]
        lines += map(_section_of, tables[1:])
    return "\n".join(lines)


def _anchor(title: str) -> str:
    """What GitHub names a heading: its letters, digits and hyphens, spaces as hyphens."""
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


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
