"""The cost of a row, and how many times less it is than that of another row of its run."""

from lra.efficiency import CostRow
from lra.report.costs.sheets import Line, Sheet

# Ways to measure memory that work for JAX and PyTorch; XLA's analysis is for JAX alone.
_ANY_SOURCE = ("device", "process")
# Options that change how something is computed, not what.
_HOW = ("implementation",)
# Repeats that differ by more than this part of their median are marked: something disturbed them.
SCATTER = 0.3


def cost(row: CostRow | None, what: str) -> float | None:
    """Seconds or megabytes, of a module per input, else of the whole batch; None if unknown."""
    value = getattr(row, what, None)
    if not value:
        return None
    return value / row.batch if row.benchmark == "module" else value


def is_measured(row: CostRow, what: str) -> bool:
    """Whether a cost was measured, rather than extrapolated or estimated."""
    if row.status == "extrapolated" and what != "seconds":
        return row.memory_source == "xla" and row.xla_memory_mb is not None
    return row.status == "ok"


def scatters(row: CostRow) -> bool:
    """Whether the fastest and slowest repeats differ by more than `SCATTER` of the median."""
    if None in (row.seconds, row.seconds_min, row.seconds_max):
        return False
    return row.seconds_max - row.seconds_min > SCATTER * row.seconds


def times_less(
    sheet: Sheet,
    line: Line | None,
    reference: Line | None,
    length: int,
    what: str,
    run: str | None = None,
) -> tuple[float, bool] | None:
    """How many times less `line` costs than `reference`, and whether both were measured.

    Both costs are of `run`, or if it is None of the first run of the sheet that has both lines, and
    memory is measured in the same way. None if there is no such run, or a cost is missing.
    """
    for row, other in sheet.together(line, reference, length):
        if run not in (None, row.run):
            continue
        if what == "peak_memory_mb":
            less, more = _memory(row, other)
        else:
            less, more = cost(row, what), cost(other, what)
        if not less or not more:
            return None
        return more / less, is_measured(row, what) and is_measured(other, what)
    return None


def _memory(row: CostRow, other: CostRow) -> tuple[float | None, float | None]:
    """The memory of two rows, measured in the same way; None where it cannot be compared.

    Rows with different sources are compared by the device's statistics or the growth of processes.
    XLA's analysis replaces such a figure if it is larger: a process grows by less than a program
    needs while its allocator has memory left, and by nothing if the program was not run.
    """
    if row.memory_source == other.memory_source:
        return cost(row, "peak_memory_mb"), cost(other, "peak_memory_mb")
    for source in _ANY_SOURCE:
        taken = [_taken(each, source) for each in (row, other)]
        one, two = (
            max(value or 0, cost(each, "xla_memory_mb") or 0)
            for value, each in zip(taken, (row, other), strict=True)
        )
        if any(taken) and min(one, two) > 0:
            return one, two
    return None, None


def _taken(row: CostRow, source: str) -> float | None:
    """The memory of a row by a source: measured, or predicted from shorter lengths by it."""
    name = "peak_memory_mb" if row.memory_source == source else f"{source}_memory_mb"
    return cost(row, name)


def same_options(ours: CostRow, peer: CostRow) -> bool:
    """Whether a peer computes the same: its options are ours."""
    ours_options, peer_options = (
        {name: value for name, value in row.options.items() if name not in _HOW}
        for row in (ours, peer)
    )
    return ours_options == peer_options
