"""The parameters of LRA's Pathfinder images, by size and difficulty.

From the notes beside LRA's Pathfinder builder (github.com/google-research/long-range-arena,
lra_benchmarks/data/pathfinder.py); what they leave out are the published generator's defaults.
"""

from typing import NamedTuple

DASHES = {"easy": 6, "intermediate": 9, "hard": 14}
SIZES = (32, 64, 128, 256)


class Parameters(NamedTuple):
    """One size and difficulty; lengths in pixels.

    Attributes:
        size: rows and columns of the image.
        pad: width of the border that no dash enters.
        length: of a dash.
        width: of a dash.
        margins: kept free around a dash; each image draws one.
        start_distance: between the starts of the two target snakes.
        disc_radius: of the two markers.
        continuity: 1 lets a snake turn by up to 90 degrees a dash, 1.8 by up to 50.
        dashes: of a target snake.
        distractor_dashes: of a distractor.
        distractors: tried, not necessarily placed.
        gains: relative contrast of targets and distractors.
        oversampling: of the grid on which dashes and discs are drawn.
    """

    size: int
    pad: int
    length: int
    width: float
    margins: tuple[int, ...]
    start_distance: int
    disc_radius: float
    continuity: float
    dashes: int
    distractor_dashes: int
    distractors: int
    gains: tuple[int, int]
    oversampling: int = 2


_BY_SIZE = {
    32: {
        "pad": 1,
        "length": 2,
        "width": 0.5,
        "margins": (1,),
        "start_distance": 7,
        "disc_radius": 1.5,
        "continuity": 1.0,
        # Only targets are drawn with the "paddle contrast" of 0.75.
        "gains": (3, 4),
    },
    64: {
        "pad": 1,
        "length": 5,
        "width": 1.0,
        "margins": (1,),
        "start_distance": 12,
        "disc_radius": 2.5,
        "continuity": 1.8,
        "gains": (1, 1),
    },
    128: {
        "pad": 1,
        "length": 5,
        "width": 1.5,
        "margins": (2, 3),
        "start_distance": 20,
        "disc_radius": 3.0,
        "continuity": 1.8,
        "gains": (1, 1),
    },
    256: {
        "pad": 22,
        "length": 5,
        "width": 2.0,
        "margins": (3,),
        "start_distance": 27,
        "disc_radius": 5.0,
        "continuity": 1.8,
        "gains": (1, 1),
    },
}
# 20, 22, 35 and 30 divided by a distractor's dashes; what is left over counts as one more, but
# for 32, where LRA divides integers.
_DISTRACTORS = {
    32: {"easy": 10, "intermediate": 6, "hard": 5},
    64: {"easy": 11, "intermediate": 8, "hard": 6},
    128: {"easy": 18, "intermediate": 12, "hard": 9},
    256: {"easy": 15, "intermediate": 10, "hard": 8},
}


def parameters(size: int, difficulty: str) -> Parameters:
    """LRA's parameters for one of `SIZES` and one of `DASHES`' difficulties."""
    return Parameters(
        size=size,
        dashes=DASHES[difficulty],
        distractor_dashes=DASHES[difficulty] // 3,
        distractors=_DISTRACTORS[size][difficulty],
        **_BY_SIZE[size],
    )
