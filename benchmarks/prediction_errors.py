"""How far off are estimated times of runs, and costs extrapolated to longer sequences?

    python -m benchmarks.prediction_errors results/*.jsonl

What was measured is predicted from other rows of the files, and divided by the measurement:

- each run as by `lra.sweep --dry_run`, from the rows of all other runs, as if the latest of them
  were of its device, which one of them has to be; `about` and `~` are its words for how much it may
  be off;
- time and memory of `speed_memory` as it extrapolates them, from lengths of the same series up to
  the next shorter one, or the one before.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchmarks import markdown
from benchmarks.cases import OURS, Contender
from benchmarks.measured import Measured, series_of
from lra.command_line import ArgumentParser, run
from lra.efficiency import CostRow
from lra.errors import UserError
from lra.report.reading import read
from lra.row import Row, key, latest
from lra.sweep.estimate import estimate, rows_with_costs
from lra.sweep.runs import Run
from lra.sweep.under_way import UnderWay

_NEAR = 1.3


class Ratio(NamedTuple):
    """A prediction over what was measured.

    Attributes:
        kind: What was predicted, in words.
        value: The ratio.
    """

    kind: str
    value: float


def main(argv: list[str]) -> int:
    """Print number, median and range of the ratios of each kind."""
    parser = ArgumentParser(prog="python -m benchmarks.prediction_errors", description=__doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl", help="files of rows")
    rows = read(parser.parse_args(argv).rows)
    values: dict[str, list[float]] = defaultdict(list)
    for ratio in (*of_runs(rows.accuracies), *of_costs(rows.costs)):
        values[ratio.kind].append(ratio.value)
    if not values:
        raise UserError("these rows leave nothing to predict from others")
    titles = ("prediction", "number", "median", "least", "most", f"within {_NEAR:g} times")
    print(markdown.header(titles))
    for kind, ratios in sorted(values.items()):
        numbers = statistics.median(ratios), min(ratios), max(ratios)
        near = sum(1 / _NEAR <= ratio <= _NEAR for ratio in ratios)
        cells = [kind, f"{len(ratios)}", *(f"{number:.2f}" for number in numbers), f"{near}"]
        print(markdown.line(cells))
    return 0


def of_runs(rows: list[Row]) -> Iterator[Ratio]:
    """Yield the ratios of estimated times of runs, each a program with all its seeds."""
    costs = rows_with_costs(latest(rows))
    programs: dict[tuple, list[Row]] = defaultdict(list)
    for row in costs:
        programs[*key(row)[:3], row.data, row.commit, row.wall_seconds].append(row)
    for members in programs.values():
        first = members[0]
        others = [row for row in costs if row not in members]
        others.sort(key=lambda row: row.devices == first.devices)  # stable: its device comes last
        if not others or others[-1].devices != first.devices:
            continue
        if found := estimate(_run(first), UnderWay(), others, first.data.__eq__):
            kind = "time of a run, ~" if found.rough else "time of a run, about"
            yield Ratio(kind, found.seconds / first.wall_seconds)


def _run(row: Row) -> Run:
    """The run of a row's program, some of whose seeds may have diverged."""
    seeds = tuple(range(row.seeds_in_program))
    names = row.task, row.attention, row.protocol
    return Run("", (), seeds, *names, changed=row.config_overrides, config=row.config)


def of_costs(rows: Iterable[CostRow]) -> Iterator[Ratio]:
    """Yield the ratios of time and memory of the lengths of each series."""
    series: dict[tuple, dict[int, CostRow]] = defaultdict(dict)
    for row in rows:
        if row.status == "ok" and not row.filled:
            series[row.run, series_of(row.label, row)][row.length] = row
    for by_length in series.values():
        lengths = sorted(by_length)
        for at, length in enumerate(lengths):
            for before in (1, 2):
                known = [by_length[shorter] for shorter in lengths[: max(0, at + 1 - before)]]
                yield from _of_length(by_length[length], known, before)


def _of_length(row: CostRow, known: list[CostRow], before: int) -> Iterator[Ratio]:
    measured, contender = Measured(), _contender(row)
    for shorter in known:
        measured.remember(shorter)
    exact = "exact attention" if row.method == "standard" else "approximations"
    kind = f"of {exact}, {'next' if before == 1 else 'second next'} length"
    seconds = measured.seconds(contender, row, row.flops)
    memory = measured.memory(contender, row)
    if seconds and row.seconds:
        yield Ratio(f"time {kind}", seconds / row.seconds)
    if memory and row.peak_memory_mb and len(known) > 1:
        yield Ratio(f"memory {kind}", memory[0] / 1e6 / row.peak_memory_mb)


def _contender(row: CostRow) -> Contender:
    peer = OURS if row.source == OURS else row.label.rpartition("(")[2].rstrip(")")
    return Contender(row.method, row.options, peer, row.label)


if __name__ == "__main__":
    run(main)
