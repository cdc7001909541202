"""The figures that rows and runs allow, and their files. matplotlib is imported only to draw."""

import dataclasses
import functools
import io
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lra.files import write_atomically
from lra.report import curves, drawing, sweep_points
from lra.report.cells import attention_title, task_title
from lra.report.groups import Group
from lra.report.notes import on_other_data

_PNG_DPI = 300
# The same rows give the same bytes.
_NO_DATE = {"Date": None}


class Rendered(NamedTuple):
    """A figure as the contents of files."""

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
        with matplotlib.rc_context(drawing.RC):
            drawn = self.draw()
            _place_empty_labels(drawn)
            # Not by savefig, which draws everything twice.
            drawn.set_dpi(_PNG_DPI)
            FigureCanvasAgg(drawn).print_png(png)
            drawn.set_layout_engine("none")  # laid out
            FigureCanvasSVG(drawn).print_svg(svg, metadata=_NO_DATE)
            pyplot.close(drawn)
        return Rendered(png.getvalue(), svg.getvalue())


def _place_empty_labels(drawn: Any) -> None:
    """Anywhere: else their places are looked for, which is a fifth of all drawing."""
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():
                axis.set_label_coords(0, 0)


def figures(groups: list[Group], workdirs: list[str]) -> dict[str, list[Figure]]:
    """By the slug of their group, or `curves`, the figures that the rows and runs allow."""
    found = {}
    for group in groups:
        found[group.slug] = [*_speed_figures(group), *_sweep_figures(group)]
    if workdirs:
        found["curves"] = [
            Figure(
                f"curves-{task}",
                f"{task_title(task)}: training loss and validation accuracy; mean and range over "
                "the seeds.",
                lambda runs=runs: drawing.draw_histories(runs),
            )
            for task, runs in curves.histories(workdirs).items()
        ]
    return found


def save(figure: Figure, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `<name>.png` and `<name>.svg` to `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.name}.{kind}" for kind in Rendered._fields]
    for path, content in zip(paths, figure.rendered, strict=True):
        write_atomically(path, content)
    return paths


def svg_element(figure: Figure) -> str:
    """The figure as the text of an SVG element."""
    text = figure.rendered.svg
    return text[text.index("<svg") :]


def _speed_figures(group: Group) -> list[Figure]:
    by_task = curves.dots(group)
    if not by_task:
        return []
    caption = (
        "Test accuracy against training speed, all seeds of a program together; the area of a dot "
        "is the number of parameters, bars are standard deviations over seeds."
    )
    platform = curves.platform_of_dots(group)
    programs = _programs(dot for dots in by_task.values() for dot in dots)
    caption += f" Speeds: {platform.title}{programs}"
    elsewhere = [
        cell
        for line in group.lines
        for task in group.tasks
        if (cell := line.cell(task)) and not cell.on(platform).rows
    ]
    caption += "; cells of other devices or number formats have no dot." if elsewhere else "."
    if any(dot.marked for dots in by_task.values() for dot in dots):
        caption = " ".join([caption, *on_other_data(group)])
    return [Figure(f"{group.slug}-speed", caption, lambda: drawing.draw_dots(by_task))]


def _sweep_figures(group: Group) -> list[Figure]:
    return [
        Figure(
            f"{group.slug}-{attention}-{option}",
            f"{attention_title(attention)}: test accuracy and training speed against "
            f"{option}; bars are standard deviations over seeds. {_platforms(by_task)}."
            f"{_left_out(sweep_points.left_out(group, attention, option))}",
            lambda attention=attention, option=option, by_task=by_task: drawing.draw_sweep(
                attention, option, by_task
            ),
        )
        for (attention, option), by_task in sweep_points.sweeps(group).items()
    ]


def _left_out(by_task: dict[str, dict[float, str]]) -> str:
    """Which values have rows but no point: ` No point: ListOps at 32 (no result).`"""
    told = [
        f"{task_title(task)} at {value:g} ({why})"
        for task, values in by_task.items()
        for value, why in values.items()
    ]
    return f" No point: {', '.join(told)}." if told else ""


def _platforms(by_task: dict[str, list[sweep_points.Point]]) -> str:
    """What the curves of a figure were computed on: `a device, float32`, or that of each task."""
    programs = _programs(point for points in by_task.values() for point in points)
    titles = {task: points[0].platform.title for task, points in by_task.items()}
    if len(set(titles.values())) > 1:
        told = "; ".join(f"{task_title(task)}: {title}" for task, title in titles.items())
        return f"{told}{programs}"
    return f"Speeds: {next(iter(titles.values()))}{programs}"


def _programs(timed: Iterable[curves.Dot | sweep_points.Point]) -> str:
    """In what the programs differ whose speeds are shown: numbers of seeds, versions of JAX."""
    timed = list(timed)
    seeds = sorted({one.seeds_together for one in timed} - {None})
    versions = sorted({version for one in timed for version in one.jax_versions})
    told = f", programs of {seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else ""
    return told + (f", JAX {' and '.join(versions)}" if len(versions) > 1 else "")
