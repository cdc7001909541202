"""Linformer's Table 3: time and memory saved over exact attention, by length and size k."""

from collections import defaultdict
from typing import NamedTuple

from lra.published_efficiency import (
    LINFORMER_LENGTHS,
    LINFORMER_MEMORY_SAVED,
    LINFORMER_SHARING,
    LINFORMER_SIZES,
    LINFORMER_SOURCE,
    LINFORMER_TIME_SAVED,
)
from lra.report.costs.legend import SHARINGS
from lra.report.costs.notes import on_marks_of_ratios, on_unfitting
from lra.report.costs.ratios import Ratio, times_less
from lra.report.costs.sheets import MODES, Line, Sheet
from lra.report.costs.tables import describe, ratio_text, short
from lra.report.places import MISSING
from lra.report.table import Table


class _Saving(NamedTuple):
    """One kind of saving, shown in a table of its own.

    Attributes:
        title: Title of the table.
        caption: Caption of the table.
        published: Cells of the paper's table, by size.
        field: Field of the rows that is compared; None to compare memory by the largest batch that
            fits.
    """

    title: str
    caption: str
    published: dict[int, tuple[float | None, ...]]
    field: str | None


_TIME = _Saving(
    "time saved",
    "How many times less time per input than {} in the same run;",
    LINFORMER_TIME_SAVED,
    "seconds",
)
_MEMORY = _Saving(
    "peak memory saved at equal batch",
    "How many times less peak memory than {} in the same run;",
    LINFORMER_MEMORY_SAVED,
    "peak_memory_mb",
)
_LARGEST = _Saving(
    "memory saved as the largest batch that fits",
    "The largest batch that fits, by what smaller ones need, over that of {};",
    LINFORMER_MEMORY_SAVED,
    None,
)


def savings(sheets: list[Sheet]) -> list[Table]:
    """Return the tables of those sheets of a setting that have Linformer's forward pass."""
    chosen = [
        sheet.of_lines({sheet.reference, *_linformers(sheet).values()})
        for sheet in sheets
        if sheet.mode == "forward" and sheet.reference and _linformers(sheet)
    ]
    tables = []
    for sheet in chosen:
        tables.append(_table(sheet, _TIME))
        if sheet.batch is not None:
            tables.append(_table(sheet, _MEMORY))
    tables += [_table(sheet, _LARGEST) for sheet in chosen if _has_largest_batch(sheet)][:1]
    return tables


def _has_largest_batch(sheet: Sheet) -> bool:
    rows = (row for line in _linformers(sheet).values() for row in sheet.all_rows(line))
    return any(row.largest_batch is not None for row in rows)


def _linformers(sheet: Sheet) -> dict[int, Line]:
    """Return our Linformer lines by size, all with the same further options.

    Those are the published sharing of projections if it was measured, else the options that were
    measured in most sizes.
    """
    by_options: dict[str, dict[int, Line]] = defaultdict(dict)
    for line in sheet.lines:
        if line.ours and line.method == "linformer" and line.size is not None:
            by_options[_options(line)][line.size] = line
    most = max(by_options.values(), key=len, default={})
    return by_options.get(LINFORMER_SHARING, most)


def _options(line: Line) -> str:
    """Return what follows the size in the label of a line: `layerwise`, `projection=conv`, ..."""
    return line.label.partition(" ")[2]


def _described(line: Line) -> str:
    options = _options(line)
    return f"{options} sharing" if options in SHARINGS else options or "default options"


def _table(sheet: Sheet, saving: _Saving) -> Table:
    ours = _linformers(sheet)
    published = {
        size: dict(zip(LINFORMER_LENGTHS, values, strict=True))
        for size, values in saving.published.items()
    }
    sizes = sorted({*ours, *LINFORMER_SIZES})
    lines = []
    for length in sorted({*sheet.lengths, *LINFORMER_LENGTHS}):
        texts = []
        for size in sizes:
            text = _cell(sheet, ours[size], length, saving.field) if size in ours else MISSING
            theirs = published.get(size, {}).get(length)
            texts.append(f"{text} ({theirs}×)" if theirs else text)
        lines.append([f"{length:,}", *texts])
    header = ["Length", *(f"k = {size:,}" for size in sizes)]
    of_batch = saving.field is not None  # the largest batch does not depend on the timed one
    pass_and_batch = f"{MODES[sheet.mode]}, {sheet.batches}" if of_batch else MODES[sheet.mode]
    where = describe(sheet, of_batch=of_batch)
    caption = (
        f"{saving.caption.format(sheet.reference.title)} in brackets the published. Ours is "
        f"Linformer with {_described(next(iter(ours.values())))}. {where}"
    )
    notes = [LINFORMER_SOURCE, *_notes(sheet, lines, saving.field)]
    title = f"Linformer, {saving.title}, {pass_and_batch}"
    return Table(title, caption, header, lines, notes, words=())


def _cell(sheet: Sheet, line: Line, length: int, field: str | None) -> str:
    if field is None:
        return _largest_batch(sheet, line, length)
    return ratio_text(times_less(sheet, line, sheet.reference, length, field))


def _notes(sheet: Sheet, lines: list[list[str]], field: str | None) -> list[str]:
    if field is None:
        return _on_largest_batch(sheet, lines)
    return [*on_marks_of_ratios(lines), *on_unfitting(sheet, field)]


def _largest_batch(sheet: Sheet, line: Line, length: int) -> str:
    row, exact = next(iter(sheet.together(line, sheet.reference, length)), (None, None))
    if row is None or not row.largest_batch:
        return MISSING
    if exact.status == "out_of_memory" and exact.batch == 1:
        return f"> {short(row.largest_batch)}×"
    if not exact.largest_batch:
        return MISSING
    return ratio_text(Ratio(row.largest_batch / exact.largest_batch))


def _on_largest_batch(sheet: Sheet, lines: list[list[str]]) -> list[str]:
    rows = [row for line in sheet.lines for row in sheet.all_rows(line)]
    limits = sorted({short(r.memory_limit_mb / 1000) for r in rows if r.memory_limit_mb})
    notes = [f"Memory that the batch had to fit in: {' or '.join(limits)} GB."] if limits else []
    if any(text.startswith(">") for line in lines for text in line):
        notes.append("Where > stands, exact attention does not fit with a batch of 1.")
    return notes
