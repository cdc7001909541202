"""Tables as Markdown and LaTeX."""

import html
import re
from collections import Counter
from collections.abc import Iterable

from lra.report.sections import Section
from lra.report.tables import Table

# What Markdown, with the extensions of GitHub, would read as markup; signs that are none where
# they stand (`a_b`, `(~3.61×)`, `x < 3`) stay readable.
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

# Signs that stand for another in LaTeX depending on what is around them.
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
# LaTeX ends with an error where 18 of them have found no place.
_MOST_FLOATS = 15
# A box as wide as what is in it, but no wider than the text.
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def document(sections: list[Section], sources: str, summary: str = "") -> str:
    """All sections as one Markdown document; it finds the figures in `figures/`."""
    origin = f"Rendered by `python -m lra.report` from {_markdown(sources)}."
    lines = ["# Results", "", *([_markdown(summary), ""] if summary else []), origin, ""]
    if len(sections) > 1:
        lines += [*_contents([section.title for section in sections]), ""]
    for section in sections:
        lines += [f"## {_markdown(section.title)}", ""]
        lines += [_markdown(section.legend), ""] if section.legend else []
        before, behind = section.around_figures
        lines += map(_section_of, before)
        for figure in section.figures:
            image = f"![{_label(figure.title)}](figures/{figure.name}.png)"
            lines += [image, "", _markdown(figure.caption), ""]
        lines += map(_section_of, behind)
    return "\n".join(lines)


def _contents(titles: list[str]) -> Iterable[str]:
    """A list of links; GitHub numbers headings of one name."""
    before: Counter[str] = Counter()
    for title in titles:
        anchor = _anchor(title)
        number = f"-{before[anchor]}" if before[anchor] else ""
        before[anchor] += 1
        yield f"- [{_label(title)}](#{anchor}{number})"


def _anchor(title: str) -> str:
    """What GitHub names a heading: its letters, digits and hyphens, spaces as hyphens."""
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _section_of(table: Table) -> str:
    lines = [f"### {_markdown(table.title)}", "", _markdown(table.caption), "", plain(table)]
    if table.folded:
        # Between blank lines Markdown goes on inside the element.
        lines[0] = f"<details><summary>{html.escape(table.title)}</summary>"
        lines += ["</details>", ""]
    return "\n".join(lines)


def plain(table: Table) -> str:
    """Header, lines and notes as a pipe table that reads well as it is."""
    is_text = table.text_columns()
    cells = [list(map(_markdown, line)) for line in (table.header, *table.lines)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for text, width in zip(is_text, widths, strict=True)
    ]
    lines = [_pipe(line, widths, is_text) for line in (cells[0], rule, *cells[1:])]
    for note in table.notes:
        lines += ["", _markdown(note)]
    return "\n".join([*lines, ""])


def latex_of_all(sections: list[Section]) -> str:
    """The tables of all sections; those of each are printed before the next begins.

    Of several sections each has its heading, and whatever legend it has.
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
    """A `table` environment that needs the packages booktabs, amssymb and graphicx."""
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
            _ampersand(table.header),
            r"\midrule",
            *map(_ampersand, table.lines),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _pipe(cells: Iterable[str], widths: list[int], is_text: list[bool]) -> str:
    padded = [
        cell.ljust(width) if text else cell.rjust(width)
        for cell, width, text in zip(cells, widths, is_text, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _ampersand(cells: Iterable[str]) -> str:
    line = " & ".join(map(_escape, cells))
    # What stands before it, `\\` or a rule, would take these as its own.
    start = "{}" if line.lstrip().startswith(("[", "*")) else ""
    return rf"{start}{line} \\"


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line as tables need it."""
    return _IN_TEXT.sub(r"\\\g<0>", text.replace("\n", " "))


def _label(text: str) -> str:
    """The same inside the brackets of a link or an image."""
    return _IN_LABEL.sub(r"\\\g<0>", text)


def _escape(text: str) -> str:
    for pattern, sign in _TYPOGRAPHIC:
        text = pattern.sub(sign, text)
    return "".join(_LATEX.get(character, character) for character in text)
