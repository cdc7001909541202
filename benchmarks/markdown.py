"""Tables in Markdown, line by line, since a command prints each row once it is measured."""

from collections.abc import Iterable, Sequence


def line(cells: Iterable[str]) -> str:
    """Return a row, which may have fewer cells than the header."""
    return f"| {' | '.join(cells)} |"


def header(titles: Sequence[str]) -> str:
    """Return the row of titles and the rule below it."""
    return f"{line(titles)}\n|{'---|' * len(titles)}"
