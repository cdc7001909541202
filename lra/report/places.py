"""Text of one place in a table: a mean accuracy, an average, or a difference, with marks."""

from collections.abc import Iterable, Sequence

from lra.report.cells import (
    Cell,
    Stat,
    average,
    differences,
    number_formats,
    seeds,
)
from lra.report.noise import mark_of_noise, noise
from lra.report.notes import OTHER_DATA
from lra.row import LRA_DATA

MISSING = "–"


def percent(stat: Stat | None) -> str:
    """Format a mean in percent: `37.10 ± 0.42`, `37.10` for one value, `–` for none."""
    if stat is None:
        return MISSING
    text = f"{100 * stat.mean:.2f}"
    return text if stat.std is None else f"{text} ± {100 * stat.std:.2f}"


def average_text(five: Sequence[Cell], field: str, usual: str) -> str:
    """Format the mean over five cells, with the marks that any of them has.

    Args:
        five: Cells to average; empty if there is no average.
        field: Field of the rows to average.
        usual: Number format that needs no label.
    """
    if not five:
        return MISSING
    label = number_formats(five, usual)
    text = f"{percent(average(five, field))} ({seeds(five)}){mark_of_data(five)}"
    return f"{text} [{label}]" if label else text


def mark_of_data(cells: Iterable[Cell]) -> str:
    """Return the mark of other data if any cell's data are not LRA's, else an empty string."""
    return OTHER_DATA if any(cell.rows[0].data not in LRA_DATA for cell in cells) else ""


def place_text(cells: list[Cell], field: str, usual: str | None, *, marked: bool) -> str:
    """Format one place of a table: its cell, or several with labels that distinguish them.

    Args:
        cells: Cells of the place.
        field: Field of the rows to show.
        usual: Number format that needs no label; None to label each.
        marked: Whether to mark data that are not LRA's.
    """
    if not cells:
        return MISSING
    texts = []
    for cell, difference in zip(cells, differences(cells), strict=True):
        text, number_format = _cell(cell, field), number_formats([cell], usual)
        label = ", ".join(filter(None, (number_format, difference)))
        mark = mark_of_data([cell]) if marked else ""
        texts.append(f"{text}{mark}{f' [{label}]' if label else ''}")
    return " / ".join(texts)


def _cell(cell: Cell, field: str) -> str:
    text = percent(cell.stat(field)) if cell.ok else cell.status
    return f"{text} ({seeds([cell])})"


def difference_text(published: float, ours: Sequence[Cell], usual: str) -> str:
    """Format a published accuracy (%) and, in brackets, ours minus it: `37.15 (+0.05)▲`.

    Missing seeds and unusual number formats follow the difference; a mark follows the bracket if
    the difference is larger than chance explains.

    Args:
        published: Published accuracy, or average.
        ours: Our cell, the five cells of an average, or none.
        usual: Number format that needs no label.
    """
    other_data = mark_of_data(ours)
    if other_data or not ours:
        return f"{published:.2f}{other_data}"
    number = seeds(ours)
    # The table of accuracies already shows a plain number of seeds.
    labels = ["" if number.isdigit() else number, number_formats(ours, usual)]
    difference = 100 * average(ours).mean - published
    mark = mark_of_noise(difference / 100, noise(ours))
    return f"{published:.2f} ({', '.join(filter(None, [f'{difference:+z.2f}', *labels]))}){mark}"
