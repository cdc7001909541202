"""Generates Pathfinder images: two long dashed snakes, distractors and two discs.

The procedure of the published generator (github.com/drewlinsley/pathfinder, 2019; Linsley et al.
2018, arXiv:1805.08315) with the parameters of LRA, in our own words and some hundred times
faster. One disc marks the start of one target snake, the other its end (label 1) or the other
target's end (label 0), so that both classes are made of the same things.

Image i is a function of (seed, i), computed with integers only (see `pathfinder_tables`): the same
bytes whatever the machine, the number of workers and the versions of the libraries.
"""

import collections
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from lra.data.pathfinder_parameters import Parameters
from lra.data.pathfinder_placement import place
from lra.data.pathfinder_rendering import render
from lra.data.pathfinder_tables import Tables, tables

# About a second's work at most.
_CELLS_PER_BATCH = 1 << 18


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


class Batch(NamedTuple):
    """Consecutive images and what they are made of; positions are (row, column).

    Attributes:
        images: uint8 [n, size, size].
        labels: int32 [n], 1 if both discs lie on one snake.
        starts: int32 [n, 2, 2], of the two target snakes.
        ends: int32 [n, 2, 2].
        discs: int32 [n, 2, 2], on a start and on an end.
        layout: the rest.
    """

    images: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    discs: np.ndarray
    layout: Layout


def batches(parameters: Parameters, *, seed: int, count: int, workers: int = 1) -> Iterator[Batch]:
    """Images 0 to `count` - 1 of a seed, in order; `workers` threads draw ahead.

    Args:
        parameters: of the images, `pathfinder_parameters.parameters(size, difficulty)`.
        seed: 0 to 2^64 - 1.
        count: of images.
        workers: changes nothing but the time; compiled code does not hold Python's lock.
    """
    every = tuple(tables(parameters, margin) for margin in parameters.margins)
    size = max(1, _CELLS_PER_BATCH // parameters.size**2)
    draw = functools.partial(_draw, parameters, every, seed)
    pool = ThreadPoolExecutor(workers)
    try:
        pending = collections.deque()
        for first in range(0, count, size):
            pending.append(pool.submit(draw, first, min(size, count - first)))
            if len(pending) == 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _draw(
    parameters: Parameters, every: tuple[Tables, ...], seed: int, first: int, count: int
) -> Batch:
    layout = Layout.empty(parameters, count)
    for which, table in enumerate(every):
        # The compiled code is the same for any number of margins.
        of_margin = parameters._replace(margins=parameters.margins[which : which + 1])
        scene = Scene.empty(of_margin, table)
        place(scene, which, len(every), np.uint64(seed), first, layout)
    starts = layout.dashes[:, :2, :2]
    ends = layout.dashes[:, 2 * parameters.dashes - 2 : 2 * parameters.dashes, :2]
    ended = np.where(layout.labels == 1, layout.marked, 1 - layout.marked)
    each = np.arange(count)
    discs = np.stack([starts[each, layout.marked], ends[each, ended]], axis=1)
    images = np.zeros((count, parameters.size, parameters.size), np.uint8)
    for which, table in enumerate(every):
        render(table, which, layout.margins, layout.dashes, discs, images)
    return Batch(images, layout.labels, starts, ends, discs, layout)
