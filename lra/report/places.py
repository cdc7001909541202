"""The text of one place in a table of accuracies: a mean with its marks, or a difference."""

from collections.abc import Iterable, Sequence

from lra.published import TEST_EXAMPLES
from lra.report.cells import (
    Cell,
    Stat,
    average,
    differences,
    number_formats,
    seeds,
    standard_error,
)
from lra.report.groups import LRA_DATA
from lra.report.notes import OTHER_DATA

MISSING = "–"
BELOW = "‡"
ABOVE = "§"


def percent(found: Stat | None) -> str:
    """`37.10 ± 0.42`, `37.10` for one value, `–` for none."""
    if found is None:
        return MISSING
    text = f"{100 * found.mean:.2f}"
    return text if found.std is None else f"{text} ± {100 * found.std:.2f}"


def average_text(five: Sequence[Cell], field: str, usual: str) -> str:
    """The mean over five cells, with whatever one of them is marked with.

    Args:
        five: the cells; none where there is no average.
        field: of their rows.
        usual: the number format that is not said.
    """
    if not five:
        return MISSING
    label = number_formats(five, usual)
    text = f"{percent(average(five, field))} ({seeds(five)}){mark_of_data(five)}"
    return f"{text} [{label}]" if label else text


def mark_of_data(parts: Iterable[Cell]) -> str:
    """The mark of a mean over cells where the data of any of them are not LRA's."""
    return OTHER_DATA if any(part.rows[0].data not in LRA_DATA for part in parts) else ""


def place_text(parts: list[Cell], field: str, usual: str | None, *, marked: bool) -> str:
    """The text of one place: one cell, or several with what tells them apart.

    Args:
        parts: the cells.
        field: of their rows.
        usual: the number format that is not said; None to say each.
        marked: whether data that are not LRA's get a mark.
    """
    if not parts:
        return MISSING
    texts = []
    for part, difference in zip(parts, differences(parts), strict=True):
        text, told = _cell(part, field), number_formats([part], usual)
        label = ", ".join(filter(None, (told, difference)))
        mark = mark_of_data([part]) if marked else ""
        texts.append(f"{text}{mark}{f' [{label}]' if label else ''}")
    return " / ".join(texts)


def _cell(cell: Cell, field: str) -> str:
    text = percent(cell.stat(field)) if cell.ok else cell.status
    return f"{text} ({seeds([cell])})"


def difference_text(published: float, ours: Sequence[Cell], usual: str) -> str:
    """A published accuracy (%) and, in brackets, how far the mean over our cells is from it.

    Behind the difference stands what cells that are not like others say of themselves.
    """
    mark = mark_of_data(ours)
    if mark or not ours:
        return f"{published:.2f}{mark}"
    number = seeds(ours)
    # A number alone is in the table of accuracies.
    told = ["" if number.isdigit() else number, number_formats(ours, usual)]
    difference = f"{100 * average(ours).mean - published:+.2f}"
    return f"{published:.2f} ({', '.join(filter(None, [difference, *told]))})"


def mark_of_noise(published: float, cell: Cell | None, task: str) -> str:
    """Whether a cell is further from a published fraction than two such runs differ by chance."""
    if cell is None or mark_of_data([cell]):
        return ""
    difference = cell.stat().mean - published
    if abs(difference) <= 2 * standard_error(cell, published, TEST_EXAMPLES[task]):
        return ""
    return BELOW if difference < 0 else ABOVE
