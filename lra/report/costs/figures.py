"""Figures of cost: cost against length with fitted exponents, and ours against the best peer."""

from functools import partial
from typing import NamedTuple

from lra.report.costs import drawing
from lra.report.costs.fits import Fit, fit
from lra.report.costs.ratios import cost, is_measured
from lra.report.costs.sheets import MODES, Line, Sheet, first_of_each_mode
from lra.report.costs.summaries import against_peers, best_peer, mean_ratio
from lra.report.costs.tables import SCALES
from lra.report.figures import Figure

# The size that a figure shows of a method measured in several: that of Table 3.
_USUAL = {"nystrom": 64, "linformer": 256, "performer": 256, "reformer": 2, "longformer": 257}


class Mark(NamedTuple):
    """A point: length, milliseconds or megabytes, whether it was measured."""

    length: int
    value: float
    measured: bool


class Series(NamedTuple):
    """A line of a sheet, the `nth` of its method, with the `fits` of its time and memory."""

    line: Line
    nth: int
    time: list[Mark]
    memory: list[Mark]
    fits: tuple[Fit | None, Fit | None]


class Race(NamedTuple):
    """Ours against the best peer: how many times less ours costs, at each length and on average."""

    line: Line
    nth: int
    time: list[Mark]
    memory: list[Mark]
    means: tuple[float | None, float | None]


def cost_figures(slug: str, sheets: list[Sheet]) -> list[Figure]:
    """The figures of one setting; if sheets differ only in their batch, of the smallest batch."""
    found = []
    for sheet in first_of_each_mode(sheets):
        mode = sheet.mode.replace("_", "-")
        where = (
            f"{MODES[sheet.mode]}; {sheet.setting.shape}, {sheet.batches}; {sheet.setting.place}."
        )
        if sheet.setting.benchmark == "fixed_tokens":
            found += _fixed_tokens(f"{slug}-{mode}", where, sheet)
        else:
            found += _costs(f"{slug}-{mode}", where, sheet)
            found += _races(f"{slug}-{mode}-peers", where, sheet)
    return found


def _costs(name: str, where: str, sheet: Sheet) -> list[Figure]:
    drawn = series(sheet, _usual(sheet))
    if not drawn:
        return []
    caption = (
        f"Time and peak memory against length, {where} In the legend the exponents of fitted power "
        "laws, each of one run; hollow: extrapolated or estimated."
    )
    if sheet.is_mixed:
        caption += " Points are of several runs, as in the table."
    if sheet.in_parts:
        caption += " The batch was taken in parts: memory is that of one."
    return [Figure(name, caption, partial(drawing.draw_costs, drawn))]


def _fixed_tokens(name: str, where: str, sheet: Sheet) -> list[Figure]:
    drawn = series(sheet, [line for line in sheet.lines if line.ours])
    if not drawn:
        return []
    caption = f"Time of all tokens against length, {where} As Linformer's Figure 2."
    return [Figure(name, caption, partial(drawing.draw_fixed_tokens, drawn))]


def _races(name: str, where: str, sheet: Sheet) -> list[Figure]:
    drawn = races(sheet)
    if not drawn:
        return []
    caption = (
        f"Cost of the best peer over ours, {where} Above 1 ours needs less. In the legend the "
        "geometric means over all lengths measured."
    )
    return [Figure(name, caption, partial(drawing.draw_races, drawn))]


def series(sheet: Sheet, lines: list[Line]) -> list[Series]:
    """The lines that have numbers to draw."""
    found = []
    for line, nth in _numbered(lines):
        time, memory = (_marks(sheet, line, what) for what in SCALES)
        if time or memory:
            fits = fit(sheet, line, "seconds"), fit(sheet, line, "peak_memory_mb")
            found.append(Series(line, nth, time, memory, fits))
    return found


def races(sheet: Sheet) -> list[Race]:
    """Ours that have peers, against the best of them.

    Exact attention in its plain form is left out if it was measured block by block too: its memory
    would leave the others a small part of the scale.
    """
    time, memory = (against_peers(sheet, what) for what in SCALES)
    lines = [line for line in _usual(sheet) if line in time]
    blockwise = {line.method for line in lines if not line.holds_scores}
    found = []
    for line, nth in _numbered(lines):
        if line.holds_scores and line.method in blockwise:
            continue
        ratios = [best_peer(of_lines.get(line, {})) for of_lines in (time, memory)]
        marks = [[Mark(n, *ratio) for n, ratio in each.items()] for each in ratios]
        found.append(Race(line, nth, *marks, tuple(map(mean_ratio, ratios))))
    return found


def _usual(sheet: Sheet) -> list[Line]:
    """Our methods in one size each: the usual one if it was measured, else the first."""
    sizes: dict[str, dict[int | None, None]] = {}
    ours = [line for line in sheet.lines if line.ours]
    for line in ours:
        sizes.setdefault(line.method, {})[line.size] = None
    chosen = {
        method: usual if (usual := _USUAL.get(method)) in of_method else next(iter(of_method))
        for method, of_method in sizes.items()
    }
    return [line for line in ours if line.size == chosen[line.method]]


def _numbered(lines: list[Line]) -> list[tuple[Line, int]]:
    """Each line with the number of lines of its method before it."""
    return [
        (line, sum(other.method == line.method for other in lines[:position]))
        for position, line in enumerate(lines)
    ]


def _marks(sheet: Sheet, line: Line, what: str) -> list[Mark]:
    found = []
    for row in sheet.all_rows(line):
        value = cost(row, what)
        if value:
            found.append(Mark(row.length, SCALES[what] * value, is_measured(row, what)))
    return found
