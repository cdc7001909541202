"""Generate Pathfinder images: two long dashed snakes, distractors and two discs.

This reimplements the procedure of the published generator (github.com/drewlinsley/pathfinder, 2019;
Linsley et al. 2018, arXiv:1805.08315) with the parameters of LRA, some hundred times faster. One
disc marks the start of one target snake; the other marks its end (label 1) or the end of the other
target (label 0), so that both classes consist of the same elements.

Image i is a function of (seed, i), computed with integers only (see `pathfinder_tables`). The bytes
do not depend on the machine, the number of workers or the versions of libraries.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lra.data.compiled import in_threads
from lra.data.pathfinder_parameters import Parameters
from lra.data.pathfinder_placement import place
from lra.data.pathfinder_rendering import render
from lra.data.pathfinder_tables import Tables, tables

# At most about a second of work.
_CELLS_PER_BATCH = 1 << 18


class Layout(NamedTuple):
    """Elements of consecutive images; all arrays are int32.

    Attributes:
        labels: [n], 1 if both discs lie on one snake.
        margins: [n], index of the image's margin in the margins of the parameters.
        dashes: [n, max dashes, 4], row, column, stamp and gain of each dash: those of the two
            targets alternate, followed by those of one distractor after the other. Unused entries
            have gain 0.
        marked: [n], index of the target whose start has a disc.
        distractors: [n], number of distractors placed.
        attempts: [n], number of attempts to place the two targets.
    """

    labels: np.ndarray
    margins: np.ndarray
    dashes: np.ndarray
    marked: np.ndarray
    distractors: np.ndarray
    attempts: np.ndarray

    @classmethod
    def empty(cls, parameters: Parameters, count: int) -> "Layout":
        """Allocate a layout for `count` images."""
        distractors = parameters.distractors * parameters.distractor_dashes
        dashes = np.zeros((count, 2 * parameters.dashes + distractors, 4), np.int32)
        labels, margins, marked, placed, attempts = np.zeros((5, count), np.int32)
        return cls(labels, margins, dashes, marked, placed, attempts)


class Scene(NamedTuple):
    """Scratch state for one image at a time.

    Attributes:
        parameters: Parameters of the images.
        table: Tables for the image's margin.
        random: uint64 [1], state of the random number generator.
        occupied: uint8 [side, side], occupancy of the canvas in units of 1 / `MASK_ONE`.
        before: uint8 [side, side], `occupied` before the current distractor.
        cumulative: int64 [J], cumulative weights of the ring's cells.
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
        """Allocate the scratch state for images of one margin."""
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
    """Consecutive images and their elements; positions are (row, column).

    Attributes:
        images: uint8 [n, size, size].
        labels: int32 [n], 1 if both discs lie on one snake.
        starts: int32 [n, 2, 2], starts of the two target snakes.
        ends: int32 [n, 2, 2], ends of the two target snakes.
        discs: int32 [n, 2, 2], the disc on a start and the disc on an end.
        layout: All elements of the images.
    """

    images: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    discs: np.ndarray
    layout: Layout


def batches(parameters: Parameters, *, seed: int, count: int, workers: int = 1) -> Iterator[Batch]:
    """Yield images 0 to `count` - 1 of a seed, in order.

    Args:
        parameters: Parameters of the images, `pathfinder_parameters.parameters(size, difficulty)`.
        seed: Seed, 0 to 2^64 - 1.
        count: Number of images.
        workers: Number of threads that draw batches ahead of time.
    """
    tables_by_margin = tuple(tables(parameters, margin) for margin in parameters.margins)
    batch_size = max(1, _CELLS_PER_BATCH // parameters.size**2)
    calls = (
        (parameters, tables_by_margin, seed, first, min(batch_size, count - first))
        for first in range(0, count, batch_size)
    )
    yield from in_threads(_draw, calls, workers)


def _draw(
    parameters: Parameters, tables_by_margin: tuple[Tables, ...], seed: int, first: int, count: int
) -> Batch:
    layout = Layout.empty(parameters, count)
    for index, table in enumerate(tables_by_margin):
        # A single margin, so that the compiled code is the same for any number of margins.
        single_margin = parameters._replace(margins=parameters.margins[index : index + 1])
        scene = Scene.empty(single_margin, table)
        place(scene, index, len(tables_by_margin), np.uint64(seed), first, layout)
    starts = layout.dashes[:, :2, :2]
    ends = layout.dashes[:, 2 * parameters.dashes - 2 : 2 * parameters.dashes, :2]
    end_target = np.where(layout.labels == 1, layout.marked, 1 - layout.marked)
    rows = np.arange(count)
    discs = np.stack([starts[rows, layout.marked], ends[rows, end_target]], axis=1)
    images = np.zeros((count, parameters.size, parameters.size), np.uint8)
    for index, table in enumerate(tables_by_margin):
        render(table, index, layout.margins, layout.dashes, discs, images)
    return Batch(images, layout.labels, starts, ends, discs, layout)
