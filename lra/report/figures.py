"""All figures of a report, and their files. matplotlib is imported only to draw."""

import dataclasses
import functools
import io
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lra.files import write_atomically
from lra.report import curves, drawing
from lra.report.cells import attention_title, task_title
from lra.report.dots import Dot, panels
from lra.report.groups import Group, file_name
from lra.report.notes import on_other_data
from lra.report.speeds import Speeds
from lra.report.styles import RC, Style, styles
from lra.report.sweep_points import Sweep, sweeps

_MOST_CURVES = 6  # of a panel
_MOST_SPEED_FIGURES = 6  # of groups other than the table
NO_SPEED_FIGURE = (
    "Accuracy against speed is drawn for the table and for the "
    f"{_MOST_SPEED_FIGURES} other groups with most results, of which this is none: give its rows "
    "to lra.report alone."
)
_PNG_DPI = 300
_COMPRESSION = {"compress_level": 3}  # 6 % larger than at 6, in 70 % of its time
# Where an SVG names a part of itself, or refers to one.
_BEFORE_ID = re.compile(r'\bid="|\bhref="#|\burl\(#')
_NOT_OF_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_RUNS_APART = "Each speed is of a run of its own, beside whatever else its machine did. Speeds: "
_MEASURED = "Speeds are those of one seed, measured by benchmarks.train_step: "
# The same rows give the same bytes.
_NO_DATE = {"Date": None}


class Rendered(NamedTuple):
    """The contents of a figure's files."""

    png: bytes
    svg: str


@dataclasses.dataclass(frozen=True)
class Figure:
    """A name for its files, a caption, and how to draw it."""

    name: str
    caption: str
    draw: Callable[[], Any]

    @property
    def title(self) -> str:
        """The first clause of the caption."""
        return re.split(r"[,;.](?:\s|$)", self.caption, maxsplit=1)[0]

    @functools.cached_property
    def rendered(self) -> Rendered:
        """Drawn on first use."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        png, svg = io.BytesIO(), io.StringIO()
        with matplotlib.rc_context(RC):
            drawn = self.draw()
            _ease_layout(drawn)
            # Not by savefig, which draws everything twice.
            drawn.set_dpi(_PNG_DPI)
            FigureCanvasAgg(drawn).print_png(png, pil_kwargs=_COMPRESSION)
            drawn.set_layout_engine("none")  # laid out
            FigureCanvasSVG(drawn).print_svg(svg, metadata=_NO_DATE)
            pyplot.close(drawn)
        return Rendered(png.getvalue(), _NOT_OF_XML.sub("\ufffd", svg.getvalue()))


def _ease_layout(drawn: Any) -> None:
    """Makes laying out faster by skipping what does not matter.

    Finding the places of empty labels would take a fifth of the time of drawing, so they are given
    one. Spines are left out of the layout, since measuring them would update all ticks once more.
    """
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():
                axis.set_label_coords(0, 0)
        for spine in axes.spines.values():
            spine.set_in_layout(False)


def figures(
    groups: list[Group], workdirs: list[str], measured: Speeds | None = None
) -> tuple[list[list[Figure]], list[Figure]]:
    """The figures of each group, and those of learning curves of the runs in `workdirs`.

    Args:
        groups: of the rows.
        workdirs: of runs.
        measured: speeds of the protocol's steps, for the table; else those of its rows are drawn.
    """
    runs = curves.histories(workdirs) if workdirs else {}
    looks = styles(
        each.attention
        for each in [
            *(line for group in groups for line in group.lines),
            *(run for of_task in runs.values() for run in of_task),
        ]
    )
    crowded = beyond_speed_figures(groups)
    of_groups = [
        [
            *([] if each in crowded else _speed_figures(each, looks, measured)),
            *_sweep_figures(each, looks),
        ]
        for each in groups
    ]
    return of_groups, [_curves_figure(task, of_task, looks) for task, of_task in runs.items()]


def beyond_speed_figures(groups: list[Group]) -> list[Group]:
    """The groups whose figure of accuracy against speed is left out: all but the largest."""

    def results(one: Group) -> int:
        return sum(len(cell.ok) for _, _, cell in one.all_cells())

    others = [one for one in groups if not one.is_table3 and panels(one).by_task]
    return sorted(others, key=lambda one: -results(one))[_MOST_SPEED_FIGURES:]


def save(figure: Figure, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `<name>.png` and `<name>.svg` to `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.name}.{kind}" for kind in Rendered._fields]
    for path, content in zip(paths, figure.rendered, strict=True):
        write_atomically(path, content)
    return paths


def svg_element(figure: Figure, prefix: str) -> str:
    """The figure as the text of an SVG element; its ids begin with `prefix`."""
    text = figure.rendered.svg
    return _BEFORE_ID.sub(rf"\g<0>{prefix}", text[text.index("<svg") :])


def _speed_figures(group: Group, looks: dict[str, Style], measured: Speeds | None) -> list[Figure]:
    measured = measured if group.is_table3 else None
    by_task, platform, missing = panels(group, measured)
    if not by_task:
        return []
    dots = [dot for of_task in by_task.values() for dot in of_task.values()]
    together = "" if measured else ", all seeds of a program together"
    caption = (
        f"Test accuracy against training speed{together}; the area of a dot is the number of "
        "parameters, bars are standard deviations over seeds. "
        f"{_MEASURED if measured else _RUNS_APART}{platform.title_with_jax}{_programs(dots)}."
    )
    if "" in by_task:
        caption += (
            " Average: the geometric mean of the speeds, the mean of the parameters, and the bar "
            "of a mean over tasks, each with a seed of its own."
        )
    if missing:
        caption += f" No dot for cells {', '.join(missing)}."
    if any(dot.marked for dot in dots):
        caption = " ".join([caption, *on_other_data(group)])
    draw = functools.partial(drawing.draw_dots, by_task, looks)
    return [Figure(f"{group.slug}-speed", caption, draw)]


def _sweep_figures(group: Group, looks: dict[str, Style]) -> list[Figure]:
    found = []
    for (attention, option), every in sweeps(group).items():
        # A legend has room for few curves: those with most values are shown.
        largest = sorted(every, key=lambda sweep: -sum(map(len, sweep.by_task.values())))
        shown = [sweep for sweep in every if sweep in largest[:_MOST_CURVES]]
        fixed = shown[0].fixed if len(shown) == 1 else ""
        caption = (
            f"{attention_title(attention)}: test accuracy and training speed against "
            f"{option}{f', {fixed}' if fixed else ''}; bars are standard deviations over seeds, "
            f"open marks single seeds. {_RUNS_APART}{_platforms(shown)}.{_left_out(shown)}"
        )
        if len(every) > len(shown):
            caption += f" Not drawn: {len(every) - len(shown)} with other options fixed."
        name = file_name(f"{group.slug}-{attention}-{option}")
        draw = functools.partial(drawing.draw_sweep, option, shown, looks[attention])
        found.append(Figure(name, caption, draw))
    return found


def _curves_figure(task: str, runs: list[curves.History], looks: dict[str, Style]) -> Figure:
    caption = (
        f"{task_title(task)}: training loss and validation accuracy; lines are means over the "
        "seeds that have not diverged, bands reach from their lowest to their highest. A point "
        f"is a mean over at least 1/{curves.MOST_LOSSES} of the steps (losses) or "
        f"1/{curves.MOST_EVALUATIONS} (evaluations)."
    )
    ends = [
        f"{run.title}: {left} of {run.seeds} seeds from step {step:,} on"
        for run in runs
        for step, left in run.ends
    ]
    if ends:
        caption += f" {'; '.join(ends)}."
    draw = functools.partial(drawing.draw_histories, runs, looks)
    return Figure(f"curves-{task}", caption, draw)


def _left_out(shown: list[Sweep]) -> str:
    """Names the values that have rows but no point: ` No point: ListOps at 32 (no result).`"""
    told = [
        f"{_place(shown, sweep, task)} at {value:g} ({why})"
        for sweep in shown
        for task, values in sweep.left_out.items()
        for value, why in values.items()
    ]
    return f" No point: {', '.join(told)}." if told else ""


def _platforms(shown: list[Sweep]) -> str:
    """The platform of all curves of a figure, `a device, float32`, or the platform of each."""
    programs = _programs(
        dot for sweep in shown for dots in sweep.by_task.values() for dot in dots.values()
    )
    titles = {
        _place(shown, sweep, task): platform.title_with_jax
        for sweep in shown
        for task, platform in sweep.platforms.items()
    }
    if len(set(titles.values())) > 1:
        told = "; ".join(f"{place}: {title}" for place, title in titles.items())
        return f"{told}{programs}"
    return f"{next(iter(titles.values()))}{programs}"


def _place(shown: list[Sweep], sweep: Sweep, task: str) -> str:
    """A curve in words: `ListOps`, or `ListOps with pinv_iterations=8` if a panel has several."""
    title = task_title(task)
    return f"{title} with {sweep.fixed or 'defaults'}" if len(shown) > 1 else title


def _programs(timed: Iterable[Dot]) -> str:
    """Which speeds are shown: of programs of how many seeds, and which if a cell has several."""
    timed = list(timed)
    seeds = sorted({one.seeds_together for one in timed} - {None})
    told = f", programs of {seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else ""
    if all(one.slowest in (one.speed, None) for one in timed):
        return told
    return (
        f"{told}; of several programs of a cell the fastest, with a line to the slowest, which "
        "other work on the machine or older code held up: what benchmarks.train_step measures in "
        "one run compares methods better"
    )
