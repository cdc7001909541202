"""Drawing of accuracy against speed. matplotlib is imported only to draw."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lra.report import styles
from lra.report.axes import tick_label
from lra.report.cells import attention_order, attention_title, task_title
from lra.report.dots import Dot
from lra.report.drawing import COLUMN, add_legend
from lra.report.notes import OTHER_DATA
from lra.report.styles import RC, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_dots(by_task: dict[str, dict[str, Dot]], looks: dict[str, Style]) -> "Figure":
    """Draw accuracy (%) against training examples/s, a panel per task.

    The area of a dot is proportional to the number of parameters. A task on other data than LRA's
    is marked in the title.

    Args:
        by_task: Dot of each attention, by task.
        looks: Style of each attention.
    """
    from matplotlib import pyplot

    columns = min(2, len(by_task))
    rows = -(-len(by_task) // columns)
    height = 2.6 if columns == 1 else 0.75 + 1.35 * rows
    figure, axes = pyplot.subplots(rows, columns, figsize=(COLUMN, height), squeeze=False)
    for ax in axes.flat[len(by_task) :]:
        ax.remove()
    largest = max(dot.params for dots in by_task.values() for dot in dots.values())
    for ax, (task, dots) in zip(axes.flat, by_task.items(), strict=False):
        for attention, dot in dots.items():
            _draw_dot(ax, dot, largest, looks[attention])
        mark = OTHER_DATA if any(dot.marked for dot in dots.values()) else ""
        # With y given, matplotlib does not search for a free place in every draw.
        ax.set_title(f"{task_title(task)}{mark}", y=1)
        ax.margins(0.18)
        ax.xaxis.set_major_formatter(tick_label)
    figure.supxlabel("training examples per second", fontsize=RC["axes.labelsize"])
    label = figure.supylabel("test accuracy (%)", fontsize=RC["axes.labelsize"])
    _add_legend_of_dots(figure, by_task.values(), looks)
    label.set_y(height / 2 / figure.get_figheight())  # beside the panels, not beside a tall legend
    return figure


def _draw_dot(ax: "Axes", dot: Dot, largest: float, own: Style) -> None:
    from matplotlib.colors import to_rgba

    colour = own.colour
    x, y = dot.speed, 100 * dot.accuracy.mean
    size = _size(dot.params, largest, own.marker)
    # A pale fill shows error bars that are shorter than the dot.
    look = {"color": to_rgba(colour, 0.35), "edgecolors": colour, "linewidths": 0.9}
    ax.scatter(x, y, s=size**2, marker=own.marker, zorder=3, **look)
    if dot.slowest not in (x, None):
        ax.plot([dot.slowest, x], [y, y], color=colour, linewidth=0.6, zorder=2)
    if dot.accuracy.std:
        ax.errorbar(x, y, 100 * dot.accuracy.std, color=colour, elinewidth=1, zorder=4)


def _size(params: float, largest: float, marker: str) -> float:
    """Return the size of a marker (points) whose area is proportional to the parameters.

    Very small markers are enlarged so that they can be seen.
    """
    area = max(12.0, 100.0 * params / largest)
    return math.sqrt(area / styles.area_of_marker(marker))


def _add_legend_of_dots(
    figure: "Figure", panels: Iterable[dict[str, Dot]], looks: dict[str, Style]
) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D

    handles = []
    params = [dot.params for dots in panels for dot in dots.values()]
    for attention in sorted({name for dots in panels for name in dots}, key=attention_order):
        own = looks[attention]
        look = {"marker": own.marker, "markersize": 5, "markeredgecolor": own.colour}
        pale, title = to_rgba(own.colour, 0.35), attention_title(attention)
        handles.append(Line2D([], [], color=pale, linestyle="", label=title, **look))
    smallest, largest = min(params), max(params)
    # If all dots have about the same size, one entry explains it.
    for number in [smallest, largest] if largest > 1.5 * smallest else [largest]:
        look = {"color": "#D0D0D0", "markersize": _size(number, largest, "o")}
        title = f"{_millions(number)} parameters"
        handles.append(Line2D([], [], marker="o", linestyle="", label=title, **look))
    add_legend(figure, handles)


def _millions(params: float) -> str:
    return f"{params / 1e6:.1f} M" if params >= 1e6 else f"{params / 1e3:.0f} k"
