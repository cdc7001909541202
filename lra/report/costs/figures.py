"""Figures of costs: cost against length with fitted exponents, and ours against the best peer."""

import itertools
from collections.abc import Sequence
from functools import partial

from lra.report.costs import drawing
from lra.report.costs.drawing import Mark, Race, Series
from lra.report.costs.fits import fit
from lra.report.costs.ratios import cost, is_measured
from lra.report.costs.sheets import MODES, Line, Sheet, first_of_each_mode
from lra.report.costs.summaries import against_peers, best_peer, mean_ratio
from lra.report.costs.tables import SCALES
from lra.report.figure_files import Figure

# Size (that of Table 3) that figures show of a method measured in several sizes.
_USUAL = {"nystrom": 64, "linformer": 256, "performer": 256, "reformer": 2, "longformer": 257}

_HOLLOW = " Hollow: extrapolated or estimated."


def cost_figures(slug: str, sheets: list[Sheet]) -> list[Figure]:
    """Return the figures of a setting; if sheets differ only in batch, of the smallest batch."""
    result = []
    for sheet in first_of_each_mode(sheets):
        mode = sheet.mode.replace("_", "-")
        where = (
            f"{MODES[sheet.mode]}; {sheet.setting.shape}, {sheet.batches}; {sheet.setting.place}."
        )
        if sheet.setting.benchmark == "fixed_tokens":
            result += _fixed_tokens(f"{slug}-{mode}", where, sheet)
        else:
            result += _costs(f"{slug}-{mode}", where, sheet)
            result += _races(f"{slug}-{mode}-peers", where, sheet)
    return result


def _costs(name: str, where: str, sheet: Sheet) -> list[Figure]:
    all_series = series(sheet, _one_size_each(sheet))
    if not all_series:
        return []
    caption = (
        f"Time and peak memory against length, {where} In the legend the exponents of fitted power "
        f"laws, each of one run.{_on_hollow(all_series, 'time', 'memory')}"
    )
    if sheet.is_mixed:
        caption += " Points are of several runs (†); a curve has a gap where its run changes."
    if any(_changes_source(each.memory) for each in all_series):
        caption += " A curve of memory has a gap where its source changes (§ in the table)."
    if sheet.in_parts:
        caption += " The batch was taken in parts: memory is that of one."
    draw = partial(drawing.draw_costs, all_series, in_parts=sheet.in_parts)
    return [Figure(name, caption, draw)]


def _fixed_tokens(name: str, where: str, sheet: Sheet) -> list[Figure]:
    all_series = series(sheet, [line for line in sheet.lines if line.ours])
    if not all_series:
        return []
    caption = (
        f"Time of all tokens against length, {where} As Linformer's Figure 2."
        f"{_on_hollow(all_series, 'time')}"
    )
    return [Figure(name, caption, partial(drawing.draw_fixed_tokens, all_series))]


def _races(name: str, where: str, sheet: Sheet) -> list[Figure]:
    all_races = races(sheet)
    if not all_races:
        return []
    caption = (
        f"Cost of the best peer over ours, {where} Above 1 ours needs less. In the legend the "
        f"geometric means over all lengths measured.{_on_hollow(all_races, 'time', 'memory')}"
    )
    return [Figure(name, caption, partial(drawing.draw_races, all_races))]


def _on_hollow(drawn: Sequence[Series | Race], *costs: str) -> str:
    marks = (mark for each in drawn for cost in costs for mark in getattr(each, cost))
    return "" if all(mark.measured for mark in marks) else _HOLLOW


def _changes_source(marks: Sequence[Mark]) -> bool:
    return any(
        one.comparable != other.comparable and one.comparable[0] == other.comparable[0]
        for one, other in itertools.pairwise(marks)
    )


def series(sheet: Sheet, lines: list[Line]) -> list[Series]:
    """Return the series of those lines that have numbers to draw."""
    result = []
    for line, nth in _numbered(lines):
        time, memory = (_marks(sheet, line, field) for field in SCALES)
        if time or memory:
            fits = fit(sheet, line, "seconds"), fit(sheet, line, "peak_memory_mb")
            result.append(Series(line, nth, time, memory, fits))
    return result


def races(sheet: Sheet) -> list[Race]:
    """Return our lines that have peers, compared with the best of these.

    Exact attention in its plain form is left out if it was also measured block by block: its memory
    would squeeze the others into a small part of the scale.
    """
    time, memory = (against_peers(sheet, field) for field in SCALES)
    lines = [line for line in _one_size_each(sheet) if line in time]
    blockwise = {line.method for line in lines if not line.holds_scores}
    result = []
    for line, nth in _numbered(lines):
        if line.holds_scores and line.method in blockwise:
            continue
        ratios = [best_peer(by_line.get(line, {})) for by_line in (time, memory)]
        marks = [[Mark(n, *ratio[:2]) for n, ratio in each.items()] for each in ratios]
        result.append(Race(line, nth, *marks, tuple(map(mean_ratio, ratios))))
    return result


def _one_size_each(sheet: Sheet) -> list[Line]:
    """Select one size of each of our methods: the usual one if it was measured, else the first.

    Of several lines of that size, as with other options, those of the run of most cells.
    """
    sizes: dict[str, dict[int | None, None]] = {}
    ours = [line for line in sheet.lines if line.ours]
    for line in ours:
        sizes.setdefault(line.method, {})[line.size] = None
    chosen = {
        method: usual if (usual := _USUAL.get(method)) in own_sizes else next(iter(own_sizes))
        for method, own_sizes in sizes.items()
    }
    result = [line for line in ours if line.size == chosen[line.method]]
    main = {line for line in result if not all(map(sheet.is_of_another_run, sheet.all_rows(line)))}
    in_main = {line.method for line in main}
    return [line for line in result if line in main or line.method not in in_main]


def _numbered(lines: list[Line]) -> list[tuple[Line, int]]:
    """Pair each line with the number of preceding lines of its method."""
    return [
        (line, sum(other.method == line.method for other in lines[:position]))
        for position, line in enumerate(lines)
    ]


def _marks(sheet: Sheet, line: Line, field: str) -> list[Mark]:
    marks = []
    for row in sheet.all_rows(line):
        value = cost(row, field)
        if value:
            source = row.memory_source if field == "peak_memory_mb" else None
            scaled, measured = SCALES[field] * value, is_measured(row, field)
            marks.append(Mark(row.length, scaled, measured, comparable=(row.run, source)))
    return marks
