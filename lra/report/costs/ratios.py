"""The cost of a row, and its ratio to the cost of another row of the same run."""

from typing import NamedTuple

from lra.efficiency import CostRow
from lra.report.costs.sheets import Line, Sheet

# Ways to measure memory that work for both JAX and PyTorch; XLA's analysis is only for JAX.
_ANY_SOURCE = ("device", "process")
# Options that change how a result is computed, not the result.
_HOW = ("implementation",)
# Repeats that differ by more than this fraction of their median are marked as disturbed.
SCATTER = 0.3


class Ratio(NamedTuple):
    """How many times less something costs than something else.

    Attributes:
        times: The ratio.
        measured: Whether both costs were measured.
        scatters: Whether one of them is a time whose repeats scatter.
    """

    times: float
    measured: bool = True
    scatters: bool = False


def cost(row: CostRow | None, field: str) -> float | None:
    """Return seconds or MB: per input for a module, else of the whole batch; None if unknown."""
    value = getattr(row, field, None)
    if not value:
        return None
    return value / row.batch if row.benchmark == "module" else value


def is_measured(row: CostRow, field: str) -> bool:
    """Whether a cost was measured, rather than extrapolated or estimated."""
    if row.status == "extrapolated" and field != "seconds":
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
    field: str,
    run: str | None = None,
) -> Ratio | None:
    """Return how many times less `line` costs than `reference`.

    Both costs are of `run` or, if it is None, of the first run of the sheet that has both lines;
    memory is compared only if measured in the same way. None if there is no such run or a cost is
    missing.
    """
    for row, other in sheet.together(line, reference, length):
        if run not in (None, row.run):
            continue
        if field == "peak_memory_mb":
            own_cost, other_cost = _memory(row, other)
        else:
            own_cost, other_cost = cost(row, field), cost(other, field)
        if not own_cost or not other_cost:
            return None
        both = row, other
        return Ratio(
            other_cost / own_cost,
            measured=all(is_measured(each, field) for each in both),
            scatters=field == "seconds" and any(map(scatters, both)),
        )
    return None


def _memory(row: CostRow, other: CostRow) -> tuple[float | None, float | None]:
    """Return the memory of two rows, measured in the same way; None if not comparable.

    Rows with different sources are compared by the device's statistics or the growth of processes.
    XLA's analysis replaces such a figure if it is larger: a process grows by less than a program
    needs while its allocator has free memory, and not at all if the program was not run.
    """
    if row.memory_source == other.memory_source:
        return cost(row, "peak_memory_mb"), cost(other, "peak_memory_mb")
    for source in _ANY_SOURCE:
        values = [_memory_by(each, source) for each in (row, other)]
        first, second = (
            max(value or 0, cost(each, "xla_memory_mb") or 0)
            for value, each in zip(values, (row, other), strict=True)
        )
        if any(values) and min(first, second) > 0:
            return first, second
    return None, None


def _memory_by(row: CostRow, source: str) -> float | None:
    """Return the memory of a row by a source, measured or extrapolated from shorter lengths."""
    name = "peak_memory_mb" if row.memory_source == source else f"{source}_memory_mb"
    return cost(row, name)


def same_options(ours: CostRow, peer: CostRow) -> bool:
    """Whether a peer computes the same as ours, to judge by its options."""
    ours_options, peer_options = (
        {name: value for name, value in row.options.items() if name not in _HOW}
        for row in (ours, peer)
    )
    return ours_options == peer_options
