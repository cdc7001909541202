"""Figures of errors: every attention's against its size, Nyström's against iterations too."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from lra.analysis.look import DATA, RANDOM_LINE, Rows, kinds, shade
from lra.report.axes import logarithmic
from lra.report.cells import attention_title
from lra.report.drawing import COLUMN, OPTION_TITLES
from lra.report.styles import RC, styles

_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h", "*")
_LEAST, _MOST = 1e-2, 10  # range of errors that are drawn


def curves(rows: Rows) -> Rows:
    """Select the rows of error curves: initialised, not trained, attentions that have a size."""
    return [
        row
        for row in rows
        if row["kind"] == "approximation" and row["size"] and row["variant"] != "own"
    ]


def stars(rows: Rows) -> Rows:
    """Select the rows of the model's own attention to draw: those with a size and a panel."""
    methods = {row["method"] for row in curves(rows)}
    return [
        row
        for row in rows
        if row.get("variant") == "own" and row["size"] and row["method"] in methods
    ]


def draw_errors(rows: Rows, error: str) -> Any:
    """Draw `error` (`matrix_error` or `output_error`) against size, a panel per method."""
    from matplotlib import pyplot

    panels = list(dict.fromkeys(map(_panel, curves(rows))))
    rows = [row for row in rows if row["kind"] == "approximation" and row["size"]]
    columns = min(2, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(COLUMN, max(2.6, 0.7 + 1.4 * lines)), sharey=True, squeeze=False
    )
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    looks = styles(method for method, _, _ in panels)
    for ax, panel in zip(axes.flat, panels, strict=False):
        method, variant, option = panel
        for data in kinds(rows):
            panel_rows = [r for r in rows if _panel(r) == panel and r["data"] == data]
            _draw_curve(ax, panel_rows, error, looks[method], data)
        _draw_own(ax, panel, rows, error, panels)
        _sizes_axis(ax, {row["size"] for row in rows if _panel(row) == panel})
        ax.set_title(attention_title(method) + (f", {variant}" if variant else ""))
        ax.set_xlabel(OPTION_TITLES.get(option, option))
    axes[0, 0].set_ylim(_LEAST, _highest(rows, error))
    for ax in axes.flat[: len(panels)]:
        logarithmic(ax)
    result = "attention matrix" if error == "matrix_error" else "output"
    figure.supylabel(f"relative error of the {result}", fontsize=RC["axes.labelsize"])
    _legend_of_data(figure, rows)
    return figure


def draw_iterations(rows: Rows) -> Any:
    """Draw Nyström's matrix error against landmarks and iterations, a column per kind of data."""
    from matplotlib import pyplot

    rows = [row for row in rows if row["kind"] == "iterations"]
    columns = kinds(rows)
    figure, axes = pyplot.subplots(
        2, len(columns), figsize=(COLUMN, 4.2), sharex="row", sharey="row", squeeze=False
    )
    for (upper, lower), data in zip(axes.T, columns, strict=True):
        data_rows = [row for row in rows if row["data"] == data]
        upper.set_title(DATA[data])
        _draw_family(upper, data_rows, "landmarks", "iterations", (1, 4, 6, 8, 12))
        landmarks = sorted({row["landmarks"] for row in data_rows})[-5:]
        _draw_family(lower, data_rows, "iterations", "landmarks", landmarks)
        _sizes_axis(upper, {row["landmarks"] for row in data_rows})
        _sizes_axis(lower, {1, 2, 4, 8, 16, 32})
        upper.set_xlabel("landmarks")
        lower.set_xlabel("iterations")
    axes[0, 0].set_ylim(_LEAST, _MOST)
    for ax in axes.flat:
        logarithmic(ax)
    for ax, title in zip(axes[:, -1], ("iterations", "landmarks"), strict=True):
        ax.legend(title=title, title_fontsize=6.5, fontsize=6, handlelength=2, labelspacing=0.2)
    figure.supylabel("relative error of the attention matrix", fontsize=RC["axes.labelsize"])
    return figure


def _panel(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["method"], row["variant"], row["option"]


def _mean(rows: Rows, x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the values of x, and for each the mean of y over layers and heads."""
    values = sorted({row[x] for row in rows})
    means = [float(np.mean([row[y] for row in rows if row[x] == value])) for value in values]
    return values, means


def _highest(rows: Rows, error: str) -> float:
    return min(_MOST, 1.3 * max(1.0, *(row[error] for row in rows)))


def _draw_curve(ax: Any, rows: Rows, error: str, style: tuple, data: str) -> None:
    colour, marker, _ = style
    trained = data == "trained"
    look = {"color": colour, "marker": marker, "markerfacecolor": colour if trained else "white"}
    line = "-" if trained else RANDOM_LINE
    for name, style in ((f"best_rank_{error}", {"color": "#000000", "lw": 0.8}), (error, look)):
        if rows[0][name] is None:  # the rank is not known
            continue
        sizes, errors = _mean(rows, "size", name)
        ax.plot(sizes, np.maximum(errors, _LEAST / 2), linestyle=line, **style)


def _draw_own(ax: Any, panel: tuple, rows: Rows, error: str, panels: list[tuple]) -> None:
    """Draw a star for the model's own attention, in the last panel of this attention."""
    own = [row for row in stars(rows) if row["method"] == panel[0]]
    if own and panel == [p for p in panels if p[0] == panel[0]][-1]:
        ax.plot(
            *_mean(own, "size", error),
            marker="*",
            markersize=9,
            color="#F0E442",
            markeredgecolor="#000000",
            zorder=5,
        )


def _draw_family(ax: Any, rows: Rows, x: str, by: str, values: Iterable[int]) -> None:
    """Draw one line for each of the values of `by`."""
    values = list(values)
    for index, value in enumerate(values):
        ax.plot(
            *_mean([row for row in rows if row[by] == value], x, "matrix_error"),
            color=shade(index, len(values)),
            marker=_MARKERS[index],
            markersize=3,
            linewidth=1,
            label=f"{value}",
        )


def _sizes_axis(ax: Any, sizes: set[int]) -> None:
    from matplotlib.ticker import NullLocator

    sizes = sorted(sizes)
    ax.set_xscale("log", base=2)
    # Labels of neighbours less than a factor of about 2 apart would touch.
    shown = [s for i, s in enumerate(sizes) if i + 1 == len(sizes) or sizes[i + 1] >= 1.9 * s]
    shown = shown[-1::-2] if len(shown) > 6 else shown
    ax.set_xticks(shown, [f"{size}" for size in shown], fontsize=6.5)
    ax.xaxis.set_minor_locator(NullLocator())


def _legend_of_data(figure: Any, rows: Rows) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for data in kinds(rows):
        look = {"linestyle": RANDOM_LINE if data == "random" else "-"}
        fill = "white" if data == "random" else "#7F7F7F"
        curve = look | {"color": "#7F7F7F", "marker": "o", "markerfacecolor": fill}
        handles.append(Line2D([], [], label=DATA[data], **curve))
        best = look | {"color": "#000000", "linewidth": 0.8}
        handles.append(Line2D([], [], label=f"best of this rank, {data}", **best))
    if stars(rows):
        look = {"marker": "*", "markersize": 8, "color": "#F0E442", "markeredgecolor": "#000000"}
        handles.append(Line2D([], [], linestyle="", label="the model's own", **look))
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
