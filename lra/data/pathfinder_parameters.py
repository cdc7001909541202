"""Parameters of LRA's Pathfinder images, by size and difficulty.

The values are from the notes in LRA's Pathfinder builder (lra_benchmarks/data/pathfinder.py of
github.com/google-research/long-range-arena) or, where these give none, defaults of the published
generator.
"""

from typing import NamedTuple

DASHES = {"easy": 6, "intermediate": 9, "hard": 14}
SIZES = (32, 64, 128, 256)


class Parameters(NamedTuple):
    """Parameters of one size and difficulty; lengths in pixels.

    Attributes:
        size: Number of rows and columns of the image.
        pad: Width of the border that no dash enters.
        length: Length of a dash.
        width: Width of a dash.
        margins: Possible widths of the free space around a dash; each image draws one.
        start_distance: Distance between the starts of the two target snakes.
        disc_radius: Radius of the two markers.
        continuity: Limit of a snake's turns: 1 allows up to 90 degrees per dash, 1.8 up to 50.
        dashes: Number of dashes of a target snake.
        distractor_dashes: Number of dashes of a distractor.
        distractors: Number of distractors to try, not all of which may be placed.
        gains: Relative contrast of targets and distractors.
        oversampling: Oversampling factor of the grid on which dashes and discs are drawn.
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
# 20, 22, 35 and 30 divided by the dashes of a distractor: for size 32 by integer division, as LRA
# has it; else the dashes are a third of the target's, fractions included, and the quotient is
# rounded up. That fits the one released image of size 256, hard, whose distractors could be counted
# (7), and a released list where the third is 2.0.
_DISTRACTORS = {
    32: {"easy": 10, "intermediate": 6, "hard": 5},
    64: {"easy": 11, "intermediate": 8, "hard": 5},
    128: {"easy": 18, "intermediate": 12, "hard": 8},
    256: {"easy": 15, "intermediate": 10, "hard": 7},
}


def parameters(size: int, difficulty: str) -> Parameters:
    """Return LRA's parameters for one of `SIZES` and a difficulty in `DASHES`."""
    return Parameters(
        size=size,
        dashes=DASHES[difficulty],
        distractor_dashes=DASHES[difficulty] // 3,
        distractors=_DISTRACTORS[size][difficulty],
        **_BY_SIZE[size],
    )
