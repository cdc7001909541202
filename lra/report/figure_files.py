"""A figure and its files, PNG and SVG. matplotlib is imported only to draw."""

import contextlib
import dataclasses
import functools
import io
import multiprocessing
import os
import pathlib
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any, NamedTuple

from lra.files import write_atomically
from lra.report.styles import RC

_PNG_DPI = 300
_COMPRESSION = {"compress_level": 3}  # files 6 % larger than at level 6, in 70 % of its time
# What precedes an id in an SVG, at its definition or a reference.
_BEFORE_ID = re.compile(r'\bid="|\bhref="#|\burl\(#')
_NOT_OF_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # characters that XML forbids
_NO_DATE = {"Date": None}  # so that the same rows give the same bytes


class Rendered(NamedTuple):
    """Contents of a figure's files."""

    png: bytes
    svg: str


@dataclasses.dataclass
class Figure:
    """A figure: the stem of its file names, its caption, and a function that draws it.

    `ahead` is what another process makes of it, if one was asked to (see `drawn_ahead`).
    """

    name: str
    caption: str
    draw: Callable[[], Any]
    ahead: "Future[Rendered] | None" = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def title(self) -> str:
        """The first clause of the caption."""
        return re.split(r"[,;.](?:\s|$)", self.caption, maxsplit=1)[0]

    @functools.cached_property
    def rendered(self) -> Rendered:
        """The files' contents, drawn on first use unless another process has drawn them."""
        if self.ahead is not None:
            with contextlib.suppress(BrokenExecutor):  # it was killed, perhaps for its memory
                return self.ahead.result()
        return render(self.draw)


def render(draw: Callable[[], Any]) -> Rendered:
    """Call a function that draws a figure, and return the contents of its files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    png, svg = io.BytesIO(), io.StringIO()
    with matplotlib.rc_context(RC):
        figure = draw()
        _ease_layout(figure)
        # savefig would draw everything twice.
        figure.set_dpi(_PNG_DPI)
        FigureCanvasAgg(figure).print_png(png, pil_kwargs=_COMPRESSION)
        figure.set_layout_engine("none")  # already laid out
        FigureCanvasSVG(figure).print_svg(svg, metadata=_NO_DATE)
        pyplot.close(figure)
    return Rendered(png.getvalue(), _NOT_OF_XML.sub("\ufffd", svg.getvalue()))


def _ease_layout(figure: Any) -> None:
    """Speed up the layout by skipping what does not affect it.

    Empty labels get fixed coordinates, since placing them would take a fifth of the drawing time.
    Spines are left out of the layout, since measuring them would update all ticks once more.
    """
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():
                axis.set_label_coords(0, 0)
        for spine in axes.spines.values():
            spine.set_in_layout(False)


@contextlib.contextmanager
def drawn_ahead(figures: list[Figure], processes: int) -> Iterator[None]:
    """Let other processes draw the figures while the block runs.

    Less than four figures are drawn here, when their files are needed: to start, a process takes as
    long as to draw one. So are all where processes have no means to communicate.

    Args:
        figures: Figures whose functions can be pickled.
        processes: The most processes to start; with less than two, figures are drawn here. Each
            imports the main module of this one (see multiprocessing), which a program that has no
            `if __name__ == "__main__"` does not survive.
    """
    processes = min(processes, len(figures) // 2)
    pool = _pool(processes) if processes > 1 else None
    if pool is None:
        yield
        return
    try:
        # Where no process can be started, figures are drawn here.
        with _without_interrupts(), contextlib.suppress(OSError):
            for figure in figures:
                figure.ahead = pool.submit(render, figure.draw)
        yield
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(processes: int) -> ProcessPoolExecutor | None:
    """Return processes that hold nothing of this one, or None where there are no semaphores."""
    context = multiprocessing.get_context("spawn")
    try:
        return ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    except (OSError, NotImplementedError):  # such as in containers without /dev/shm
        return None


def _end_with_parent() -> None:
    """End this process when its parent does, which a signal may end before it says so."""

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which their parent answers for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def save(figure: Figure, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write `<name>.png` and `<name>.svg` to `folder` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.name}.{kind}" for kind in Rendered._fields]
    for path, content in zip(paths, figure.rendered, strict=True):
        write_atomically(path, content)
    return paths


def svg_element(figure: Figure, prefix: str) -> str:
    """Return the figure as an SVG element whose ids begin with `prefix`."""
    text = figure.rendered.svg
    return _BEFORE_ID.sub(rf"\g<0>{prefix}", text[text.index("<svg") :])
