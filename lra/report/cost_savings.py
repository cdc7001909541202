"""Linformer's Table 3, both ways: time and memory saved against exact attention, length x k."""

from collections.abc import Callable
from typing import NamedTuple

from lra.published_efficiency import (
    TABLE3_LENGTHS,
    TABLE3_MEMORY_SAVED,
    TABLE3_SIZES,
    TABLE3_SOURCE,
    TABLE3_TIME_SAVED,
)
from lra.report.cost_notes import EXTRAPOLATED
from lra.report.cost_ratios import times_less
from lra.report.cost_tables import describe, ratio, short
from lra.report.costs import MODES, Line, Sheet
from lra.report.tables import MISSING, Table


class _Saving(NamedTuple):
    """What a table is of: what it says of it, a cell of a sheet, and the paper's cells."""

    title: str
    caption: str
    cell: Callable[[Sheet, Line, int], str]
    published: dict[int, tuple[float | None, ...]]


def savings(sheets: list[Sheet]) -> list[Table]:
    """The tables of those sheets of a setting that have a forward pass of Linformer."""
    chosen = [
        sheet.of_lines({sheet.reference, *_linformers(sheet).values()})
        for sheet in sheets
        if sheet.mode == "forward" and sheet.reference and _linformers(sheet)
    ]
    found = []
    for sheet in chosen:
        found.append(_table(sheet, _TIME))
        if sheet.batch is not None:
            found.append(_table(sheet, _MEMORY))
    # The largest batch is the same whatever batch was timed.
    found += [_table(sheet, _LARGEST) for sheet in chosen if _has_largest_batch(sheet)][:1]
    return found


def _has_largest_batch(sheet: Sheet) -> bool:
    rows = (row for line in _linformers(sheet).values() for row in sheet.all_rows(line))
    return any(row.largest_batch is not None for row in rows)


def _linformers(sheet: Sheet) -> dict[int, Line]:
    """Our Linformers by size, the first of each."""
    found: dict[int, Line] = {}
    for line in sheet.lines:
        if line.ours and line.method == "linformer" and line.size is not None:
            found.setdefault(line.size, line)
    return found


def _table(sheet: Sheet, saving: _Saving) -> Table:
    ours = _linformers(sheet)
    sizes = sorted({*ours, *TABLE3_SIZES})
    lines = []
    for length in sorted({*sheet.lengths, *TABLE3_LENGTHS}):
        texts = []
        for size in sizes:
            text = saving.cell(sheet, ours[size], length) if size in ours else MISSING
            theirs = _published(saving, length, size)
            texts.append(f"{text} ({theirs}×)" if theirs else text)
        lines.append([f"{length:,}", *texts])
    header = ["Length", *(f"k = {size:,}" for size in sizes)]
    of_pass = f"{MODES[sheet.mode]}, {sheet.batches}"
    where = describe(sheet)
    if saving is _LARGEST:
        of_pass = MODES[sheet.mode]
        where = f"{sheet.setting.place}; {sheet.setting.shape}, {of_pass}."
    caption = f"{saving.caption.format(sheet.reference.title)} in brackets the published. {where}"
    notes = [TABLE3_SOURCE, *_notes(sheet, saving, lines)]
    return Table(f"Linformer, {saving.title}, {of_pass}", caption, header, lines, notes)


def _published(saving: _Saving, length: int, size: int) -> float | None:
    if size not in saving.published or length not in TABLE3_LENGTHS:
        return None
    return saving.published[size][TABLE3_LENGTHS.index(length)]


def _time(sheet: Sheet, line: Line, length: int) -> str:
    return ratio(times_less(sheet, line, sheet.reference, length, "seconds"))


def _memory(sheet: Sheet, line: Line, length: int) -> str:
    return ratio(times_less(sheet, line, sheet.reference, length, "peak_memory_mb"))


def _largest_batch(sheet: Sheet, line: Line, length: int) -> str:
    for row, exact in sheet.together(line, sheet.reference, length):
        if not row.largest_batch:
            return MISSING
        if exact.status == "out_of_memory" and exact.batch == 1:
            return f"> {short(row.largest_batch)}×"
        if exact.largest_batch:
            return ratio((row.largest_batch / exact.largest_batch, True))
        return MISSING
    return MISSING


_TIME = _Saving(
    "time saved",
    "How many times less time per input than {} in the same run;",
    _time,
    TABLE3_TIME_SAVED,
)
_MEMORY = _Saving(
    "peak memory saved at equal batch",
    "How many times less peak memory than {} in the same run;",
    _memory,
    TABLE3_MEMORY_SAVED,
)
_LARGEST = _Saving(
    "memory saved as the largest batch that fits",
    "The largest batch that fits over that of {};",
    _largest_batch,
    TABLE3_MEMORY_SAVED,
)


def _notes(sheet: Sheet, saving: _Saving, lines: list[list[str]]) -> list[str]:
    texts = [text for line in lines for text in line]
    notes = []
    if saving is _LARGEST:
        rows = [row for line in sheet.lines for row in sheet.all_rows(line)]
        limits = sorted({short(r.memory_limit_mb / 1000) for r in rows if r.memory_limit_mb})
        if limits:
            notes.append(f"Memory that the batch had to fit in: {' or '.join(limits)} GB.")
        if any(text.startswith(">") for text in texts):
            notes.append("Where > stands, exact attention does not fit with a batch of 1.")
    elif any(EXTRAPOLATED in text for text in texts):
        notes.append(f"{EXTRAPOLATED} From what was extrapolated or estimated.")
    return notes
