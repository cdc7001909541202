"""Summaries of costs: fitted exponents, fractions of hardware ceilings, ours against peers."""

import statistics

from lra.efficiency import CostRow
from lra.report.costs.fits import FIT, fit
from lra.report.costs.notes import on_marks_of_ratios, on_ratios
from lra.report.costs.ratios import Ratio, same_options, times_less
from lra.report.costs.sheets import MODES, Line, Sheet, first_of_each_mode
from lra.report.costs.tables import describe, ratio_text
from lra.report.places import MISSING
from lra.report.table import Table

# Range of lengths at which ours should beat every peer; tables have a mean over it.
TARGET = (2048, 8192)
_COSTS = {"seconds": "time", "peak_memory_mb": "memory"}

# By length, how many times less ours costs.
Ratios = dict[int, Ratio]


def exponents(setting_sheets: list[Sheet]) -> Table:
    """Tabulate fitted exponents of a setting's lines, a column for time and memory of each pass.

    Memory has no column if the batch was processed in parts, whose size it then reflects.
    """
    sheets = first_of_each_mode(setting_sheets)
    columns = [
        (sheet, field)
        for sheet in sheets
        for field in _COSTS
        if field == "seconds" or not sheet.in_parts
    ]
    sheet_lines = dict.fromkeys(line for sheet in sheets for line in sheet.lines)
    texts = {line.title: [_exponent(*column, line) for column in columns] for line in sheet_lines}
    lines = [[title, *cells] for title, cells in texts.items() if set(cells) != {MISSING}]
    caption = (
        "Exponent of cost against length: a least-squares fit of the logarithms of what one run "
        f"measured between {FIT[0]:,} and {FIT[1]:,}, or at its three longest lengths, memory from "
        "one source. The lengths are in brackets where they are not the whole range. Three times "
        "have no exponent if the repeats of one scatter. With few lengths an exponent also "
        "reflects noise, caches and scarce memory. "
        f"{_place(sheets[0])}"
    )
    return Table("Fitted exponents", caption, _header("Attention", columns), lines, [])


def _header(first: str, columns: list[tuple[Sheet, str]]) -> list[str]:
    """Return the header of a table with a column for each pair of sheet and field."""
    return [first, *(f"{_COSTS[field].title()}, {MODES[sheet.mode]}" for sheet, field in columns)]


def _place(sheet: Sheet) -> str:
    return f"{sheet.setting.place}; {sheet.setting.shape}, {sheet.batches}."


def _exponent(sheet: Sheet, field: str, line: Line) -> str:
    power_law = fit(sheet, line, field)
    if power_law is None:
        return MISSING
    low, high = power_law.low, power_law.high
    span = "" if (low, high) == FIT else f" ({low:,}–{high:,})"
    return f"{power_law.exponent:.2f}{span}"


def ceilings(sheet: Sheet) -> Table:
    """Tabulate the fractions of the device's measured flops/s and bytes/s that lines reach."""
    lines = []
    for line in sheet.lines:
        texts = [_fractions(sheet.row(line, length)) for length in sheet.lengths]
        if set(texts) != {MISSING}:
            lines.append([line.title, *texts])
    caption = (
        "Percent of the flops/s of a large matrix product / percent of the bytes/s of a large copy "
        f"in the same run. {describe(sheet)}"
    )
    notes = [
        "Counted in the compiled program; bytes that a cache serves count too, so more than 100 % "
        f"can be reached. {MISSING} where they cannot be told."
    ]
    title = f"Fraction of measured ceilings, {MODES[sheet.mode]}, {sheet.batches}"
    header = ["Attention", *(f"{n:,}" for n in sheet.lengths)]
    return Table(title, caption, header, lines, notes)


def _fractions(row: CostRow | None) -> str:
    if row is None or row.status != "ok":
        return MISSING
    flops = _fraction(row.flops_per_second, row.peak_flops_per_second)
    moved = _fraction(row.bytes_per_second, row.peak_bytes_per_second)
    if row.memory_source == "process":  # XLA counts neither this memory nor the bytes moved in it
        moved = MISSING
    return MISSING if {flops, moved} == {MISSING} else f"{flops} / {moved}"


def _fraction(reached: float | None, ceiling: float | None) -> str:
    return _percent(reached / ceiling) if reached and ceiling else MISSING


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    # One significant digit below 9.5, from which on the format `.1g` would write an exponent.
    return f"{percent:.1g}" if percent < 9.5 else f"{percent:.0f}"


def against_peers(sheet: Sheet, field: str) -> dict[Line, dict[Line, Ratios]]:
    """Return how many times less each line of ours costs than each peer that computes the same."""
    result = {}
    for ours in sheet.lines:
        peers = {}
        for peer in sheet.lines:
            if ours.ours and not peer.ours and peer.method == ours.method:
                ratios = _ratios(sheet, ours, peer, field)
                if ratios:
                    peers[peer] = ratios
        if peers:
            result[ours] = peers
    return result


def _ratios(sheet: Sheet, ours: Line, peer: Line, field: str) -> Ratios:
    """Return the ratios of ours to a peer at the lengths at which both compute the same."""
    ratios = {}
    for length in sheet.lengths:
        our_row, peer_row = sheet.row(ours, length), sheet.row(peer, length)
        if our_row and peer_row and same_options(our_row, peer_row):
            ratio = times_less(sheet, ours, peer, length, field)
            if ratio:
                ratios[length] = ratio
    return ratios


def best_peer(peers: dict[Line, Ratios]) -> Ratios:
    """Return, by length, the ratio to the peer that costs least there.

    A length is left out if the best peer of the previous length has no number there: the remaining
    peers may be far from the best.
    """
    lengths = {length for ratios in peers.values() for length in ratios}
    result, best = {}, None
    for length in sorted(lengths):
        available = {peer: ratios[length] for peer, ratios in peers.items() if length in ratios}
        if best is None or best in available:
            best = min(available, key=lambda peer: available[peer].times)
            result[length] = available[best]
    return result


def mean_ratio(ratios: Ratios) -> Ratio | None:
    """Return the geometric mean of the measured ratios, if any; it scatters if one of them does."""
    measured = [ratio for ratio in ratios.values() if ratio.measured]
    if not measured:
        return None
    mean = statistics.geometric_mean(ratio.times for ratio in measured)
    return Ratio(mean, scatters=any(ratio.scatters for ratio in measured))


def best_peers(setting_sheets: list[Sheet]) -> Table:
    """Tabulate ours against the best peer, a column for time and memory of each pass."""
    sheets = first_of_each_mode(setting_sheets)
    columns = [(sheet, field) for sheet in sheets for field in _COSTS]
    ratios = [
        {ours: best_peer(peers) for ours, peers in against_peers(*column).items()}
        for column in columns
    ]
    lines = [
        [ours.title, *(_mean_and_least(by_line.get(ours, {})) for by_line in ratios)]
        for ours in dict.fromkeys(ours for by_line in ratios for ours in by_line)
    ]
    lines = [line for line in lines if set(line[1:]) != {MISSING}]
    caption = (
        "The best peer's cost over ours, both of one run: above 1 ours needs less. Geometric mean "
        f"of what was measured from {TARGET[0]:,} to {TARGET[1]:,}, in brackets the least. "
        f"{_place(sheets[0])}"
    )
    header = _header("Ours", columns)
    return Table("Ours against the best peer", caption, header, lines, on_marks_of_ratios(lines))


def _mean_and_least(ratios: Ratios) -> str:
    mean = mean_ratio(_in_target(ratios))
    if mean is None:
        return MISSING
    measured = [ratio for ratio in _in_target(ratios).values() if ratio.measured]
    least = min(measured, key=lambda ratio: ratio.times)
    return f"{ratio_text(mean)} ({ratio_text(least)})"


def _in_target(ratios: Ratios) -> Ratios:
    low, high = TARGET
    return {length: ratio for length, ratio in ratios.items() if low <= length <= high}


def peer_table(sheet: Sheet, field: str) -> Table:
    """Tabulate every peer's cost over ours at every length, with means, and the best peer's."""
    lines = []
    for ours, peers in against_peers(sheet, field).items():
        lines += [_peer_line(sheet, ours, peer.title, ratios) for peer, ratios in peers.items()]
        if len(peers) > 1:
            lines.append(_peer_line(sheet, ours, "best peer", best_peer(peers)))
    caption = (
        f"The peer's {_COSTS[field]} over ours, both of one run: above 1 ours needs less. The last "
        f"columns are geometric means of what was measured. {describe(sheet)}"
    )
    low, high = TARGET
    means = [f"Mean, {low:,} to {high:,}", "Mean, all lengths"]
    header = ["Ours", "Against", *(f"{n:,}" for n in sheet.lengths), *means]
    title = f"Ours against peers: {_COSTS[field]}, {MODES[sheet.mode]}, {sheet.batches}"
    remarks = [*on_ratios(sheet, lines, field), *_versions(sheet)]
    return Table(title, caption, header, lines, remarks, words=(0, 1))


def _peer_line(sheet: Sheet, ours: Line, title: str, ratios: Ratios) -> list[str]:
    means = [mean_ratio(_in_target(ratios)), mean_ratio(ratios)]
    texts = [ratio_text(ratios.get(length)) for length in sheet.lengths]
    return [ours.title, title, *texts, *map(ratio_text, means)]


def _versions(sheet: Sheet) -> list[str]:
    """Return a note on the versions of the peers' packages."""
    peers = [line for line in sheet.lines if not line.ours]
    packages = {line.source for line in peers} | {"jax", "torch"}
    versions = {
        f"{name} {version}"
        for line in peers
        for row in sheet.all_rows(line)
        for name, version in (row.versions or {}).items()
        if version and name in packages
    }
    return [f"Versions: {', '.join(sorted(versions))}."] if versions else []
