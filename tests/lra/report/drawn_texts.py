"""What can be read in a figure."""

import matplotlib
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from lra.report.figure_files import Figure
from lra.report.styles import RC


def draw(figure: Figure) -> matplotlib.figure.Figure:
    """As the report draws it, laid out."""
    with matplotlib.rc_context(RC):
        drawn = figure.draw()
        pyplot.close(drawn)  # sets its resolution back
        drawn.set_dpi(300)
        FigureCanvasAgg(drawn).draw()
    return drawn


def plain_texts(drawn: matplotlib.figure.Figure) -> list[str]:
    """Every text that is seen, of ticks, titles and legends, but no formula."""
    return [
        text.get_text()
        for text in drawn.findobj(Text)
        if text.get_visible() and text.get_text() and not text.get_parse_math()
    ]


def check_legend(drawn: matplotlib.figure.Figure, least: float) -> None:
    """The legend is above all panels, which are at least so many points high."""
    (legend,) = drawn.legends
    for axis in drawn.axes:
        assert legend.get_window_extent().y0 > axis.title.get_window_extent().y1
        assert 72 * axis.get_window_extent().height / drawn.dpi > least
