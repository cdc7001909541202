"""Sheets: rows of `lra.efficiency` in a grid with a line per method and a column per length.

Times of different runs are never compared. A sheet shows the run that has most of its cells, and
other runs only in cells that this run lacks; a ratio is always of two rows of one run.
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
    """A line of a sheet: a method in one size, ours or a peer's."""

    method: str
    source: str
    label: str
    size: int | None

    @property
    def ours(self) -> bool:
        """Whether the implementation is ours rather than a peer's."""
        return self.source == "ours"

    @property
    def holds_scores(self) -> bool:
        """Whether it is exact attention that is not computed block by block."""
        return "xla" in self.label

    @property
    def title(self) -> str:
        """Display name: `Nyströmformer-64`, `Standard (chunked)`."""
        title = attention_title(self.method)
        # A function, since a backslash in a title would be special in a replacement string.
        return re.sub(rf"^{re.escape(self.method)}\b", lambda _: title, self.label)


class Setting(NamedTuple):
    """What all cells of a section share.

    `tokens` is None unless their number is fixed, `jax` if the version is not known.
    """

    benchmark: str
    dim: int
    heads: int
    dtype: str
    matmul_precision: str | None
    device: str
    threads: int | None
    jax: str | None
    tokens: int | None

    @property
    def place(self) -> str:
        """Device, number of threads and version of JAX: `AMD EPYC, 1 thread, JAX 0.12.0`."""
        parts = [self.device]
        if self.threads is not None:
            parts.append(f"{self.threads} thread{'' if self.threads == 1 else 's'}")
        if self.jax is not None:
            parts.append(f"JAX {self.jax}")
        return ", ".join(parts)

    @property
    def shape(self) -> str:
        """Sizes and number format: `d = 64, 2 heads, float32`."""
        exact = self.dtype != "float32" or self.matmul_precision in (None, "float32")
        products = "" if exact else f" ({self.matmul_precision} products)"
        return f"d = {self.dim:,}, {self.heads} heads, {self.dtype}{products}"


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Rows of one setting and pass.

    Attributes:
        setting: Setting that all rows share.
        mode: Pass, a key of `MODES`.
        batch: Batch size of all cells; None if each cell has its own, which fills the device or
            makes up the setting's tokens.
        runs: Runs, the one with most cells of the sheet first; in a tie the latest first.
        rows: Rows by line and length, one per run, in the order of `runs`.
    """

    setting: Setting
    mode: str
    batch: int | None
    runs: tuple[str, ...]
    rows: dict[tuple[Line, int], tuple[CostRow, ...]]

    @functools.cached_property
    def lengths(self) -> list[int]:
        """Lengths, the columns of the sheet."""
        return sorted({length for _, length in self.rows})

    @functools.cached_property
    def lines(self) -> list[Line]:
        """Our lines, then peers; both in the order of the other tables, by ascending size."""
        return sorted(dict.fromkeys(line for line, _ in self.rows), key=_line_order)

    @property
    def fills(self) -> bool:
        """Whether the batch of each cell was chosen to fill the device."""
        return self.batch is None and self.setting.tokens is None

    @functools.cached_property
    def in_parts(self) -> bool:
        """Whether a model's batch was, or may have been, processed in parts (`lra.plan`).

        Memory is then that of one part, and a part has fewer sequences the longer they are.
        """
        rows = [row for line in self.lines for row in self.all_rows(line)]
        measured = [row for row in rows if row.status in ("ok", "extrapolated")]
        return self.setting.benchmark == "model" and any(row.parts != 1 for row in measured)

    @property
    def batches(self) -> str:
        """Description of the batch."""
        if self.batch is not None:
            return f"batch {self.batch:,}"
        if self.setting.tokens is not None:
            return f"{self.setting.tokens:,} tokens at each length"
        return "batches that fill the device"

    @functools.cached_property
    def memory_source(self) -> str | None:
        """How memory was measured in most of our cells; in most cells if in none of ours."""
        for ours in (True, False):
            lines = [line for line in self.lines if line.ours == ours]
            rows = [row for line in lines for row in self.all_rows(line)]
            sources = Counter(row.memory_source for row in rows if row.memory_source)
            if sources:
                return sources.most_common(1)[0][0]
        return None

    @functools.cached_property
    def reference(self) -> Line | None:
        """Line to which costs are relative: exact attention, not in blocks if that was measured."""
        exact = [line for line in self.lines if line.ours and line.method == "standard"]
        plain = [line for line in exact if line.holds_scores]
        return (plain or exact or [None])[0]

    def row(self, line: Line | None, length: int) -> CostRow | None:
        """Return the row that a cell shows: the first run's unless only another's is measured."""
        rows = self.rows.get((line, length), (None,))
        if rows[0] and _is_predicted(rows[0]):
            return next((row for row in rows if row.status == "ok"), rows[0])
        return rows[0]

    def is_of_another_run(self, row: CostRow) -> bool:
        """Whether a row belongs to another run than most cells."""
        return row.run != self.runs[0]

    @property
    def is_mixed(self) -> bool:
        """Whether some cells belong to another run than most."""
        rows = (row for line in self.lines for row in self.all_rows(line))
        return any(map(self.is_of_another_run, rows))

    def all_rows(self, line: Line) -> list[CostRow]:
        """Return the rows that the cells of a line show."""
        return [row for length in self.lengths if (row := self.row(line, length))]

    def of_lines(self, lines: Collection[Line]) -> "Sheet":
        """Return a sheet of some of the lines, in which another run may have most cells."""
        cells = {cell: rows for cell, rows in self.rows.items() if cell[0] in lines}
        rows = [row for cell_rows in cells.values() for row in cell_rows]
        runs = _by_coverage(rows)
        return dataclasses.replace(self, runs=runs, rows=_by_cell(rows, runs))

    def together(self, one: Line | None, other: Line | None, length: int) -> Iterable[tuple]:
        """Iterate over pairs of both lines' rows at a length, each of one run, in `runs` order."""
        others = {row.run: row for row in self.rows.get((other, length), ())}
        for row in self.rows.get((one, length), ()):
            if row.run in others:
                yield row, others[row.run]


def exceeds(row: CostRow) -> bool:
    """Whether the memory that a row needs is known to exceed what was available.

    XLA's analysis may be too low, so a program that ran out of memory need not exceed the limit.
    """
    if None in (row.peak_memory_mb, row.memory_limit_mb):
        return False
    return row.peak_memory_mb > row.memory_limit_mb


def _is_predicted(row: CostRow) -> bool:
    return row.status == "extrapolated" or (row.status == "out_of_memory" and exceeds(row))


def first_of_each_mode(setting_sheets: list[Sheet]) -> list[Sheet]:
    """Return the first sheet of each mode, which is that of the smallest batch."""
    first: dict[str, Sheet] = {}
    for sheet in setting_sheets:
        first.setdefault(sheet.mode, sheet)
    return [first[mode] for mode in MODES if mode in first]


def sheets(rows: Iterable[CostRow]) -> dict[Setting, list[Sheet]]:
    """Arrange rows in sheets, by setting in the order of the report, then by batch and pass."""
    by_sheet = defaultdict(list)
    for row in rows:
        batch_varies = row.filled or row.benchmark == "fixed_tokens"
        by_sheet[_setting(row), None if batch_varies else row.batch, row.mode].append(row)
    result: dict[Setting, list[Sheet]] = defaultdict(list)
    for setting, batch, mode in sorted(by_sheet, key=_sheet_order):
        members = by_sheet[setting, batch, mode]
        runs = _by_coverage(members)
        result[setting].append(Sheet(setting, mode, batch, runs, _by_cell(members, runs)))
    return dict(result)


def _setting(row: CostRow) -> Setting:
    tokens = row.batch * row.length if row.benchmark == "fixed_tokens" else None
    jax = (row.versions or {}).get("jax")
    return Setting(
        row.benchmark,
        row.dim,
        row.heads,
        row.dtype,
        row.matmul_precision,
        row.device,
        row.threads,
        None if jax is None else str(jax),
        tokens,
    )


def _sheet_order(key: tuple[Setting, int | None, str]) -> tuple:
    setting, batch, mode = key
    number_format = (setting.dtype != "float32", setting.matmul_precision or "")
    size = (setting.dim, setting.heads, *number_format, setting.tokens or 0)
    place = (setting.device, setting.threads or math.inf)
    numbers = re.findall(r"\d{1,9}", setting.jax or "")
    newest_first = [*(-int(number) for number in numbers), 0]  # 0.12.0.1 before 0.12.0
    batch_and_mode = (math.inf if batch is None else batch, list(MODES).index(mode))
    return BENCHMARKS.index(setting.benchmark), *place, *size, newest_first, *batch_and_mode


def _by_coverage(rows: list[CostRow]) -> tuple[str, ...]:
    """Return the runs of rows, in the order of `Sheet.runs`."""
    cells: dict[str, set[tuple[Line, int]]] = defaultdict(set)
    ended: dict[str, tuple[str, int]] = {}
    for position, row in enumerate(rows):
        cells[row.run].add((_line(row), row.length))
        ended[row.run] = max((row.finished, position), ended.get(row.run, ("", 0)))
    return tuple(sorted(cells, key=lambda run: (len(cells[run]), ended[run]), reverse=True))


def _by_cell(
    rows: list[CostRow], runs: tuple[str, ...]
) -> dict[tuple[Line, int], tuple[CostRow, ...]]:
    """Return the rows of each cell: the last row of each run, in the order of `runs`."""
    chosen: dict[tuple[Line, int], dict[str, CostRow]] = defaultdict(dict)
    for row in rows:
        chosen[_line(row), row.length][row.run] = row
    return {
        cell: tuple(by_run[run] for run in runs if run in by_run) for cell, by_run in chosen.items()
    }


def _line(row: CostRow) -> Line:
    size = re.match(rf"{re.escape(row.method)}-(\d{{1,18}})(?!\d)", row.label)
    return Line(row.method, row.source, row.label, int(size[1]) if size else None)


def _line_order(line: Line) -> tuple:
    blockwise = not line.holds_scores
    return not line.ours, attention_order(line.method), blockwise, line.size or 0, line.label
