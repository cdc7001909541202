"""What Pathfinder images are made of: the arrays that `pathfinder_placement` fills in."""

from typing import NamedTuple

import numpy as np

from lra.data.pathfinder_parameters import Parameters
from lra.data.pathfinder_tables import Tables


class Layout(NamedTuple):
    """What consecutive images are made of; all int32.

    Attributes:
        labels: [n], 1 if both discs lie on one snake.
        margins: [n], which of the parameters' margins the image has.
        dashes: [n, most, 4], row, column, stamp and gain: the two targets' in turn, then those
            of one distractor after the other; what is left over has gain 0.
        marked: [n], the target whose start has a disc.
        distractors: [n], how many found room.
        attempts: [n], at the two targets.
    """

    labels: np.ndarray
    margins: np.ndarray
    dashes: np.ndarray
    marked: np.ndarray
    distractors: np.ndarray
    attempts: np.ndarray

    @classmethod
    def empty(cls, parameters: Parameters, count: int) -> "Layout":
        """Room for `count` images."""
        distractors = parameters.distractors * parameters.distractor_dashes
        dashes = np.zeros((count, 2 * parameters.dashes + distractors, 4), np.int32)
        labels, margins, marked, placed, attempts = np.zeros((5, count), np.int32)
        return cls(labels, margins, dashes, marked, placed, attempts)


class Scene(NamedTuple):
    """One image in the making.

    Attributes:
        parameters: of all images.
        table: for the image's margin.
        random: uint64 [1], the state of the random numbers.
        occupied: uint8 [side, side], a canvas in units of 1 / `MASK_ONE`.
        before: the same, as it was before the distractor in the making.
        cumulative: int64 [J], weights up to each cell of the ring.
        free: int64 [size²], cells where a distractor may start.
    """

    parameters: Parameters
    table: Tables
    random: np.ndarray
    occupied: np.ndarray
    before: np.ndarray
    cumulative: np.ndarray
    free: np.ndarray

    @classmethod
    def empty(cls, parameters: Parameters, table: Tables) -> "Scene":
        """Scratch for images of one margin, one after the other."""
        side = parameters.size + 2 * table.halo
        return cls(
            parameters=parameters,
            table=table,
            random=np.zeros(1, np.uint64),
            occupied=np.zeros((side, side), np.uint8),
            before=np.zeros((side, side), np.uint8),
            cumulative=np.zeros(len(table.ring), np.int64),
            free=np.zeros(parameters.size**2, np.int64),
        )
