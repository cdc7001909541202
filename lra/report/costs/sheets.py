"""Costs: rows of `lra.efficiency` in sheets, a line a method and a column a length.

Times of different runs are never compared. The cells of a sheet are of the run that has most of
them, others only where that one has none, and a ratio is of two cells of one run.
"""

import dataclasses
import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from lra.efficiency import BENCHMARKS, CostRow
from lra.report.cells import attention_order, attention_title

# The two passes, in the order of the tables.
MODES = {"forward": "forward", "forward_backward": "forward and backward"}


class Line(NamedTuple):
    """What a line of a sheet is: a method of some size, of ours or of a peer."""

    method: str
    source: str
    label: str
    size: int | None

    @property
    def ours(self) -> bool:
        """Whether it is of this project."""
        return self.source == "ours"

    @property
    def title(self) -> str:
        """What tables call it: `Nyströmformer-64`, `Standard (chunked)`."""
        title = attention_title(self.method)
        # By a function: a backslash in the name of a method begins no group.
        return re.sub(rf"^{re.escape(self.method)}\b", lambda _: title, self.label)


class Setting(NamedTuple):
    """What all cells of a section share; `tokens` only where their number is fixed."""

    benchmark: str
    dim: int
    heads: int
    dtype: str
    matmul_precision: str | None
    device: str
    threads: int | None
    tokens: int | None

    @property
    def place(self) -> str:
        """What it ran on: `AMD EPYC, 1 thread`."""
        if self.threads is None:
            return self.device
        return f"{self.device}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    @property
    def shape(self) -> str:
        """Sizes and number format."""
        exact = self.dtype != "float32" or self.matmul_precision in (None, "float32")
        products = "" if exact else f" ({self.matmul_precision} products)"
        return f"d = {self.dim:,}, {self.heads} heads, {self.dtype}{products}"


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Rows of one setting and pass.

    Attributes:
        setting: what they share.
        mode: key of `MODES`.
        batch: of all cells; None where each has its own: it fills the device, or makes up the
            setting's tokens.
        runs: by how many of its cells they have, most first; of equals the latest first.
        rows: of a line and length, in the order of `runs`.
    """

    setting: Setting
    mode: str
    batch: int | None
    runs: tuple[str, ...]
    rows: dict[tuple[Line, int], tuple[CostRow, ...]]

    @functools.cached_property
    def lengths(self) -> list[int]:
        """Its columns."""
        return sorted({length for _, length in self.rows})

    @functools.cached_property
    def lines(self) -> list[Line]:
        """Ours, then peers; each in the order of the other tables, sizes ascending."""
        return sorted(dict.fromkeys(line for line, _ in self.rows), key=_order)

    @property
    def fills(self) -> bool:
        """Whether the batch of each cell was chosen to fill the device."""
        return self.batch is None and self.setting.tokens is None

    @functools.cached_property
    def in_parts(self) -> bool:
        """Whether the batch of a model was, or may have been, taken in parts (`lra.parts`).

        Its memory is then that of a part, and parts of longer sequences have fewer of them.
        """
        rows = [row for line in self.lines for row in self.all_rows(line)]
        measured = [row for row in rows if row.status in ("ok", "extrapolated")]
        return self.setting.benchmark == "model" and any(row.parts != 1 for row in measured)

    @property
    def batches(self) -> str:
        """The batch in words."""
        if self.batch is not None:
            return f"batch {self.batch:,}"
        if self.setting.tokens is not None:
            return f"{self.setting.tokens:,} tokens at each length"
        return "batches that fill the device"

    @functools.cached_property
    def memory_source(self) -> str | None:
        """How the memory of most cells of ours was taken; of all cells where none is of ours."""
        for ours in (True, False):
            lines = [line for line in self.lines if line.ours == ours]
            rows = [row for line in lines for row in self.all_rows(line)]
            sources = Counter(row.memory_source for row in rows if row.memory_source)
            if sources:
                return sources.most_common(1)[0][0]
        return None

    @functools.cached_property
    def reference(self) -> Line | None:
        """What costs are relative to: exact attention that holds all its scores, where measured."""
        exact = [line for line in self.lines if line.ours and line.method == "standard"]
        plain = [line for line in exact if "xla" in line.label]
        return (plain or exact or [None])[0]

    def row(self, line: Line | None, length: int) -> CostRow | None:
        """What a cell shows: the first run's row, or what another measured where it did not."""
        rows = self.rows.get((line, length), (None,))
        if rows[0] and _is_predicted(rows[0]):
            return next((row for row in rows if row.status == "ok"), rows[0])
        return rows[0]

    def is_of_another_run(self, row: CostRow) -> bool:
        """Whether it is not of the run that most cells are of."""
        return row.run != self.runs[0]

    @property
    def is_mixed(self) -> bool:
        """Whether some cells are of another run than most."""
        rows = (row for line in self.lines for row in self.all_rows(line))
        return any(map(self.is_of_another_run, rows))

    def all_rows(self, line: Line) -> list[CostRow]:
        """What each cell of a line shows."""
        return [row for length in self.lengths if (row := self.row(line, length))]

    def of_lines(self, lines: Collection[Line]) -> "Sheet":
        """Some of its lines, as a sheet of their own: another run may have most of its cells."""
        cells = {cell: rows for cell, rows in self.rows.items() if cell[0] in lines}
        rows = [row for of_cell in cells.values() for row in of_cell]
        runs = _by_coverage(rows)
        return dataclasses.replace(self, runs=runs, rows=_by_cell(rows, runs))

    def together(self, one: Line | None, other: Line | None, length: int) -> Iterable[tuple]:
        """Rows of both lines at a length, of one run each time, in the order of `runs`."""
        others = {row.run: row for row in self.rows.get((other, length), ())}
        for row in self.rows.get((one, length), ()):
            if row.run in others:
                yield row, others[row.run]


def exceeds(row: CostRow) -> bool:
    """Whether the memory that it needs, as far as that is known, is more than there was.

    XLA's analysis may fall short of what a program takes: one that ran out need not exceed.
    """
    if None in (row.peak_memory_mb, row.memory_limit_mb):
        return False
    return row.peak_memory_mb > row.memory_limit_mb


def _is_predicted(row: CostRow) -> bool:
    return row.status == "extrapolated" or (row.status == "out_of_memory" and exceeds(row))


def first_of_each_mode(of_setting: list[Sheet]) -> list[Sheet]:
    """Of sheets that differ in their batch alone, the first: that of the smallest batch."""
    found: dict[str, Sheet] = {}
    for sheet in of_setting:
        found.setdefault(sheet.mode, sheet)
    return [found[mode] for mode in MODES if mode in found]


def sheets(rows: Iterable[CostRow]) -> dict[Setting, list[Sheet]]:
    """All rows, by setting in the order of the report, then by batch and pass."""
    by_sheet = defaultdict(list)
    for row in rows:
        has_own = row.filled or row.benchmark == "fixed_tokens"
        by_sheet[_setting(row), None if has_own else row.batch, row.mode].append(row)
    found: dict[Setting, list[Sheet]] = defaultdict(list)
    for setting, batch, mode in sorted(by_sheet, key=_sheet_order):
        members = by_sheet[setting, batch, mode]
        runs = _by_coverage(members)
        found[setting].append(Sheet(setting, mode, batch, runs, _by_cell(members, runs)))
    return dict(found)


def _setting(row: CostRow) -> Setting:
    tokens = row.batch * row.length if row.benchmark == "fixed_tokens" else None
    return Setting(
        row.benchmark,
        row.dim,
        row.heads,
        row.dtype,
        row.matmul_precision,
        row.device,
        row.threads,
        tokens,
    )


def _sheet_order(key: tuple[Setting, int | None, str]) -> tuple:
    setting, batch, mode = key
    numbers = (setting.dtype != "float32", setting.matmul_precision or "")
    size = (setting.dim, setting.heads, *numbers, setting.tokens or 0)
    place = (setting.device, setting.threads or math.inf)
    of_sheet = (math.inf if batch is None else batch, list(MODES).index(mode))
    return BENCHMARKS.index(setting.benchmark), *place, *size, *of_sheet


def _by_coverage(rows: list[CostRow]) -> tuple[str, ...]:
    """The runs of a sheet, as `Sheet.runs` has them."""
    cells: dict[str, set[tuple[Line, int]]] = defaultdict(set)
    ended: dict[str, tuple[str, int]] = {}
    for position, row in enumerate(rows):
        cells[row.run].add((_line(row), row.length))
        ended[row.run] = max((row.finished, position), ended.get(row.run, ("", 0)))
    return tuple(sorted(cells, key=lambda run: (len(cells[run]), ended[run]), reverse=True))


def _by_cell(
    rows: list[CostRow], runs: tuple[str, ...]
) -> dict[tuple[Line, int], tuple[CostRow, ...]]:
    """The rows of each cell, one a run (its last), in the order of `runs`."""
    chosen: dict[tuple[Line, int], dict[str, CostRow]] = defaultdict(dict)
    for row in rows:
        chosen[_line(row), row.length][row.run] = row
    return {
        cell: tuple(by_run[run] for run in runs if run in by_run) for cell, by_run in chosen.items()
    }


def _line(row: CostRow) -> Line:
    size = re.match(rf"{re.escape(row.method)}-(\d{{1,18}})(?!\d)", row.label)
    return Line(row.method, row.source, row.label, int(size[1]) if size else None)


def _order(line: Line) -> tuple:
    blockwise = "xla" not in line.label
    return not line.ours, attention_order(line.method), blockwise, line.size or 0, line.label
