"""Tables of costs in the papers' layout: absolute, relative to exact attention, and published."""

from typing import NamedTuple

from lra.efficiency import CostRow
from lra.published_efficiency import (
    LRA_MEMORY,
    LRA_SOURCE,
    LRA_STEPS,
    TABLE1_MEMORY,
    TABLE1_SOURCE,
    TABLE1_TIME,
    Published,
)
from lra.report.costs.notes import (
    EXTRAPOLATED,
    OTHER_RUN,
    OTHER_SOURCE,
    SCATTERED,
    notes,
)
from lra.report.costs.ratios import Ratio, cost, is_measured, scatters, times_less
from lra.report.costs.sheets import MODES, Line, Setting, Sheet, exceeds
from lra.report.places import MISSING
from lra.report.table import Table

_FILLING = (
    "A batch that fills the device is, for each method and length alone, the largest power of two "
    "that fits in memory and whose call takes no longer than about a second (--fill_seconds); it "
    "is 1 where one input takes as long."
)

# Factors from the fields of rows to milliseconds and megabytes.
SCALES = {"seconds": 1000, "peak_memory_mb": 1}

_TITLES = {
    "module": "Cost of one attention module",
    "model": "Cost of training the two-layer model on Text",
    "fixed_tokens": "Cost at a fixed number of tokens",
}


class _Quantity(NamedTuple):
    """What the cells of a table show: a field of the rows, in some unit.

    For a rate, such as steps per second, higher is better, and the field is its inverse.
    """

    field: str
    title: str
    unit: str
    published: tuple[Published, ...] = ()
    source: str = ""
    is_rate: bool = False

    def of(self, row: CostRow) -> float | None:
        """Return the quantity for a row; None if unknown."""
        value = cost(row, self.field)
        if not value:
            return None
        return 1 / value if self.is_rate else SCALES[self.field] * value


def _quantities(sheet: Sheet) -> tuple[_Quantity, _Quantity]:
    """Return time and memory, in the units of the paper that has such a table."""
    benchmark = sheet.setting.benchmark
    per = {"model": "", "fixed_tokens": " of all tokens", "module": " per input"}[benchmark]
    time = _Quantity("seconds", "Time", f"Milliseconds{per}")
    memory = _Quantity("peak_memory_mb", "Memory", f"Peak megabytes{per}")
    if benchmark == "model":
        title, unit = "Steps per second", "Training steps per second"
        time = _Quantity("seconds", title, unit, LRA_STEPS, LRA_SOURCE, is_rate=True)
        memory = memory._replace(published=LRA_MEMORY, source=LRA_SOURCE)
    if benchmark == "module" and sheet.mode == "forward" and not sheet.fills:
        time = time._replace(published=TABLE1_TIME, source=TABLE1_SOURCE)
        memory = memory._replace(published=TABLE1_MEMORY, source=TABLE1_SOURCE)
    return time, memory


def section_title(setting: Setting) -> str:
    """Return the heading of a setting's section."""
    tokens = f" ({setting.tokens:,})" if setting.tokens else ""
    return f"{_TITLES[setting.benchmark]}{tokens}: {setting.shape}; {setting.place}"


def describe(sheet: Sheet, *, of_batch: bool = True) -> str:
    """Describe device, sizes and pass of a table: tables that agree in these are comparable.

    Args:
        sheet: Sheet of the table.
        of_batch: Whether to name the batch.
    """
    setting = sheet.setting
    text = f"{setting.place}; {setting.shape}, {MODES[sheet.mode]}"
    if not of_batch:
        return f"{text}."
    text = f"{text}, {sheet.batches}."
    return f"{text} {_FILLING}" if sheet.fills else text


def paper_tables(sheet: Sheet) -> list[Table]:
    """Tabulate time (or steps/s) and memory of every line at every length.

    Published lines stand beneath our line of the same method and size, if there is one.
    """
    return [_paper_table(sheet, quantity) for quantity in _quantities(sheet)]


def _paper_table(sheet: Sheet, quantity: _Quantity) -> Table:
    beneath = _published_beneath(sheet, quantity.published)
    published = [theirs for group in beneath.values() for theirs in group]
    lengths = sorted({*sheet.lengths, *(n for theirs in published for n in theirs.values)})
    lines = []
    for line in sheet.lines:
        lines.append([line.title, *(_cell(sheet, line, n, quantity) for n in lengths)])
        lines += [_published_line(theirs, quantity, lengths) for theirs in beneath.get(line, [])]
    title = f"{quantity.title}, {MODES[sheet.mode]}, {sheet.batches}"
    caption = f"{quantity.unit}; {_relative(sheet, quantity)} {describe(sheet)}"
    header = ["Attention", *(f"{n:,}" for n in lengths)]
    source = [quantity.source] if published else []
    return Table(title, caption, header, lines, source + notes(sheet, lines, quantity.field))


def _relative(sheet: Sheet, quantity: _Quantity) -> str:
    if sheet.reference is None:
        return "exact attention was not measured."
    better = "less memory" if quantity.field == "peak_memory_mb" else "faster"
    return f"in brackets, how many times {better} than {sheet.reference.title} in the same run."


def _cell(sheet: Sheet, line: Line, length: int, quantity: _Quantity) -> str:
    """`12.3 (3.61×)`, `~12.3† (~3.61×)`, `OOM (needs 34.4 GB)`, `OOM`, `unsupported` or `–`."""
    row = sheet.row(line, length)
    if row is None:
        return MISSING
    if row.status == "out_of_memory":
        return f"OOM (needs {short(row.peak_memory_mb / 1000)} GB)" if exceeds(row) else "OOM"
    if row.status == "unsupported":
        return "unsupported"
    value = quantity.of(row)
    if value is None:
        return MISSING
    mark = "" if is_measured(row, quantity.field) else EXTRAPOLATED
    text = f"{mark}{short(value)}"
    if quantity.field == "peak_memory_mb" and row.memory_source != sheet.memory_source:
        text += OTHER_SOURCE
    if sheet.is_of_another_run(row):
        text += OTHER_RUN
    if quantity.field == "seconds" and scatters(row):
        text += SCATTERED
    ratio = times_less(sheet, line, sheet.reference, length, quantity.field, row.run)
    return f"{text} ({ratio_text(ratio)})" if ratio else text


def ratio_text(ratio: Ratio | None) -> str:
    """Format a ratio: `3.61×`, `~3.61×` if it was not measured, `3.61×‡` if a time scatters."""
    if ratio is None:
        return MISSING
    before = "" if ratio.measured else EXTRAPOLATED
    return f"{before}{short(ratio.times)}×{SCATTERED if ratio.scatters else ''}"


def short(value: float) -> str:
    """Format a number with three significant digits: `0.0840`, `1.23`, `12.3`, `123`, `1,234`."""
    if value < 1:
        return f"{value:#.3g}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"


def _published_beneath(
    sheet: Sheet, published: tuple[Published, ...]
) -> dict[Line, list[Published]]:
    """Return published lines by our line of the same method and size; others are left out."""
    result: dict[Line, list[Published]] = {}
    for theirs in published:
        ours = next((line for line in sheet.lines if _is_published(line, sheet, theirs)), None)
        if ours is not None:
            result.setdefault(ours, []).append(theirs)
    return result


def _is_published(line: Line, sheet: Sheet, theirs: Published) -> bool:
    """Whether a published line has the method and size of this line."""
    if not line.ours or line.method != theirs.method:
        return False
    if line.method == "standard":
        return line == sheet.reference
    return theirs.size in (None, line.size)


def _published_line(theirs: Published, quantity: _Quantity, lengths: list[int]) -> list[str]:
    texts = [
        f"{value:,} ({_published_times(theirs, quantity, length):.1f}×)"
        if (value := theirs.values.get(length))
        else MISSING
        for length in lengths
    ]
    return [f"{theirs.title}, published", *texts]


def _published_times(theirs: Published, quantity: _Quantity, length: int) -> float:
    """Return how many times better than exact attention it is, as printed or else computed."""
    if theirs.times:
        return theirs.times[length]
    times = quantity.published[0].values[length] / theirs.values[length]
    return 1 / times if quantity.is_rate else times
