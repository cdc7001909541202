"""Notes under the tables of cost: what their marks mean, how memory was measured."""

import math
from collections.abc import Iterable

from lra.efficiency import CostRow
from lra.report.costs.ratios import SCATTER, is_measured
from lra.report.costs.sheets import Sheet, exceeds

EXTRAPOLATED = "~"
OTHER_SOURCE = "§"
OTHER_RUN = "†"
SCATTERED = "‡"

_SOURCES = {
    "xla": "XLA's analysis of the compiled program",
    "device": "the device's statistics",
    "process": "the growth of the process",
}


def notes(sheet: Sheet, lines: list[list[str]], what: str) -> list[str]:
    """All notes of a table of absolute costs.

    Args:
        sheet: of the table.
        lines: its cells, titles first.
        what: field of the rows that it shows.
    """
    found = _on_memory(sheet) if what == "peak_memory_mb" else []
    found += [*_on_parts(sheet), *_on_marks(sheet, lines)]
    return [*found, *on_unfitting(sheet, what), *_on_unsupported(sheet)]


def _on_memory(sheet: Sheet) -> list[str]:
    main = sheet.memory_source
    shown = {row.memory_source for row in _shown(sheet)} - {None}
    others = shown - {main}
    found = [f"Memory: {_SOURCES[main]}, parameters and inputs included."] if main else []
    if others:
        named = " or ".join(_SOURCES[source] for source in sorted(others))
        of_any = " or ".join(_SOURCES[source] for source in sorted(shown - {"xla"}))
        found.append(
            f"{OTHER_SOURCE} From {named}. The ratio of a cell with this mark to one without is by "
            f"{of_any}, or by XLA's analysis where that is larger."
        )
    return found


def _on_parts(sheet: Sheet) -> list[str]:
    """Says that the batch of a model was taken in parts, and in how many if rows tell."""
    if not sheet.in_parts:
        return []
    known = {row.length: row.parts for row in _shown(sheet) if row.parts}
    taken = "On a CPU the batch is taken in parts"
    if known:
        numbers = ", ".join(f"{parts} at {length:,}" for length, parts in sorted(known.items()))
        taken = f"The batch was taken in parts ({numbers})"
    return [
        f"{taken} that fit the caches (lra/parts.py): memory is that of one part and the "
        "parameters, and tells no exponent."
    ]


def _on_marks(sheet: Sheet, lines: list[list[str]]) -> list[str]:
    own = f"its ratio is to {sheet.reference.title} of its own run; " if sheet.reference else ""
    meanings = {
        EXTRAPOLATED: " Extrapolated from shorter lengths, estimated, or relative to what is.",
        OTHER_RUN: f" Of another run than most cells: {own}do not divide it by another cell.",
        SCATTERED: " The fastest and the slowest of its repeats differ by more than "
        f"{100 * SCATTER:.0f} % of their median.",
        "OOM": ": out of memory; predicted, and not run, where an estimate is in brackets, else "
        "tried.",
    }
    texts = [text for line in lines for text in line[1:]]
    return [
        f"{mark}{meaning}"
        for mark, meaning in meanings.items()
        if any(mark in text for text in texts)
    ]


def on_unfitting(sheet: Sheet, what: str) -> list[str]:
    """Names costs that were extrapolated to lengths that would not fit in memory."""
    found = []
    for line in sheet.lines:
        rows = sheet.all_rows(line)
        out = min((row.length for row in rows if row.status == "out_of_memory"), default=math.inf)
        lengths = [
            f"{row.length:,}"
            for row in rows
            if row.status == "extrapolated" and not is_measured(row, what)
            if exceeds(row) or row.length > out
        ]
        if lengths:
            found.append(f"{line.title} at {', '.join(lengths)}")
    return [f"Extrapolated beyond what fits in memory: {'; '.join(found)}."] if found else []


def _on_unsupported(sheet: Sheet) -> list[str]:
    reasons = {
        row.note if line.label in row.note else f"{line.title}: {row.note}"
        for line in sheet.lines
        for row in sheet.all_rows(line)
        if row.status == "unsupported"
    }
    return [f"Unsupported: {'; '.join(sorted(reasons))}."] if reasons else []


def _shown(sheet: Sheet) -> Iterable[CostRow]:
    """The rows of all cells, ours first."""
    return (row for line in sheet.lines for row in sheet.all_rows(line))
