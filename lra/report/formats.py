"""Tables as Markdown and LaTeX."""

import html
import re
from collections import Counter
from collections.abc import Iterable

from lra.report.sections import Section
from lra.report.table import Table

# Characters that GitHub's Markdown would read as markup. Those without effect where they stand
# (`a_b`, `(~3.61×)`, `x < 3`) are not matched, so that the file stays readable.
_MARKUP = r"""[\\`*$|]
    | <(?=[a-zA-Z/!?])
    | &(?=\#?\w+;)
    | (?<![^\W_])_ | _(?![^\W_])
    | (?<=\S)~(?!(?<=\(~)\d)
    | (?<=\])[([]
    | \#(?=\#*$)
"""
_IN_TEXT = re.compile(_MARKUP, re.VERBOSE)
_IN_LABEL = re.compile(rf"{_MARKUP}|[][]", re.VERBOSE)

# Line breaks and other control characters: a cell is one line, and LaTeX rejects some of them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# Characters replaced in LaTeX depending on their context: minus, hyphen, quotes.
_TYPOGRAPHIC = (
    (re.compile(r"(?<![\w)\]])-(?=\d)|(?<=\d[eE])-(?=\d)"), "−"),
    (re.compile(r"-(?=-)"), "‐"),
    (re.compile(r"(?<!\w)'(?=\w)"), "‘"),
    (re.compile(r'(?<!\w)"(?=\w)'), "“"),
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "‘": "`",
    "“": "``",
    '"': "''",
    "−": "$-$",
    "‐": "-{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"\S{}",
    "▼": r"$\blacktriangledown$",
    "▲": r"$\blacktriangle$",
    "×": r"$\times$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "ö": r"\"o",
    ">": r"$>$",
    "<": r"$<$",
}
# Tables between two page breaks: LaTeX fails with 18 floats that are not yet placed.
_MOST_FLOATS = 15
# A box that shrinks a table wider than the text.
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def document(sections: list[Section], sources: str, summary: str = "") -> str:
    """Render all sections as one Markdown document that refers to files in `figures/`."""
    origin = f"Rendered by `python -m lra.report` from {_markdown(sources)}."
    lines = ["# Results", "", *([_markdown(summary), ""] if summary else []), origin, ""]
    if len(sections) > 1:
        lines += [*_contents([section.title for section in sections]), ""]
    for section in sections:
        lines += [f"## {_markdown(section.title)}", ""]
        lines += [_markdown(section.legend), ""] if section.legend else []
        before, after = section.around_figures
        lines += map(_markdown_table, before)
        for figure in section.figures:
            image = f"![{_label(figure.title)}](figures/{figure.name}.png)"
            lines += [image, "", _markdown(figure.caption), ""]
        lines += map(_markdown_table, after)
    return "\n".join(lines)


def _contents(titles: list[str]) -> Iterable[str]:
    """List links to the sections; like GitHub, number headings of the same name."""
    seen: Counter[str] = Counter()
    for title in titles:
        anchor = _anchor(title)
        number = f"-{seen[anchor]}" if seen[anchor] else ""
        seen[anchor] += 1
        yield f"- [{_label(title)}](#{anchor}{number})"


def _anchor(title: str) -> str:
    """Return GitHub's anchor of a heading: letters, digits and hyphens, spaces as hyphens."""
    kept = (letter for letter in one_line(title).lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _markdown_table(table: Table) -> str:
    lines = [f"### {_markdown(table.title)}", "", _markdown(table.caption), "", plain(table)]
    if table.folded:
        # Markdown inside an HTML element must be set off by blank lines.
        lines[0] = f"<details><summary>{html.escape(table.title)}</summary>"
        lines += ["</details>", ""]
    return "\n".join(lines)


def plain(table: Table) -> str:
    """Render header, lines and notes as a pipe table that is readable as plain text."""
    is_text = table.text_columns()
    cells = [list(map(_markdown, table.header)), *table.marked_up(_markdown, "**{}**")]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for text, width in zip(is_text, widths, strict=True)
    ]
    lines = [_markdown_row(line, widths, is_text) for line in (cells[0], rule, *cells[1:])]
    for note in table.notes:
        lines += ["", _markdown(note)]
    return "\n".join([*lines, ""])


def latex_of_all(sections: list[Section]) -> str:
    """Render the tables of all sections, with a page break between sections.

    If there are several sections, each begins with its heading and its legend.
    """
    pages = []
    for section in sections:
        for start in range(0, len(section.tables), _MOST_FLOATS):
            tables = "\n".join(map(latex, section.tables[start : start + _MOST_FLOATS]))
            opening = _opening(section) if len(sections) > 1 and start == 0 else ""
            pages.append(opening + tables)
    return "\n\\clearpage\n\n".join(pages)


def _opening(section: Section) -> str:
    paragraphs = [rf"\section*{{{_escape(section.title)}}}", _escape(section.legend)]
    return "".join(f"{text}\n\n" for text in paragraphs if text)


def latex(table: Table) -> str:
    """Render a `table` environment; it needs the packages booktabs, amssymb and graphicx."""
    columns = "".join("l" if text else "r" for text in table.text_columns())
    caption = " ".join([f"{table.title}.", table.caption, *table.notes])
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escape(caption)}}}",
            r"\vspace{1ex}",
            _SHRUNK,
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _latex_row(map(_escape, table.header)),
            r"\midrule",
            *map(_latex_row, table.marked_up(_escape, r"\textbf{{{}}}")),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _markdown_row(cells: Iterable[str], widths: list[int], is_text: list[bool]) -> str:
    padded = [
        cell.ljust(width) if text else cell.rjust(width)
        for cell, width, text in zip(cells, widths, is_text, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _latex_row(cells: Iterable[str]) -> str:
    line = " & ".join(cells)
    # After `\\` or a rule, LaTeX would read `[` or `*` as the start of an argument.
    start = "{}" if line.lstrip().startswith(("[", "*")) else ""
    return rf"{start}{line} \\"


def one_line(text: str) -> str:
    """Replace line breaks and other control characters by spaces."""
    return _CONTROL.sub(" ", text)


def _markdown(text: str) -> str:
    """Escape text so that Markdown shows it verbatim, on one line, as tables require."""
    return _IN_TEXT.sub(r"\\\g<0>", one_line(text))


def _label(text: str) -> str:
    """Escape text within the brackets of a link or an image."""
    return _IN_LABEL.sub(r"\\\g<0>", one_line(text))


def _escape(text: str) -> str:
    text = one_line(text)
    for pattern, sign in _TYPOGRAPHIC:
        text = pattern.sub(sign, text)
    return "".join(_LATEX.get(character, character) for character in text)
