"""Drawing of figures that fit a column of a paper (3.3 inches) and are readable without colour.

`styles` defines how attentions look. matplotlib is imported only to draw.
"""

import itertools
import math
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from lra.report import styles
from lra.report.axes import tick_label
from lra.report.cells import task_title
from lra.report.curve_points import Curve
from lra.report.curves import History
from lra.report.dots import Dot
from lra.report.styles import RC, Style
from lra.report.sweep_points import Sweep, labels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.3  # inches
_TICK_FONT_SIZE = 6.5  # points
# Number of columns and font size (points) of a legend, in order of preference; a line of the last
# has room for `_LONGEST_TITLE` characters.
_LEGENDS = ((3, 7), (2, 7), (1, 7), (1, 6.5), (1, 6), (1, 5.5))
_LONGEST_TITLE = 60
_OF_A_SEED = {"alpha": 0.5, "linewidth": 0.5}
_LEAST_POINTS = 5  # shortest accuracy axis (percent): on a shorter one noise looks like a trend

# Axis labels of the options that are sizes.
OPTION_TITLES = {
    "num_landmarks": "landmarks",
    "proj_dim": "projection dimension",
    "num_features": "random features",
    "num_hashes": "hash rounds",
    "window": "window, keys a side",
}


def add_legend(figure: "Figure", handles: list["Artist"]) -> None:
    """Add a legend above the axes, in as many columns (up to three) as the figure has room for.

    If even one column is too wide, the font is made smaller. The figure grows by the height of the
    legend if the font is smaller or the legend would take more than a fifth of the figure.
    """
    for handle in handles:
        longest = int(_LONGEST_TITLE * figure.get_figwidth() / COLUMN)
        handle.set_label(textwrap.fill(handle.get_label(), longest))
    look = {"handles": handles, "loc": "outside upper center"}
    for columns, font_size in _LEGENDS:
        legend = figure.legend(ncols=columns, fontsize=font_size, **look)
        extent = legend.get_window_extent()
        if extent.width <= figure.bbox.width or (columns, font_size) == _LEGENDS[-1]:
            break
        legend.remove()
    if font_size < RC["legend.fontsize"] or extent.height > figure.bbox.height / 5:
        figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)


def draw_sweep(option: str, sweeps: list[Sweep], own: Style) -> "Figure":
    """Draw accuracy (%) and cost against the values of one option, a column per task.

    Args:
        option: Name of the attention's option.
        sweeps: Sweeps, one per curve; with several, a legend says in which options they differ.
        own: Style of the attention; curves after the first have shades of it.
    """
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    tasks = list(dict.fromkeys(task for sweep in sweeps for task in sweep.by_task))
    width = max(COLUMN, COLUMN / 2 * len(tasks))
    figure, axes = pyplot.subplots(2, len(tasks), figsize=(width, 2.7), sharex="col", squeeze=False)
    looks = [styles.as_options(styles.shade(own, nth)) for nth in range(len(sweeps))]
    for (upper, lower), task in zip(axes.T, tasks, strict=True):
        for sweep, look in zip(sweeps, looks, strict=True):
            _draw_sweep(upper, lower, sweep.by_task.get(task, {}), look)
        upper.set_title(task_title(task), y=1)
        values = sorted({value for sweep in sweeps for value in sweep.by_task.get(task, {})})
        _axis_of_sizes(lower, values, 72 * (width / len(tasks) - 0.55))
        _widen_accuracy_axis(upper)
        if not any(dot.speed for sweep in sweeps for dot in sweep.by_task.get(task, {}).values()):
            middle = {"ha": "center", "va": "center", "transform": lower.transAxes}
            lower.text(0.5, 0.5, "no speeds known", fontsize=_TICK_FONT_SIZE, **middle)
            lower.set_yticks([])
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("examples/s")
    figure.supxlabel(OPTION_TITLES.get(option, option), fontsize=RC["axes.labelsize"])
    if len(sweeps) > 1:
        titles = labels(sweeps)
        add_legend(
            figure,
            [
                Line2D([], [], label=title, **look)
                for title, look in zip(titles, looks, strict=True)
            ],
        )
    figure.align_ylabels(axes[:, 0])
    return figure


def _draw_sweep(upper: "Axes", lower: "Axes", dots: dict[float, Dot], look: dict[str, Any]) -> None:
    upper.plot(list(dots), [100 * dot.accuracy.mean for dot in dots.values()], **look)
    alone = {"color": look["color"], "linestyle": "", "zorder": 3}
    single = [(value, 100 * dot.accuracy.mean) for value, dot in dots.items() if dot.accuracy.n < 2]
    if single:
        hollow = {"marker": look["marker"], "markerfacecolor": "white"}
        upper.plot(*zip(*single, strict=True), **hollow, **alone)
    # Not their standard deviation: seeds that have learned something and seeds that have not may
    # lie far apart, with none near the mean.
    seeds = [
        (value, 100 * accuracy)
        for value, dot in dots.items()
        if dot.accuracy.n > 1
        for accuracy in dot.seeds
    ]
    if seeds:
        small = {"marker": "o", "markersize": 2.5, "markeredgecolor": "white"}
        upper.plot(*zip(*seeds, strict=True), markeredgewidth=0.3, **small, **alone)
    # A line would show as an effect of the option what is one of the machines.
    joined = {} if all(dot.is_steady for dot in dots.values()) else {"linestyle": ""}
    # It has a gap where there is no speed.
    lower.plot(list(dots), [dot.speed or math.nan for dot in dots.values()], **look | joined)
    for value, dot in dots.items():
        if dot.slowest not in (dot.speed, None):
            lower.plot([value, value], [dot.slowest, dot.speed], color=look["color"], linewidth=0.6)


def _widen_accuracy_axis(ax: "Axes") -> None:
    """Make an accuracy axis (%) span at least `_LEAST_POINTS`."""
    low, high = ax.get_ylim()
    more = max(0, _LEAST_POINTS - (high - low)) / 2
    ax.set_ylim(low - more, high + more)


def _axis_of_sizes(ax: "Axes", values: list[float], width: float) -> None:
    """Set scale and ticks for the values of an option, on an axis that is `width` points wide."""
    from matplotlib.ticker import NullLocator

    places, positive = values, [value for value in values if value > 0]
    if min(values) > 0:
        ax.set_xscale("log", base=2)
        places = [math.log2(value) for value in values]
    elif min(values) == 0 and len(positive) > 1:
        # 0 comes first, then the others on a logarithmic scale.
        ax.set_xscale("symlog", linthresh=positive[0], linscale=1)
        places = [1 + math.log10(value / positive[0]) if value else 0 for value in values]
    labels = _labels_with_room(values, places, width)
    ax.set_xticks(list(labels), list(labels.values()), fontsize=_TICK_FONT_SIZE)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(tick_label)
    ax.set_ylim(0, 1.04 * ax.get_ylim()[1])


def _labels_with_room(values: list[float], places: list[float], width: float) -> dict[float, str]:
    """Choose values whose labels do not touch; return them with their labels."""
    margins = 1.1  # of the axis, on both sides together
    points_per_unit = width / margins / (max(places) - min(places))
    chosen, end = {}, -math.inf
    for value, place in zip(values, places, strict=True):
        label = f"{value:g}"
        # DejaVu's digits are 0.64 times as wide as high; labels are centred on their places.
        middle, half = place * points_per_unit, 0.32 * _TICK_FONT_SIZE * len(label)
        if middle - half > end:
            chosen[value] = label
            end = middle + half + 0.25 * _TICK_FONT_SIZE
    return chosen


def draw_histories(runs: list[History], looks: dict[str, Style]) -> "Figure":
    """Draw training loss above validation accuracy (%) against steps, of seeds in thin lines.

    Without any losses, which some files of curves lack, only accuracy is drawn.

    Args:
        runs: Runs in the order of the legend.
        looks: Style of each attention (see `run_styles`).
    """
    from matplotlib import pyplot

    has_losses = any(run.loss.steps for run in runs)
    size = (COLUMN, 3.6 if has_losses else 2.2)
    figure, axes = pyplot.subplots(1 + has_losses, 1, figsize=size, sharex=True, squeeze=False)
    upper, lower = axes[0, 0], axes[-1, 0]
    for run, own in zip(runs, run_styles(runs, looks), strict=True):
        look = {"color": own.colour, "linestyle": own.line}
        loss, accuracy = run.loss, run.accuracy
        if loss.steps:
            # A line of one point would be invisible.
            marker = own.marker if len(loss.steps) == 1 else None
            upper.plot(loss.steps, loss.mean, linewidth=1, marker=marker, **look)
            _draw_seeds(upper, loss, own)
        accuracy = accuracy.in_percent()
        lower.plot(
            accuracy.steps,
            accuracy.mean,
            marker=own.marker,
            markevery=max(1, len(accuracy.steps) // 8),
            label=run.title,
            **look,
        )
        _draw_seeds(lower, accuracy, own)
    if has_losses:
        upper.set_ylabel("training loss")
    on_test = all(run.val_is_test for run in runs)
    lower.set_ylabel(f"{'validation = test' if on_test else 'validation'} accuracy (%)")
    lower.set_xlabel("step")
    lower.xaxis.set_major_formatter(tick_label)
    add_legend(figure, lower.get_legend_handles_labels()[0])
    figure.align_ylabels()
    return figure


def _draw_seeds(ax: "Axes", curve: Curve, own: Style) -> None:
    """Draw a line for each of several seeds; they begin anew where one of them has diverged."""
    points = zip(curve.steps, curve.seeds, strict=True)
    for number, part in itertools.groupby(points, key=lambda point: len(point[1])):
        if number > 1:
            ax.plot(*zip(*part, strict=True), color=own.colour, zorder=1.5, **_OF_A_SEED)


def run_styles(runs: list[History], looks: dict[str, Style]) -> list[Style]:
    """Return a style per run: the first of an attention has its style, the others shades of it.

    If all runs are of one attention, the others have colours that are of no attention.
    """
    attentions = [run.attention for run in runs]
    if len(set(attentions)) == 1:
        return styles.contrasting(looks[attentions[0]], len(runs))
    seen: Counter[str] = Counter()
    result = []
    for attention in attentions:
        result.append(styles.shade(looks[attention], seen[attention]))
        seen[attention] += 1
    return result
