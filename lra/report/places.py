"""The text of one place in a table: a mean accuracy, an average, or a difference, with marks."""

from collections.abc import Iterable, Sequence

from lra.report.cells import (
    Cell,
    Stat,
    average,
    differences,
    number_formats,
    seeds,
)
from lra.report.groups import LRA_DATA
from lra.report.noise import mark_of_noise, noise
from lra.report.notes import OTHER_DATA

MISSING = "–"


def percent(found: Stat | None) -> str:
    """`37.10 ± 0.42`, `37.10` for one value, `–` for none."""
    if found is None:
        return MISSING
    text = f"{100 * found.mean:.2f}"
    return text if found.std is None else f"{text} ± {100 * found.std:.2f}"


def average_text(five: Sequence[Cell], field: str, usual: str) -> str:
    """The mean over five cells, with the marks that any of them has.

    Args:
        five: the cells; empty if there is no average.
        field: of their rows.
        usual: the number format that needs no label.
    """
    if not five:
        return MISSING
    label = number_formats(five, usual)
    text = f"{percent(average(five, field))} ({seeds(five)}){mark_of_data(five)}"
    return f"{text} [{label}]" if label else text


def mark_of_data(parts: Iterable[Cell]) -> str:
    """The mark of other data if the data of any of the cells are not LRA's, else nothing."""
    return OTHER_DATA if any(part.rows[0].data not in LRA_DATA for part in parts) else ""


def place_text(parts: list[Cell], field: str, usual: str | None, *, marked: bool) -> str:
    """The text of one place: its cell, or several with labels that tell them apart.

    Args:
        parts: the cells.
        field: of their rows.
        usual: the number format that needs no label; None to label each.
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
    """`37.15 (+0.05)▲`: a published accuracy (%) and, in brackets, ours minus it.

    After the difference come missing seeds and unusual number formats; after the bracket a mark if
    the difference is more than chance.

    Args:
        published: accuracy, or average.
        ours: the cell, the five of an average, or none.
        usual: the number format that needs no label.
    """
    other_data = mark_of_data(ours)
    if other_data or not ours:
        return f"{published:.2f}{other_data}"
    number = seeds(ours)
    # A plain number of seeds is in the table of accuracies already.
    told = ["" if number.isdigit() else number, number_formats(ours, usual)]
    difference = 100 * average(ours).mean - published
    of_noise = mark_of_noise(difference / 100, noise(ours))
    return f"{published:.2f} ({', '.join(filter(None, [f'{difference:+.2f}', *told]))}){of_noise}"
