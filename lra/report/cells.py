"""Cells of the tables: the rows of one configuration, one per seed, and their statistics."""

import dataclasses
import functools
import itertools
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lra.report.provenance import Platform, Program, number_format_of, program_of
from lra.row import NUMBER_FORMAT, OF_LAST_DEVICE, STATUSES, Row
from lra.tasks import TASKS

# Display names of the attentions, in the order of Table 3 of the Nyströmformer paper.
TITLES = {
    "standard": "Standard",
    "reformer": "Reformer",
    "linformer": "Linformer",
    "performer": "Performer",
    "nystrom": "Nyströmformer",
    "longformer": "Longformer",
    "linear": "Linear",
}


def attention_title(attention: str) -> str:
    """Return the display name of an attention; its plain name if it is not one of ours."""
    return TITLES.get(attention, attention)


def task_title(task: str) -> str:
    """Return the display name of a task; `Average` for the empty name."""
    return TASKS[task].title if task in TASKS else task or "Average"


class Stat(NamedTuple):
    """Mean, sample standard deviation (None for one value) and number of values."""

    mean: float
    std: float | None
    n: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """Rows of one configuration on the same data, one per seed, trained for equally many steps."""

    rows: tuple[Row, ...]

    @functools.cached_property
    def ok(self) -> tuple[Row, ...]:
        """The rows with accuracies."""
        return tuple(row for row in self.rows if row.status == "ok")

    @property
    def status(self) -> str:
        """`ok` if any row has a result, else `diverged` or `failed`."""
        return next(status for status in STATUSES if self.number_of(status))

    def stat(self, field: str = "test_accuracy") -> Stat | None:
        """Return statistics of a field over the seeds that have it; None if none has."""
        return stat(getattr(row, field) for row in self.rows)

    @functools.cached_property
    def costly(self) -> "Cell":
        """The cell without seeds that ended early (mostly compilation), unless all did."""
        steps = {row.steps for row in self.ok}
        kept = [row for row in self.rows if row.status != "diverged" or row.steps in steps]
        return Cell(tuple(kept)) if steps else self

    def on(self, platform: Platform | None) -> "Cell":
        """Select finished rows of a platform, from the programs that trained most seeds at once.

        Seeds trained together cost less than one by one, so their speeds are not mixed.
        """
        parts = {
            program: part
            for program, part in self.costly.by_program.items()
            if program.platform == platform
        }
        most = max((program.seeds or 0 for program in parts), default=0)
        chosen = [part.rows for program, part in parts.items() if (program.seeds or 0) == most]
        return Cell(tuple(itertools.chain.from_iterable(chosen)))

    @functools.cached_property
    def by_program(self) -> dict[Program, "Cell"]:
        """Finished rows (diverged ones too) by program, within which costs may be pooled."""
        members: dict[Program, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.final:
                members[program_of(row)].append(row)
        return {program: Cell(tuple(rows)) for program, rows in members.items()}

    def known(self, field: str) -> list[float]:
        """Return the known values of a field over the rows.

        If a run moved (`Row.moved`), fields that describe only its last device are left out.
        """
        rows = [row for row in self.rows if not (field in OF_LAST_DEVICE and row.moved)]
        return [value for row in rows if (value := getattr(row, field)) is not None]

    def median(self, field: str) -> float | None:
        """Return the median of the known values of a field; None if there are none."""
        values = self.known(field)
        return statistics.median(values) if values else None

    def number_of(self, status: str) -> int:
        """Count the rows with this status."""
        return sum(row.status == status for row in self.rows)


def stat(values: Iterable[float | None]) -> Stat | None:
    """Return statistics of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Stat(statistics.fmean(known), std, len(known))


def average(cells: Sequence[Cell], field: str = "test_accuracy") -> Stat:
    """Return statistics of the mean over cells with results, one cell per task.

    The standard deviation is that of a mean over single runs, one from each cell: sqrt(sum s^2)
    divided by the number of cells, or None if a cell has no s because it has one seed. The number
    of seeds is the smallest of any cell.
    """
    stats = [cell.stat(field) for cell in cells]
    mean = statistics.fmean(each.mean for each in stats)
    std = None
    if all(each.std is not None for each in stats):
        std = math.hypot(*(each.std for each in stats)) / len(stats)
    return Stat(mean, std, min(each.n for each in stats))


def seeds(cells: Sequence[Cell]) -> str:
    """Describe how many seeds a mean has: `3`, `2 of 3 seeds`, `1 to 3`, `14 of 15 runs`.

    Seeds of several cells are called runs.
    """
    ok = [len(cell.ok) for cell in cells]
    total = sum(len(cell.rows) for cell in cells)
    if sum(ok) < total:
        return f"{sum(ok)} of {total} {'seeds' if len(ok) == 1 else 'runs'}"
    return f"{ok[0]}" if min(ok) == max(ok) else f"{min(ok)} to {max(ok)}"


def number_formats(cells: Iterable[Cell], usual: str | None) -> str:
    """Name the number formats: `float32 and bfloat16`; empty if all cells have the usual one."""
    formats = dict.fromkeys(map(number_format, cells))
    return "" if set(formats) <= {usual} else " and ".join(formats)


def divide_into_cells(rows: Iterable[Row]) -> list[Cell]:
    """Divide the rows of one place in a table into cells, the one with most results first.

    Rows that differ in number format, overrides, data (mark or hash) or number of steps belong to
    different cells, which are shown side by side and never averaged. A diverged seed joins the
    largest cell of its configuration on the same data, and so does a failed one whose row names
    its data; others join the largest cell. If a cell has two rows of one seed, the first result
    counts.
    """
    configurations = defaultdict(list)
    for row in rows:
        configurations[_overrides(row), row.protocol, row.data, number_format_of(row)].append(row)
    result = []
    for members in configurations.values():
        alike: dict[tuple, dict[int, Row]] = defaultdict(dict)
        for row in members:
            if row.status == "ok":
                alike[row.steps, row.data_sha256].setdefault(row.seed, row)
        cells = sorted(alike.values(), key=len, reverse=True)
        # Rows that name no data come last, so that there is a cell for them to join.
        for row in sorted(members, key=lambda row: (not row.final, row.data_sha256 is None)):
            if row.status != "ok":
                _cell_to_join(row, cells).setdefault(row.seed, row)
        result += [Cell(tuple(cell[seed] for seed in sorted(cell))) for cell in cells]
    return sorted(result, key=lambda cell: len(cell.ok), reverse=True)


def _cell_to_join(row: Row, cells: list[dict[int, Row]]) -> dict[int, Row]:
    """Return the cell of `cells` (largest first), or a new one, that a row without result joins.

    A failed run may have ended before it read its data, so its row need not name them.
    """
    for cell in cells:
        if row.data_sha256 in {other.data_sha256 for other in cell.values()}:
            return cell
    if row.final or row.data_sha256 or not cells:
        cells.append({})
        return cells[-1]
    return cells[0]


def _overrides(row: Row) -> str:
    """Format overrides as JSON, without seeds and number format, which not every row lists."""
    left_out = ("seeds", *NUMBER_FORMAT)
    values = {key: value for key, value in row.config_overrides.items() if key not in left_out}
    return json.dumps(values, sort_keys=True)


def differences(cells: list[Cell]) -> list[str]:
    """Label each of several cells in one place by how it differs: `2,500 steps`, `data=mine`.

    Number formats are left out: `number_formats` names them. Protocol and overrides are named only
    if nothing else distinguishes two cells, as when the same options are spelled differently.
    """
    rows = [(cell.ok or cell.rows)[0] for cell in cells]
    labels: list[list[str]] = [[] for _ in rows]
    for texts in (
        [f"{row.steps:,} step{'' if row.steps == 1 else 's'}" for row in rows],
        [f"data={row.data}" for row in rows],
        [f"data {(row.data_sha256 or 'unknown')[:8]}" for row in rows],
    ):
        if len(set(texts)) > 1:
            for label, text in zip(labels, texts, strict=True):
                label.append(text)
    for texts in ([row.protocol for row in rows], [_overrides(row) for row in rows]):
        if len(set(map(tuple, labels))) < len(rows) and len(set(texts)) > 1:
            for label, text in zip(labels, texts, strict=True):
                label.append(text)
    return [", ".join(label) for label in labels]


def number_format(cell: Cell) -> str:
    """Return the number format of a cell: `float32`, `bfloat16`, `tensorfloat32 products`."""
    return number_format_of(cell.rows[0])


def usual_platform(cells: Iterable[Cell]) -> Platform | None:
    """Return the platform with most results, preferably of runs that did not move.

    None if there are no results.
    """
    parts = [
        (program.platform, part.ok)
        for cell in cells
        for program, part in cell.by_program.items()
        if part.ok
    ]
    stayed = [(platform, rows) for platform, rows in parts if not rows[0].moved]
    results: Counter[Platform] = Counter()
    for platform, rows in stayed or parts:
        results[platform] += len(rows)
    return min(results, key=lambda platform: (-results[platform], str(platform)), default=None)


def value_order(value: Any) -> tuple[int, float, str]:
    """Sort key for the values of an option: numbers by size, before anything else."""
    return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value))


def attention_order(attention: str) -> tuple[int, str]:
    """Sort key for attentions: the order of `TITLES`, then the others by name."""
    order = list(TITLES)
    return (order.index(attention) if attention in TITLES else len(order), attention)
