"""Notes under the tables of costs: what their marks mean, how memory was measured."""

import math
from collections.abc import Iterable

from lra.efficiency import CostRow
from lra.report.costs.ratios import SCATTER, is_measured
from lra.report.costs.sheets import Sheet, exceeds

EXTRAPOLATED = "~"
OTHER_SOURCE = "§"
OTHER_RUN = "†"
SCATTERED = "‡"

_SCATTER = (
    "The fastest and the slowest repeats of this time, or of one that this ratio rests on, differ "
    f"by more than {100 * SCATTER:.0f} % of their median."
)
_SOURCES = {
    "xla": "XLA's analysis of the compiled program",
    "device": "the device's statistics",
    "process": "the growth of the process",
}


def notes(sheet: Sheet, lines: list[list[str]], field: str) -> list[str]:
    """Return all notes of a table of absolute costs.

    Args:
        sheet: Sheet of the table.
        lines: Texts of the table's lines, each beginning with its title.
        field: Field of the rows that the table shows.
    """
    texts = _on_memory(sheet) if field == "peak_memory_mb" else []
    texts += [*_on_parts(sheet), *_on_marks(sheet, lines)]
    return [*texts, *on_unfitting(sheet, field), *_on_unsupported(sheet)]


def _on_memory(sheet: Sheet) -> list[str]:
    main = sheet.memory_source
    shown = {row.memory_source for row in _shown_rows(sheet)} - {None}
    others = shown - {main}
    texts = [f"Memory: {_SOURCES[main]}, parameters and inputs included."] if main else []
    if others:
        named = " or ".join(_SOURCES[source] for source in sorted(others))
        texts.append(
            f"{OTHER_SOURCE} From {named}. The ratio of a cell with this mark to one without is "
            f"{_by(shown)}."
        )
    return texts


def _by(sources: Iterable[str]) -> str:
    """State by which memory rows of different sources are compared."""
    any_of = " or ".join(_SOURCES[source] for source in sorted({*sources} - {"xla"}))
    return f"by {any_of}, or by XLA's analysis where that is larger"


def on_ratios(sheet: Sheet, lines: list[list[str]], field: str) -> list[str]:
    """Return the notes of a table of ratios of ours to peers.

    Args:
        sheet: Sheet of the table.
        lines: Texts of the table's lines.
        field: Field of the rows that the table compares.
    """
    sources = {row.memory_source for row in _shown_rows(sheet)} - {None}
    mixed = field == "peak_memory_mb" and len(sources) > 1
    compared = f"Ratios of memory from different sources are {_by(sources)}."
    return [*on_marks_of_ratios(lines), *([compared] if mixed else [])]


def on_marks_of_ratios(lines: list[list[str]]) -> list[str]:
    """Explain the marks of ratios, and of means of ratios, as far as a text has them."""
    meanings = {
        EXTRAPOLATED: "From what was extrapolated or estimated.",
        SCATTERED: _SCATTER,
    }
    return _explained(meanings, lines)


def _on_parts(sheet: Sheet) -> list[str]:
    """State that a model's batch was processed in parts, and in how many if known."""
    if not sheet.in_parts:
        return []
    known = {row.length: row.parts for row in _shown_rows(sheet) if row.parts}
    text = "On a CPU the batch is taken in parts"
    if known:
        numbers = ", ".join(f"{parts} at {length:,}" for length, parts in sorted(known.items()))
        text = f"The batch was taken in parts ({numbers})"
    return [
        f"{text} that fit the caches (lra/plan.py): memory is that of one part and the "
        "parameters, and tells no exponent."
    ]


def _on_marks(sheet: Sheet, lines: list[list[str]]) -> list[str]:
    ratio = f"its ratio is to {sheet.reference.title} of its own run; " if sheet.reference else ""
    meanings = {
        EXTRAPOLATED: "Extrapolated from shorter lengths, estimated, or relative to what is.",
        OTHER_RUN: f"Of another run than most cells: {ratio}do not divide it by another cell.",
        SCATTERED: _SCATTER,
        "OOM:": "out of memory; predicted, and not run, where an estimate is in brackets, else "
        "tried.",
    }
    return _explained(meanings, lines)


def _explained(meanings: dict[str, str], lines: list[list[str]]) -> list[str]:
    """Return the meanings of those marks that a text of the lines has."""
    texts = [text for line in lines for text in line[1:]]
    return [
        f"{mark} {meaning}"
        for mark, meaning in meanings.items()
        if any(mark.rstrip(":") in text for text in texts)
    ]


def on_unfitting(sheet: Sheet, field: str) -> list[str]:
    """Name the costs that were extrapolated to lengths that would not fit in memory."""
    extrapolated = []
    for line in sheet.lines:
        rows = sheet.all_rows(line)
        out_of_memory = min(
            (row.length for row in rows if row.status == "out_of_memory"), default=math.inf
        )
        lengths = [
            f"{row.length:,}"
            for row in rows
            if row.status == "extrapolated" and not is_measured(row, field)
            if exceeds(row) or row.length > out_of_memory
        ]
        if lengths:
            extrapolated.append(f"{line.title} at {', '.join(lengths)}")
    return (
        [f"Extrapolated beyond what fits in memory: {'; '.join(extrapolated)}."]
        if extrapolated
        else []
    )


def _on_unsupported(sheet: Sheet) -> list[str]:
    reasons = {
        row.note if line.label in row.note else f"{line.title}: {row.note}"
        for line in sheet.lines
        for row in sheet.all_rows(line)
        if row.status == "unsupported"
    }
    return [f"Unsupported: {'; '.join(sorted(reasons))}."] if reasons else []


def _shown_rows(sheet: Sheet) -> Iterable[CostRow]:
    """Iterate over the rows that the cells show, ours first."""
    return (row for line in sheet.lines for row in sheet.all_rows(line))
