"""Summaries of cost: fitted exponents, fractions of ceilings, ours against peers."""

import statistics

from lra.efficiency import CostRow
from lra.report.costs.fits import FIT, fit
from lra.report.costs.ratios import same_options, times_less
from lra.report.costs.sheets import MODES, Line, Sheet, first_of_each_mode
from lra.report.costs.tables import describe, ratio
from lra.report.tables import MISSING, Table

# Ours should beat every peer at these lengths; tables have a mean over them.
TARGET = (2048, 8192)
_WHAT = {"seconds": "time", "peak_memory_mb": "memory"}

# How many times less ours costs, and whether that was measured, at each length.
Ratios = dict[int, tuple[float, bool]]


def exponents(of_setting: list[Sheet]) -> Table:
    """The fitted exponents of the lines of a setting, a column for time and memory of each pass.

    Memory has no column if the batch was taken in parts, whose size it then reflects.
    """
    sheets = first_of_each_mode(of_setting)
    columns = [
        (sheet, what)
        for sheet in sheets
        for what in _WHAT
        if what == "seconds" or not sheet.in_parts
    ]
    titles = dict.fromkeys(line for sheet in sheets for line in sheet.lines)
    found = {line.title: [_exponent(*column, line) for column in columns] for line in titles}
    lines = [[title, *texts] for title, texts in found.items() if set(texts) != {MISSING}]
    header = [f"{_WHAT[what].title()}, {MODES[sheet.mode]}" for sheet, what in columns]
    setting = sheets[0].setting
    caption = (
        "Exponent of cost against length, least squares of the logarithms over what one run has "
        f"measured between {FIT[0]:,} and {FIT[1]:,}, or at the three longest lengths, memory by "
        "one source; where that is not the whole range, the lengths are in brackets. Over a few "
        "lengths an exponent also tells of noise, caches and memory running short. "
        f"{setting.place}; {setting.shape}, {sheets[0].batches}."
    )
    return Table("Fitted exponents", caption, ["Attention", *header], lines, [])


def _exponent(sheet: Sheet, what: str, line: Line) -> str:
    found = fit(sheet, line, what)
    if found is None:
        return MISSING
    span = "" if (found.low, found.high) == FIT else f" ({found.low:,}–{found.high:,})"
    return f"{found.exponent:.2f}{span}"


def ceilings(sheet: Sheet) -> Table:
    """The fractions of the device's measured flops/s and bytes/s that lines reach."""
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
    if row.memory_source == "process":  # XLA sees neither that memory nor the bytes moved in it
        moved = MISSING
    return MISSING if {flops, moved} == {MISSING} else f"{flops} / {moved}"


def _fraction(reached: float | None, ceiling: float | None) -> str:
    return _percent(reached / ceiling) if reached and ceiling else MISSING


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    # One significant digit; from 9.5 on the format `.1g` would write an exponent.
    return f"{percent:.1g}" if percent < 9.5 else f"{percent:.0f}"


def against_peers(sheet: Sheet, what: str) -> dict[Line, dict[Line, Ratios]]:
    """How many times less each line of ours costs than each peer that computes the same."""
    found = {}
    for ours in sheet.lines:
        peers = {}
        for peer in sheet.lines:
            if ours.ours and not peer.ours and peer.method == ours.method:
                ratios = _ratios(sheet, ours, peer, what)
                if ratios:
                    peers[peer] = ratios
        if peers:
            found[ours] = peers
    return found


def _ratios(sheet: Sheet, ours: Line, peer: Line, what: str) -> Ratios:
    """The ratios of a peer, by length, where both compute the same."""
    found = {}
    for length in sheet.lengths:
        one, other = sheet.row(ours, length), sheet.row(peer, length)
        if one and other and same_options(one, other):
            times = times_less(sheet, ours, peer, length, what)
            if times:
                found[length] = times
    return found


def best_peer(peers: dict[Line, Ratios]) -> Ratios:
    """By length, the ratio to the peer that costs least there.

    A length is left out if the best peer of the length before has no number there: the peers that
    remain may be far from the best.
    """
    lengths = {length for ratios in peers.values() for length in ratios}
    found, best = {}, None
    for length in sorted(lengths):
        there = {peer: ratios[length] for peer, ratios in peers.items() if length in ratios}
        if best is None or best in there:
            best = min(there, key=lambda peer: there[peer])
            found[length] = there[best]
    return found


def mean_ratio(ratios: Ratios, low: float = 0, high: float = float("inf")) -> float | None:
    """Geometric mean of the measured ratios at lengths from `low` to `high`."""
    found = [t for n, (t, measured) in ratios.items() if measured and low <= n <= high]
    return statistics.geometric_mean(found) if found else None


def best_peers(of_setting: list[Sheet]) -> Table:
    """Ours against the best peer, a column for time and memory of each pass."""
    sheets = first_of_each_mode(of_setting)
    columns = [
        {ours: best_peer(peers) for ours, peers in against_peers(sheet, what).items()}
        for sheet in sheets
        for what in _WHAT
    ]
    lines = [
        [ours.title, *(_mean_and_least(column.get(ours, {})) for column in columns)]
        for ours in dict.fromkeys(ours for column in columns for ours in column)
    ]
    lines = [line for line in lines if set(line[1:]) != {MISSING}]
    header = [f"{_WHAT[what].title()}, {MODES[sheet.mode]}" for sheet in sheets for what in _WHAT]
    setting = sheets[0].setting
    caption = (
        "The best peer's cost over ours, both of one run: above 1 ours needs less. Geometric mean "
        f"of what was measured from {TARGET[0]:,} to {TARGET[1]:,}, in brackets the least. "
        f"{setting.place}; {setting.shape}, {sheets[0].batches}."
    )
    return Table("Ours against the best peer", caption, ["Ours", *header], lines, [])


def _mean_and_least(ratios: Ratios) -> str:
    mean = mean_ratio(ratios, *TARGET)
    if mean is None:
        return MISSING
    least = min(t for n, (t, measured) in ratios.items() if measured and _in_target(n))
    return f"{ratio((mean, True))} ({ratio((least, True))})"


def _in_target(length: int) -> bool:
    return TARGET[0] <= length <= TARGET[1]


def peer_table(sheet: Sheet, what: str) -> Table:
    """Every peer's cost over ours at every length, with means; also that of the best peer."""
    lines = []
    for ours, peers in against_peers(sheet, what).items():
        lines += [_peer_line(sheet, ours, peer.title, ratios) for peer, ratios in peers.items()]
        if len(peers) > 1:
            lines.append(_peer_line(sheet, ours, "best peer", best_peer(peers)))
    caption = (
        f"The peer's {_WHAT[what]} over ours, both of one run: above 1 ours needs less. The last "
        f"columns are geometric means of what was measured. {describe(sheet)}"
    )
    low, high = TARGET
    means = [f"Mean, {low:,} to {high:,}", "Mean, all lengths"]
    header = ["Ours", "Against", *(f"{n:,}" for n in sheet.lengths), *means]
    title = f"Ours against peers: {_WHAT[what]}, {MODES[sheet.mode]}, {sheet.batches}"
    return Table(title, caption, header, lines, _versions(sheet), words=(0, 1))


def _peer_line(sheet: Sheet, ours: Line, title: str, ratios: Ratios) -> list[str]:
    means = [mean_ratio(ratios, *TARGET), mean_ratio(ratios)]
    texts = [ratio(ratios.get(length)) for length in sheet.lengths]
    return [ours.title, title, *texts, *(ratio((m, True) if m else None) for m in means)]


def _versions(sheet: Sheet) -> list[str]:
    """A note: the versions of the peers' packages."""
    peers = [line for line in sheet.lines if not line.ours]
    packages = {line.source for line in peers} | {"jax", "torch"}
    found = {
        f"{name} {version}"
        for line in peers
        for row in sheet.all_rows(line)
        for name, version in (row.versions or {}).items()
        if version and name in packages
    }
    return [f"Versions: {', '.join(sorted(found))}."] if found else []
