"""Pictures of an analysis: what is written in them, and that it has its place."""

import itertools

import numpy as np
import pytest

from lra.analysis.matrix_pictures import HeatMap
from lra.analysis.page import figures
from tests.lra.report.drawn_texts import draw, plain_texts

DATA = ("trained", "random")
LENGTH = 64
PANELS = (
    ("nystrom", "", "num_landmarks"),
    ("linformer", "mean pooling", "proj_dim"),
    ("linformer", "random E", "proj_dim"),
    ("performer", "", "num_features"),
    ("reformer", "", "num_hashes"),
    ("longformer", "", "window"),
)


def all_rows(least):
    """Rows of every kind; the least error is `least`, the largest 3."""
    return [
        {"kind": "run", "length": LENGTH},
        *(row for data in DATA for row in rows_of(data, np.geomspace(3, least, 6))),
    ]


def rows_of(data, errors):
    for (method, variant, option), (index, error) in itertools.product(PANELS, enumerate(errors)):
        panel = {"method": method, "variant": variant, "option": option, "size": 2 ** (index + 1)}
        names = ("matrix_error", "output_error", "best_rank_matrix_error", "best_rank_output_error")
        yield {"kind": "approximation", "data": data, **panel, **dict.fromkeys(names, error)}
    for landmarks, (iterations, error) in itertools.product(
        (4, 8, 16, 32, 64), zip((1, 2, 4, 6, 8, 12), errors, strict=True)
    ):
        sizes = {"landmarks": landmarks, "iterations": iterations}
        yield {"kind": "iterations", "data": data, **sizes, "matrix_error": error}
    for layer, head in itertools.product((0, 1), (0, 1)):
        shares = {"at_quarter": 0.9, "cumulative": list(np.linspace(0.3, 1, LENGTH))}
        place = {"layer": layer, "head": head, "length": LENGTH}
        yield {"kind": "spectrum", "data": data, **place, **shares}
    for epsilon, error in zip((0.2, 0.3, 0.4, 0.5, 0.6), errors, strict=False):
        measured = [error / 2, error, 2 * error]
        found = {"printed_errors": measured, "proven_errors": measured}
        yield {
            "kind": "theorem1",
            "data": data,
            "epsilon": epsilon,
            "rank": 144,
            "length": LENGTH,
            **found,
        }


@pytest.fixture(scope="module", params=[1e-14, 0.3])
def drawn(request):
    """Every figure, of errors over many powers of ten and over one."""
    exact = np.eye(LENGTH)
    maps = [HeatMap("trained", layer, 0, 16, 0.5, exact, exact) for layer in (0, 1)]
    return {figure.name: draw(figure) for figure in figures(all_rows(request.param), maps)}


def test_no_formula_is_written_out(drawn):
    texts = {name: plain_texts(figure) for name, figure in drawn.items()}
    assert all(texts.values())
    for name, of_figure in texts.items():
        assert not [text for text in of_figure if "$" in text or "mathdefault" in text], name


def test_titles_are_within_their_figure_and_apart(drawn):
    for figure in drawn.values():
        boxes = [axis.title.get_window_extent() for axis in figure.axes if axis.get_title()]
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
        assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
