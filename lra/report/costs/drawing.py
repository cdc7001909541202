"""Drawing of costs in the style of `lra.report.drawing`, with logarithmic lengths and costs."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from lra.report.axes import logarithmic
from lra.report.costs.fits import FIT, Fit
from lra.report.costs.ratios import Ratio
from lra.report.costs.sheets import Line
from lra.report.costs.tables import short
from lra.report.drawing import COLUMN
from lra.report.styles import as_options, shade, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

_PANEL = 1.75  # height in inches
_LEGEND_LINE = 0.142
_FONT_SIZE = 7  # of legends, in points
_LEGEND_WIDTH = 0.98  # largest width of a legend, as a share of that of the figure


class Mark(NamedTuple):
    """A point of a curve.

    Attributes:
        length: Length of the sequences.
        value: Cost (ms or MB) or ratio of costs.
        measured: Whether it was measured, rather than extrapolated or estimated.
        comparable: What it shares with the points that it may be joined to: the run, and for memory
            the way in which it was measured.
    """

    length: int
    value: float
    measured: bool
    comparable: tuple[str | None, ...] = ()


class Series(NamedTuple):
    """A curve: a line of a sheet, the `nth` of its method, with fits of its time and memory."""

    line: Line
    nth: int
    time: list[Mark]
    memory: list[Mark]
    fits: tuple[Fit | None, Fit | None]


class Race(NamedTuple):
    """Ours against the best peer: how many times less ours costs, by length and on average."""

    line: Line
    nth: int
    time: list[Mark]
    memory: list[Mark]
    means: tuple[Ratio | None, Ratio | None]


def draw_costs(all_series: Sequence[Series], in_parts: bool = False) -> "Figure":
    """Draw time above memory against length; the legend holds the fitted exponents.

    Args:
        all_series: Curves.
        in_parts: Whether batches were processed in parts, so that memory is that of one.
    """
    span = _usual_span(all_series)
    labels = [
        f"{_literal(series.line.title)}{_exponents(series.fits, span)}" for series in all_series
    ]
    figure, (upper, lower) = _panels(2, len(all_series) + (span is not None))
    labelled = list(zip(all_series, labels, strict=True))
    # From the last to the first: exact attention, which all others are compared with, is on top.
    handles = [_plot(upper, series, series.time, label=label) for series, label in labelled[::-1]]
    for series in all_series[::-1]:
        _plot(lower, series, series.memory)
    upper.set_ylabel("time (ms)")
    lower.set_ylabel("memory of one part (MB)" if in_parts else "memory (MB)")
    _finish(figure, (upper, lower), all_series)
    _add_legend(figure, handles[::-1], _title(all_series, span))
    return figure


def _literal(text: str) -> str:
    """Escape dollar signs, which would start a formula in a label with exponents."""
    return text.replace("$", r"\$")


def _add_legend(figure: "Figure", handles: Sequence["Line2D"], title: str | None) -> None:
    """Add a legend with formulas in its labels, in letters so small that it fits in the figure."""

    def legend(font_size: float) -> "Legend":
        sizes = {"fontsize": font_size, "title_fontsize": _FONT_SIZE}
        made = figure.legend(handles=handles, title=title, loc="outside upper center", **sizes)
        for label in made.get_texts():
            label.set_parse_math(True)  # exponents
        return made

    first = legend(_FONT_SIZE)
    width = first.get_window_extent(figure.canvas.get_renderer()).width
    room = _LEGEND_WIDTH * figure.bbox.width
    if width > room:
        first.remove()
        legend(_FONT_SIZE * room / width)


def draw_fixed_tokens(all_series: Sequence[Series]) -> "Figure":
    """Draw time against length."""
    figure, (ax,) = _panels(1, -(-len(all_series) // 2))
    handles = [_plot(ax, series, series.time, label=series.line.title) for series in all_series]
    ax.set_ylabel("time (ms)")
    _finish(figure, (ax,), all_series)
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def draw_races(races: Sequence[Race]) -> "Figure":
    """Draw how many times less ours costs than the best peer, time above memory."""
    with_memory = any(race.memory for race in races)
    figure, axes = _panels(2 if with_memory else 1, len(races))
    handles = [
        _plot(axes[0], race, race.time, label=f"{race.line.title}{_means(race.means)}")
        for race in races
    ]
    for race in races if with_memory else ():
        _plot(axes[1], race, race.memory)
    for ax, cost in zip(axes, ("time", "memory"), strict=False):
        ax.axhline(1, color="#7F7F7F", linewidth=0.8, zorder=1)
        ax.set_ylabel(f"{cost}, best peer / ours")
    _finish(figure, axes, races)
    figure.legend(handles=handles, loc="outside upper center")
    return figure


def _panels(number: int, lines_of_legend: int) -> tuple["Figure", Sequence["Axes"]]:
    from matplotlib import pyplot

    height = 0.35 + _PANEL * number + _LEGEND_LINE * lines_of_legend
    figure, axes = pyplot.subplots(number, 1, figsize=(COLUMN, height), sharex=True, squeeze=False)
    return figure, axes[:, 0]


def _plot(
    ax: "Axes", series: Series | Race, marks: Sequence[Mark], label: str | None = None
) -> "Line2D":
    """Draw measured points filled, others hollow with a dotted line; return a legend handle.

    A line has a gap where points are not comparable.
    """
    from matplotlib.lines import Line2D

    look = as_options(shade(styles([series.line.method])[series.line.method], series.nth))
    dotted_look = look | {"linestyle": (0, (1, 2)), "linewidth": 0.8, "marker": "", "zorder": 1.5}
    hollow_look = look | {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 0.8}
    for _, group in itertools.groupby(marks, key=lambda mark: mark.comparable):
        part = list(group)
        filled = [(mark.length, mark.value) for mark in part if mark.measured]
        hollow = [(mark.length, mark.value) for mark in part if not mark.measured]
        if filled:
            ax.plot(*zip(*filled, strict=True), **look)
        if hollow:
            dotted = [*[point for point in filled if point < hollow[0]][-1:], *hollow]
            ax.plot(*zip(*dotted, strict=True), **dotted_look)
            ax.plot(*zip(*hollow, strict=True), **hollow_look)
    return Line2D([], [], label=label, **look)


def _finish(figure: "Figure", axes: Sequence["Axes"], all_series: Sequence[Series | Race]) -> None:
    from matplotlib.ticker import NullLocator

    lengths = sorted(
        {mark.length for series in all_series for mark in [*series.time, *series.memory]}
    )
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [_length(length) for length in lengths])
        ax.xaxis.set_minor_locator(NullLocator())
        logarithmic(ax)
    axes[-1].set_xlabel("length")
    figure.align_ylabels()


def _length(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else f"{length:,}"


def _usual_span(all_series: Sequence[Series]) -> tuple[int, int] | None:
    """Return the lengths between which most exponents were fitted; in a tie `FIT` or the widest."""
    spans = Counter((fit.low, fit.high) for series in all_series for fit in series.fits if fit)
    return max(spans, key=lambda span: (spans[span], span == FIT, span[1] - span[0]), default=None)


def _title(all_series: Sequence[Series], span: tuple[int, int] | None) -> str | None:
    """Return the title of the legend: the range of lengths of exponents that name none."""
    if span is None:
        return None
    several = any(
        (fit.low, fit.high) != span for series in all_series for fit in series.fits if fit
    )
    others = ", else in brackets" if several else ""
    return f"exponents fitted from {_length(span[0])} to {_length(span[1])}{others}"


def _exponents(fits: tuple[Fit | None, Fit | None], span: tuple[int, int] | None) -> str:
    r"""`: time $n^{1.02}$, memory $n^{1.00}$`; lengths that differ from `span` are added."""
    parts = []
    for name, fit in zip(("time", "memory"), fits, strict=True):
        if fit:
            lengths = "" if (fit.low, fit.high) == span else f" ({_span(fit)})"
            parts.append(f"{name} $n^{{{fit.exponent:.2f}}}${lengths}")
    return f": {', '.join(parts)}" if parts else ""


def _span(fit: Fit) -> str:
    return f"{_length(fit.low)}–{_length(fit.high)}"


def _means(means: tuple[Ratio | None, Ratio | None]) -> str:
    parts = [
        f"{name} {short(mean.times)}×"
        for name, mean in zip(("time", "memory"), means, strict=True)
        if mean is not None
    ]
    return f": {', '.join(parts)}" if parts else ""
