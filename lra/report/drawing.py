"""Drawing, for a column of a paper (3.3 inches) and readable without colour.

Every attention has one colour (Okabe and Ito's palette for colour-blind readers), marker and line
everywhere. matplotlib is imported only to draw.
"""

import itertools
import math
from typing import Any

from lra.report import curves, sweep_points
from lra.report.cells import attention_order, attention_title, task_title
from lra.report.notes import OTHER_DATA

COLUMN = 3.3  # inches
_MOST_LABELS = 7  # on the axis of a panel

# Okabe and Ito, "Color Universal Design", 2008; without yellow, which is too pale for lines.
STYLES = {
    "standard": ("#000000", "o", "-"),
    "reformer": ("#CC79A7", "D", (0, (5, 1.5))),
    "linformer": ("#0072B2", "s", (0, (3, 1, 1, 1))),
    "performer": ("#009E73", "^", (0, (1, 1))),
    "nystrom": ("#D55E00", "v", "-"),
    "longformer": ("#E69F00", "P", (0, (5, 1.5))),
    "linear": ("#56B4E9", "X", (0, (3, 1, 1, 1))),
}
_OTHER_STYLE = ("#7F7F7F", "h", "-")

# What axes call the options that sweeps vary.
_OPTIONS = {
    "num_landmarks": "landmarks",
    "proj_dim": "projection dimension",
    "num_features": "random features",
    "num_hashes": "hash rounds",
}

RC = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",
    # The same rows give the same bytes.
    "svg.hashsalt": "lra",
}


def style(attention: str) -> tuple[str, str, Any]:
    return STYLES.get(attention, _OTHER_STYLE)


def draw_dots(by_task: dict[str, list[curves.Dot]]) -> Any:
    """Accuracy (%) against training examples/s, a panel a task; a dot's area is its parameters."""
    from matplotlib import pyplot

    columns = min(2, len(by_task))
    rows = -(-len(by_task) // columns)
    height = 2.6 if columns == 1 else 0.75 + 1.35 * rows
    drawn, axes = pyplot.subplots(rows, columns, figsize=(COLUMN, height), squeeze=False)
    for axis in axes.flat[len(by_task) :]:
        axis.remove()
    largest = max(dot.params for dots in by_task.values() for dot in dots)
    for axis, (task, dots) in zip(axes.flat, by_task.items(), strict=False):
        for dot in dots:
            _draw_dot(axis, dot, largest)
        axis.set_title(task_title(task))
        axis.margins(0.18)
        axis.xaxis.set_major_formatter(_thousands)
    drawn.supxlabel("training examples per second", fontsize=RC["axes.labelsize"])
    drawn.supylabel("test accuracy (%)", fontsize=RC["axes.labelsize"])
    _legend_of_dots(drawn, [dot for dots in by_task.values() for dot in dots])
    return drawn


def _draw_dot(axis: Any, dot: curves.Dot, largest: float) -> None:
    from matplotlib.colors import to_rgba

    colour, marker, _ = style(dot.attention)
    x, y = dot.speed, 100 * dot.accuracy.mean
    # Pale inside, so that a bar shorter than its dot is seen.
    look = {"color": to_rgba(colour, 0.35), "edgecolors": colour, "linewidths": 0.9}
    axis.scatter(x, y, s=_area(dot.params, largest), marker=marker, zorder=3, **look)
    if dot.accuracy.std:
        axis.errorbar(x, y, 100 * dot.accuracy.std, color=colour, elinewidth=1, zorder=4)
    if dot.marked:
        # Beside the dot, whatever its size.
        place = (_area(dot.params, largest) ** 0.5 / 2 + 1, 1)
        axis.annotate(OTHER_DATA, (x, y), place, textcoords="offset points", fontsize=7)


def _area(params: float, largest: float) -> float:
    """In square points: proportional to the parameters, but never too small to be seen."""
    return max(14.0, 120.0 * params / largest)


def _legend_of_dots(drawn: Any, dots: list[curves.Dot]) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D

    handles = []
    for attention in sorted({dot.attention for dot in dots}, key=attention_order):
        colour, marker, _ = style(attention)
        look = {"color": to_rgba(colour, 0.35), "markeredgecolor": colour, "markersize": 5}
        title = attention_title(attention)
        handles.append(Line2D([], [], marker=marker, linestyle="", label=title, **look))
    smallest, largest = (choose(dot.params for dot in dots) for choose in (min, max))
    # One size says it where all are alike.
    for params in [smallest, largest] if largest > 1.5 * smallest else [largest]:
        # The diameter that a circle of this area has.
        look = {"color": "#D0D0D0", "markersize": _area(params, largest) ** 0.5}
        title = f"{_millions(params)} parameters"
        handles.append(Line2D([], [], marker="o", linestyle="", label=title, **look))
    _legend(drawn, handles)


def _legend(drawn: Any, handles: list[Any]) -> None:
    """Above the axes, in three columns or as many as the figure has room for."""
    for columns in (3, 2, 1):
        legend = drawn.legend(handles=handles, loc="outside upper center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= drawn.bbox.width:
            return
        legend.remove()


def draw_sweep(attention: str, option: str, by_task: dict[str, list[sweep_points.Point]]) -> Any:
    """Accuracy (%) and cost against the values of one option, a column a task."""
    from matplotlib import pyplot

    width = max(COLUMN, COLUMN / 2 * len(by_task))
    drawn, axes = pyplot.subplots(
        2, len(by_task), figsize=(width, 2.7), sharex="col", squeeze=False
    )
    colour, marker, line = style(attention)
    look = {"color": colour, "marker": marker, "linestyle": line}
    for (upper, lower), (task, points) in zip(axes.T, by_task.items(), strict=True):
        upper.errorbar(
            [point.value for point in points],
            [100 * point.accuracy.mean for point in points],
            [100 * (point.accuracy.std or 0) for point in points],
            elinewidth=0.8,
            capsize=1.5,
            **look,
        )
        timed = [(point.value, point.speed) for point in points if point.speed]
        lower.plot(*zip(*timed, strict=True), **look) if timed else None
        # Given its place, none is looked for each time the panel is drawn.
        upper.set_title(task_title(task), y=1)
        _axis_of_sizes(lower, [point.value for point in points])
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("examples/s")
    drawn.supxlabel(_OPTIONS.get(option, option), fontsize=RC["axes.labelsize"])
    drawn.align_ylabels(axes[:, 0])
    return drawn


def _axis_of_sizes(axis: Any, values: list[float]) -> None:
    from matplotlib.ticker import NullLocator

    places, positive = values, [value for value in values if value > 0]
    if min(values) > 0:
        axis.set_xscale("log", base=2)
        places = [math.log2(value) for value in values]
    elif min(values) == 0 and len(positive) > 1:
        # 0, then the positive ones evenly by their ratios.
        axis.set_xscale("symlog", linthresh=positive[0], linscale=1)
        places = [1 + math.log10(value / positive[0]) if value else 0 for value in values]
    ticks = _with_room(values, places)
    axis.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize=6.5)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(_thousands)
    axis.set_ylim(0, 1.04 * axis.get_ylim()[1])


def _with_room(values: list[float], places: list[float]) -> list[float]:
    """The values to label: none whose place is too near to the last one labelled."""
    room, last, chosen = (max(places) - min(places)) / _MOST_LABELS, -math.inf, []
    for value, place in zip(values, places, strict=True):
        if place - last >= room:
            chosen.append(value)
            last = place
    return chosen


def draw_histories(runs: list[curves.History]) -> Any:
    """Training loss above validation accuracy (%), against steps; bands span the seeds."""
    from matplotlib import pyplot

    drawn, (upper, lower) = pyplot.subplots(2, 1, figsize=(COLUMN, 3.6), sharex=True)
    once = len({run.attention for run in runs}) == len(runs)
    order = sorted(runs, key=lambda run: (attention_order(run.attention), run.title))
    for run, (colour, marker, line) in zip(order, run_styles(order), strict=True):
        look = {"color": colour, "linestyle": line}
        loss, accuracy = run.loss, run.accuracy
        upper.plot(loss.steps, loss.mean, linewidth=1, **look)
        lower.plot(
            accuracy.steps,
            [100 * value for value in accuracy.mean],
            marker=marker,
            markevery=max(1, len(accuracy.steps) // 8),
            label=attention_title(run.attention) if once else run.title,
            **look,
        )
        for axis, curve, scale in ((upper, loss, 1), (lower, accuracy, 100)):
            bounds = [[scale * value for value in bound] for bound in (curve.low, curve.high)]
            axis.fill_between(curve.steps, *bounds, color=colour, alpha=0.13, linewidth=0)
    upper.set_ylabel("training loss")
    lower.set_ylabel("validation accuracy (%)")
    lower.set_xlabel("step")
    lower.xaxis.set_major_formatter(_thousands)
    _legend(drawn, lower.get_legend_handles_labels()[0])
    drawn.align_ylabels()
    return drawn


def run_styles(runs: list[curves.History]) -> list[tuple[str, str, Any]]:
    """Of the first run of an attention its own style, of its others styles that nobody has."""
    own = {run.attention: style(run.attention) for run in runs}
    spare = [look for look in STYLES.values() if look not in own.values()]
    others = itertools.cycle([*spare, _OTHER_STYLE])
    return [own.pop(run.attention, None) or next(others) for run in runs]


def _thousands(value: float, _position: int | None = None) -> str:
    """Tick labels that fit: `500`, `2.5k`, `20k`."""
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _millions(params: float) -> str:
    return f"{params / 1e6:.1f} M" if params >= 1e6 else f"{params / 1e3:.0f} k"
