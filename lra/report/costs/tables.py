"""Tables of cost in the papers' layout: absolute, relative to exact attention, and published."""

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
from lra.report.costs.ratios import cost, is_measured, scatters, times_less
from lra.report.costs.sheets import MODES, Line, Setting, Sheet, exceeds
from lra.report.tables import MISSING, Table

_FILLING = (
    "A batch that fills the device is, for each method and length alone, the largest power of two "
    "that fits in memory and whose call takes no longer than about a second (--fill_seconds); it "
    "is 1 where one input takes as long."
)

# From the fields of rows to milliseconds and megabytes.
SCALES = {"seconds": 1000, "peak_memory_mb": 1}

_TITLES = {
    "module": "Cost of one attention module",
    "model": "Cost of training the two-layer model on Text",
    "fixed_tokens": "Cost at a fixed number of tokens",
}


class _Quantity(NamedTuple):
    """What the cells of a table show: a field of the rows (`what`), in some unit.

    Of a rate, such as steps per second, more is better, and the field is its inverse.
    """

    what: str
    title: str
    unit: str
    published: tuple[Published, ...] = ()
    source: str = ""
    is_rate: bool = False

    def of(self, row: CostRow) -> float | None:
        """The number of a row; None if unknown."""
        found = cost(row, self.what)
        if not found:
            return None
        return 1 / found if self.is_rate else SCALES[self.what] * found


def _quantities(sheet: Sheet) -> tuple[_Quantity, _Quantity]:
    """Time and memory, in the units of the paper whose table it is."""
    benchmark = sheet.setting.benchmark
    of = {"model": "", "fixed_tokens": " of all tokens", "module": " per input"}[benchmark]
    time = _Quantity("seconds", "Time", f"Milliseconds{of}")
    memory = _Quantity("peak_memory_mb", "Memory", f"Peak megabytes{of}")
    if benchmark == "model":
        title, unit = "Steps per second", "Training steps per second"
        time = _Quantity("seconds", title, unit, LRA_STEPS, LRA_SOURCE, is_rate=True)
        memory = memory._replace(published=LRA_MEMORY, source=LRA_SOURCE)
    if benchmark == "module" and sheet.mode == "forward":
        time = time._replace(published=TABLE1_TIME, source=TABLE1_SOURCE)
        memory = memory._replace(published=TABLE1_MEMORY, source=TABLE1_SOURCE)
    return time, memory


def section_title(setting: Setting) -> str:
    """The heading of a setting's section."""
    tokens = f" ({setting.tokens:,})" if setting.tokens else ""
    return f"{_TITLES[setting.benchmark]}{tokens}: {setting.shape}; {setting.place}"


def describe(sheet: Sheet, *, of_batch: bool = True) -> str:
    """Device, sizes and pass of a table: two tables are comparable if these are equal.

    Args:
        sheet: of the table.
        of_batch: whether to name the batch.
    """
    setting = sheet.setting
    text = f"{setting.place}; {setting.shape}, {MODES[sheet.mode]}"
    if not of_batch:
        return f"{text}."
    text = f"{text}, {sheet.batches}."
    return f"{text} {_FILLING}" if sheet.fills else text


def paper_tables(sheet: Sheet) -> list[Table]:
    """Time (or steps/s) and memory of every line at every length.

    Published lines stand beneath our line of the same method and size, if there is one.
    """
    return [_paper_table(sheet, quantity) for quantity in _quantities(sheet)]


def _paper_table(sheet: Sheet, quantity: _Quantity) -> Table:
    beneath = _published_beneath(sheet, quantity.published)
    published = [theirs for of_line in beneath.values() for theirs in of_line]
    lengths = sorted({*sheet.lengths, *(n for theirs in published for n in theirs.values)})
    lines = []
    for line in sheet.lines:
        lines.append([line.title, *(_cell(sheet, line, n, quantity) for n in lengths)])
        lines += [_published_line(theirs, quantity, lengths) for theirs in beneath.get(line, [])]
    title = f"{quantity.title}, {MODES[sheet.mode]}, {sheet.batches}"
    caption = f"{quantity.unit}; {_relative(sheet, quantity)} {describe(sheet)}"
    header = ["Attention", *(f"{n:,}" for n in lengths)]
    source = [quantity.source] if published else []
    return Table(title, caption, header, lines, source + notes(sheet, lines, quantity.what))


def _relative(sheet: Sheet, quantity: _Quantity) -> str:
    if sheet.reference is None:
        return "exact attention was not measured."
    what = "less memory" if quantity.what == "peak_memory_mb" else "faster"
    return f"in brackets, how many times {what} than {sheet.reference.title} in the same run."


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
    mark = "" if is_measured(row, quantity.what) else EXTRAPOLATED
    text = f"{mark}{short(value)}"
    if quantity.what == "peak_memory_mb" and row.memory_source != sheet.memory_source:
        text += OTHER_SOURCE
    text += OTHER_RUN * sheet.is_of_another_run(row)
    text += SCATTERED * (quantity.what == "seconds" and scatters(row))
    found = times_less(sheet, line, sheet.reference, length, quantity.what, row.run)
    return text + bracketed(found)


def bracketed(found: tuple[float, bool] | None) -> str:
    """` (3.61×)`, or nothing without a ratio."""
    return f" ({ratio(found)})" if found else ""


def ratio(found: tuple[float, bool] | None) -> str:
    """`3.61×`, `~3.61×` where it was not measured, `–` for None."""
    if found is None:
        return MISSING
    times, measured = found
    return f"{'' if measured else EXTRAPOLATED}{short(times)}×"


def short(value: float) -> str:
    """Three digits: `0.0840`, `1.23`, `12.3`, `123`, `1,234`."""
    if value < 1:
        return f"{value:#.3g}"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"


def _published_beneath(
    sheet: Sheet, published: tuple[Published, ...]
) -> dict[Line, list[Published]]:
    """The published lines by the line of ours that they belong to; others are left out."""
    found: dict[Line, list[Published]] = {}
    for theirs in published:
        ours = next((line for line in sheet.lines if _is_published(line, sheet, theirs)), None)
        if ours is not None:
            found.setdefault(ours, []).append(theirs)
    return found


def _is_published(line: Line, sheet: Sheet, theirs: Published) -> bool:
    """Whether a published line is of this line's method and size."""
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
    """How many times better than exact attention: as printed, else computed."""
    if theirs.times:
        return theirs.times[length]
    times = quantity.published[0].values[length] / theirs.values[length]
    return 1 / times if quantity.is_rate else times
