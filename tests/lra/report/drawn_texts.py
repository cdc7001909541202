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
