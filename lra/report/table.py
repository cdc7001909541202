"""A table of texts; `formats` and `page` render it."""

from collections.abc import Callable
from typing import NamedTuple


class Table(NamedTuple):
    """A title, a caption that describes the numbers, a header, lines of cells, and notes.

    The columns with indices in `words` hold text, the others numbers. A folded table holds details:
    only its title is shown until the reader unfolds it. `bold` has line and column of the texts in
    bold.
    """

    title: str
    caption: str
    header: list[str]
    lines: list[list[str]]
    notes: list[str]
    words: tuple[int, ...] = (0,)
    folded: bool = False
    bold: frozenset[tuple[int, int]] = frozenset()

    def text_columns(self) -> list[bool]:
        """Return for each column whether it holds text, which is left-aligned."""
        return [column in self.words for column in range(len(self.header))]

    def marked_up(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the lines with escaped texts, those in bold put into `bold`, such as `**{}**`."""
        return [
            [
                bold.format(escape(text)) if (number, column) in self.bold else escape(text)
                for column, text in enumerate(line)
            ]
            for number, line in enumerate(self.lines)
        ]
