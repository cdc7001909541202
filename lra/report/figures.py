"""The figures that rows and runs allow, and their files. matplotlib is imported only to draw."""

import contextlib
import io
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lra.report import curves, drawing
from lra.report.cells import TITLES, task_title
from lra.report.groups import Group

_PNG_DPI = 300
# The same rows give the same bytes.
_NO_DATE = {"Date": None}


class Figure(NamedTuple):
    """A name for its files, a caption, and how to draw it."""

    name: str
    caption: str
    draw: Callable[[], Any]


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
    png, svg = (folder / f"{figure.name}.{kind}" for kind in ("png", "svg"))
    with _drawn(figure) as drawn:
        drawn.savefig(png, dpi=_PNG_DPI)
        drawn.savefig(svg, metadata=_NO_DATE)
    return [png, svg]


def svg_element(figure: Figure) -> str:
    """The figure as the text of an SVG element."""
    text = io.StringIO()
    with _drawn(figure) as drawn:
        drawn.savefig(text, format="svg", metadata=_NO_DATE)
    return text.getvalue()[text.getvalue().index("<svg") :]


@contextlib.contextmanager
def _drawn(figure: Figure) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(drawing.RC):
        drawn = figure.draw()
        yield drawn
        pyplot.close(drawn)


def _speed_figures(group: Group) -> list[Figure]:
    by_task = curves.dots(group)
    if not by_task:
        return []
    caption = (
        "Test accuracy against training speed, all seeds of a program together; the area of a dot "
        "is the number of parameters, bars are standard deviations over seeds."
    )
    return [Figure(f"{group.slug}-speed", caption, lambda: drawing.draw_dots(by_task))]


def _sweep_figures(group: Group) -> list[Figure]:
    return [
        Figure(
            f"{group.slug}-{attention}-{option}",
            f"{TITLES.get(attention, attention)}: test accuracy and training speed against "
            f"{option}; bars are standard deviations over seeds.",
            lambda attention=attention, option=option, by_task=by_task: drawing.draw_sweep(
                attention, option, by_task
            ),
        )
        for (attention, option), by_task in curves.sweeps(group).items()
    ]
