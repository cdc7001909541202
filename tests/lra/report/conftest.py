"""Figures drawn as the report draws them."""

import matplotlib
import pytest
from matplotlib import pyplot

from lra.report.styles import RC


@pytest.fixture
def figure_style():
    """Draw with the report's settings of matplotlib; close all figures at the end."""
    with matplotlib.rc_context(RC):
        yield
    pyplot.close("all")
