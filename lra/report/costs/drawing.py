"""Drawing of costs, in the style of `drawing`; lengths and costs on logarithmic axes."""

import re
from collections import Counter
from typing import Any

from lra.report.axes import logarithmic
from lra.report.costs.fits import FIT, Fit
from lra.report.costs.tables import ratio
from lra.report.drawing import COLUMN
from lra.report.styles import as_options, shade, styles

_PANEL = 1.75  # inches of height
_LEGEND_LINE = 0.142
_LETTERS, _LONGEST_LABEL = 7, 59  # size in points; so many characters of it fit in a column


def draw_costs(drawn: list) -> Any:
    """Time above memory against length; the legend holds the fitted exponents."""
    span = _usual_span(drawn)
    labels = [f"{_literal(each.line.title)}{_exponents(each.fits, span)}" for each in drawn]
    figure, (upper, lower) = _panels(2, len(drawn) + (span is not None))
    labelled = list(zip(drawn, labels, strict=True))
    handles = [_plot(upper, each, each.time, label=label) for each, label in labelled]
    for each in drawn:
        _plot(lower, each, each.memory)
    upper.set_ylabel("time (ms)")
    lower.set_ylabel("memory (MB)")
    _finish(figure, (upper, lower), drawn)
    look = {"title": _title(drawn, span), "title_fontsize": 7, "fontsize": _fitting(labels)}
    legend = figure.legend(handles=handles, loc="outside upper center", **look)
    for label in legend.get_texts():
        label.set_parse_math(True)  # exponents
    return figure


def _literal(text: str) -> str:
    """Escapes dollar signs: in a label with exponents they would begin a formula."""
    return text.replace("$", r"\$")


def _fitting(labels: list[str]) -> float:
    """A size of letters (points) at which the longest label fits in a column."""
    longest = max(len(re.sub(r"[${}^]", "", label)) for label in labels)
    return _LETTERS * min(1.0, _LONGEST_LABEL / longest)


def draw_fixed_tokens(drawn: list) -> Any:
    """Time against length."""
    figure, (axis,) = _panels(1, -(-len(drawn) // 2))
    handles = [_plot(axis, each, each.time, label=each.line.title) for each in drawn]
    axis.set_ylabel("time (ms)")
    _finish(figure, (axis,), drawn)
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    return figure


def draw_races(drawn: list) -> Any:
    """How many times less ours costs than the best peer, time above memory."""
    with_memory = any(race.memory for race in drawn)
    figure, axes = _panels(2 if with_memory else 1, len(drawn))
    handles = [
        _plot(axes[0], race, race.time, label=f"{race.line.title}{_means(race.means)}")
        for race in drawn
    ]
    for race in drawn if with_memory else ():
        _plot(axes[1], race, race.memory)
    for axis, what in zip(axes, ("time", "memory"), strict=False):
        axis.axhline(1, color="#7F7F7F", linewidth=0.8, zorder=1)
        axis.set_ylabel(f"{what}, best peer / ours")
    _finish(figure, axes, drawn)
    figure.legend(handles=handles, loc="outside upper center")
    return figure


def _panels(number: int, lines_of_legend: int) -> tuple[Any, Any]:
    from matplotlib import pyplot

    height = 0.35 + _PANEL * number + _LEGEND_LINE * lines_of_legend
    figure, axes = pyplot.subplots(number, 1, figsize=(COLUMN, height), sharex=True, squeeze=False)
    return figure, axes[:, 0]


def _plot(axis: Any, each: Any, marks: list, label: str | None = None) -> Any:
    """Draws measured points filled, others hollow after them, joined by a dotted line."""
    from matplotlib.lines import Line2D

    look = as_options(shade(styles([each.line.method])[each.line.method], each.nth))
    measured = [(mark.length, mark.value) for mark in marks if mark.measured]
    others = [(mark.length, mark.value) for mark in marks if not mark.measured]
    if measured:
        axis.plot(*zip(*measured, strict=True), **look)
    if others:
        joined = [*[point for point in measured if point < others[0]][-1:], *others]
        dotted = look | {"linestyle": (0, (1, 2)), "linewidth": 0.8, "marker": "", "zorder": 1.5}
        axis.plot(*zip(*joined, strict=True), **dotted)
        hollow = look | {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 0.8}
        axis.plot(*zip(*others, strict=True), **hollow)
    return Line2D([], [], label=label, **look)


def _finish(figure: Any, axes: Any, drawn: list) -> None:
    from matplotlib.ticker import NullLocator

    lengths = sorted({mark.length for each in drawn for mark in [*each.time, *each.memory]})
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [_length(length) for length in lengths])
        axis.xaxis.set_minor_locator(NullLocator())
        logarithmic(axis)
    axes[-1].set_xlabel("length")
    figure.align_ylabels()


def _length(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else f"{length:,}"


def _usual_span(drawn: list) -> tuple[int, int] | None:
    """The lengths between which most exponents were fitted; if several are as many, the widest."""
    spans = Counter((found.low, found.high) for each in drawn for found in each.fits if found)
    return max(spans, key=lambda span: (spans[span], span == FIT, span[1] - span[0]), default=None)


def _title(drawn: list, span: tuple[int, int] | None) -> str | None:
    """The title of the legend: the range of lengths of exponents that do not name theirs."""
    if span is None:
        return None
    several = any((found.low, found.high) != span for each in drawn for found in each.fits if found)
    others = ", else in brackets" if several else ""
    return f"exponents fitted from {_length(span[0])} to {_length(span[1])}{others}"


def _exponents(fits: tuple[Fit | None, Fit | None], span: tuple[int, int] | None) -> str:
    r"""`: time $n^{1.02}$, memory $n^{1.00}$`; lengths are added if they are not `span`."""
    parts = []
    for name, found in zip(("time", "memory"), fits, strict=True):
        if found:
            own = "" if (found.low, found.high) == span else f" ({_span(found)})"
            parts.append(f"{name} $n^{{{found.exponent:.2f}}}${own}")
    return f": {', '.join(parts)}" if parts else ""


def _span(found: Fit) -> str:
    return f"{_length(found.low)}–{_length(found.high)}"


def _means(means: tuple[float | None, float | None]) -> str:
    parts = [
        f"{name} {ratio((mean, True))}"
        for name, mean in zip(("time", "memory"), means, strict=True)
        if mean is not None
    ]
    return f": {', '.join(parts)}" if parts else ""
