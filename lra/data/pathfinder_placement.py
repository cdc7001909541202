"""Where Pathfinder's dashes and discs lie: the compiled part of `pathfinder_generator`.

Two target snakes grow dash by dash and in turn from starts a fixed distance apart; if either gets
stuck, both are thrown away. Short distractors follow where there is room for them.

Positions are (row, column) of the image; a canvas has a halo around it into which stamps reach.
A snake is a row of integers, and so is a dash: its row, column, stamp and gain.
"""

import math
from typing import NamedTuple

import numpy as np

from lra.data.compiled import compiled
from lra.data.pathfinder_stamps import MASK_ONE
from lra.data.pathfinder_tables import DEGREES, WEIGHT_ONE, Parameters, Tables

# A cell is free up to an occupancy of 0.3, dashes may overlap below a sum of 1.8, and a snake
# whose weights sum to less than 1e-4 has nowhere to go.
_FREE = int(0.3 * MASK_ONE)
_CROWDED = round(1.8 * MASK_ONE)
_DEAD_END = math.ceil(1e-4 * WEIGHT_ONE * MASK_ONE)
# A lost draw is repeated twice, a distractor four times.
_TRIES = 3
_DISTRACTOR_TRIES = 5
# Distractors need at least one free cell in so many.
_CELLS_PER_FREE = 100
# The columns of a snake.
_PIVOT_Y, _PIVOT_X, _DIRECTION, _TIP_Y, _TIP_X, _STAMP = range(6)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Layout(NamedTuple):
    """What consecutive images are made of; all int32.

    Attributes:
        labels: [n], 1 if both discs lie on one snake.
        margins: [n], which of the parameters' margins the image has.
        dashes: [n, most, 4], row, column, stamp and gain: the two targets' in turn, then those
            of one distractor after the other, then zeros.
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


class _Scene(NamedTuple):
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


@compiled
def _mix(value):
    """The output function of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2714064)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _below(random, limit):
    """A uniform integer from 0 to `limit` - 1, limit < 2^31."""
    random[0] += _GOLDEN
    high = _mix(random[0]) >> np.uint64(32)
    return np.int64((high * np.uint64(limit)) >> np.uint64(32))


@compiled
def _inside(scene, y, x):
    return 0 <= y < scene.parameters.size and 0 <= x < scene.parameters.size


@compiled
def _at(scene, y, x):
    """The occupancy of a cell, which may lie in the halo."""
    return np.int64(scene.occupied[y + scene.table.halo, x + scene.table.halo])


@compiled
def _fits(scene, y, x, stamp):
    """Whether a dash may be drawn at (y, x): its mask hardly overlaps what is there."""
    for cell in scene.table.mask_cells[stamp]:
        if cell[2] + MASK_ONE < _CROWDED:
            break
        if _at(scene, y + cell[0], x + cell[1]) + cell[2] >= _CROWDED:
            return False
    return True


@compiled
def _occupy(scene, snake):
    """Enters the mask of the snake's last dash, cut at the image's edges."""
    for cell in scene.table.mask_cells[snake[_STAMP]]:
        y, x = snake[_TIP_Y] + cell[0], snake[_TIP_X] + cell[1]
        if _inside(scene, y, x):
            here = (y + scene.table.halo, x + scene.table.halo)
            scene.occupied[here] = max(scene.occupied[here], cell[2])


@compiled
def _start(scene, snake, degree, y, x):
    """Starts a snake at (y, x); False if its first dash or pivot is outside the image."""
    table = scene.table
    snake[_PIVOT_Y], snake[_PIVOT_X] = y + table.pivot[degree, 0], x + table.pivot[degree, 1]
    snake[_DIRECTION] = degree
    snake[_TIP_Y], snake[_TIP_X], snake[_STAMP] = y, x, table.start_stamp[degree]
    ends_inside = _inside(scene, y + table.head[degree, 0], x + table.head[degree, 1])
    return ends_inside and _inside(scene, snake[_PIVOT_Y], snake[_PIVOT_X])


@compiled
def _start_first(scene, snake):
    """Starts the first target where its whole first dash is in the middle of the image."""
    margin = 2 * scene.parameters.start_distance
    side = scene.parameters.size - 2 * margin
    for _ in range(_TRIES):
        degree = _below(scene.random, DEGREES)
        stamp = scene.table.start_stamp[degree]
        top, bottom, left, right = scene.table.probe_box[stamp]
        rows, columns = side - (bottom - top), side - (right - left)
        if not scene.table.probe_covers[stamp] or rows <= 0 or columns <= 0:
            return False
        y = margin - top + _below(scene.random, rows)
        x = margin - left + _below(scene.random, columns)
        if _start(scene, snake, degree, y, x):
            return True
    return False


@compiled
def _start_second(scene, first, snake):
    """Starts the second target at its distance from the first, whatever is there."""
    for _ in range(_TRIES):
        degree = _below(scene.random, DEGREES)
        way = scene.table.second[_below(scene.random, DEGREES)]
        y, x = 2 * first[_TIP_Y] + way[0], 2 * first[_TIP_X] + way[1]
        # Half of it, halves to even.
        y, x = (y + (y >> 1 & 1)) >> 1, (x + (x >> 1 & 1)) >> 1
        if _start(scene, snake, degree, y, x):
            return True
    return False


@compiled
def _start_distractor(scene, snake):
    """Starts a distractor where its first dash has room."""
    for _ in range(_TRIES):
        degree = _below(scene.random, DEGREES)
        count = _list_free(scene, scene.table.start_stamp[degree])
        if count == 0:
            return False
        y, x = divmod(scene.free[_below(scene.random, count)], scene.parameters.size)
        if _start(scene, snake, degree, y, x):
            return True
    return False


@compiled
def _list_free(scene, stamp):
    """Lists in `free` the cells around which a stamp's probe is free; returns their number."""
    if not scene.table.probe_covers[stamp]:
        return 0
    count = 0
    for y in range(scene.parameters.size):
        for x in range(scene.parameters.size):
            for cell in scene.table.probe[stamp]:
                if _at(scene, y + cell[0], x + cell[1]) > _FREE:
                    break
            else:
                scene.free[count] = y * scene.parameters.size + x
                count += 1
    return count


@compiled
def _grow(scene, snake):
    """Adds a dash to a snake; False if it is stuck.

    The next dash starts on a ring around the next pivot, preferably straight ahead and where
    there is room. The dash before it enters `occupied` only now.
    """
    ring = scene.table.ring
    pivot_y, pivot_x = _next_pivot(scene.table, snake)
    total = _weigh(scene, snake[_DIRECTION], pivot_y, pivot_x)
    if total < _DEAD_END:
        return False
    for _ in range(_TRIES):
        drawn = _below(scene.random, total)
        cell = 0
        while scene.cumulative[cell] <= drawn:
            cell += 1
        y, x, stamp = pivot_y + ring[cell, 0], pivot_x + ring[cell, 1], scene.table.ring_stamp[cell]
        if _fits(scene, y, x, stamp):
            _occupy(scene, snake)
            snake[_PIVOT_Y], snake[_PIVOT_X], snake[_DIRECTION] = pivot_y, pivot_x, DEGREES + cell
            snake[_TIP_Y], snake[_TIP_X], snake[_STAMP] = y, x, stamp
            return True
    return False


@compiled
def _next_pivot(table, snake):
    y, x, direction = snake[_PIVOT_Y], snake[_PIVOT_X], snake[_DIRECTION]
    slip_y, slip_x = abs(y) < table.slip[direction, 0], abs(x) < table.slip[direction, 1]
    return y + table.step[direction, 0] + slip_y, x + table.step[direction, 1] + slip_x


@compiled
def _weigh(scene, direction, pivot_y, pivot_x):
    """Sums the weights of the ring's cells in `cumulative`; returns the total."""
    table = scene.table
    total = 0
    for cell in range(len(table.ring)):
        weight = table.weight[direction, cell]
        y, x = pivot_y + table.ring[cell, 0], pivot_x + table.ring[cell, 1]
        if weight > 0 and _inside(scene, y, x):
            highest = 0
            for near in table.near:
                highest = max(highest, _at(scene, y + near[0], x + near[1]))
            total += weight * (MASK_ONE - highest)
        scene.cumulative[cell] = total
    return total


@compiled
def _record(dash, snake, gain):
    dash[0], dash[1], dash[2], dash[3] = snake[_TIP_Y], snake[_TIP_X], snake[_STAMP], gain


@compiled
def _clear(scene):
    """No dashes: a full border within the image, and the halo, which stays empty."""
    low, high = scene.table.halo, scene.table.halo + scene.parameters.size
    scene.occupied[low:high, low:high] = MASK_ONE
    low, high = low + scene.parameters.pad, high - scene.parameters.pad
    scene.occupied[low:high, low:high] = 0


@compiled
def _place_targets(scene, snakes, dashes):
    """One attempt at both targets; False if either gets stuck."""
    _clear(scene)
    if not _start_first(scene, snakes[0]) or not _start_second(scene, snakes[0], snakes[1]):
        return False
    for number in range(2 * scene.parameters.dashes):
        snake = snakes[number % 2]
        if number >= 2 and not _grow(scene, snake):
            return False
        _record(dashes[number], snake, scene.parameters.gains[0])
    # The first snake's last dash is never entered: distractors may touch it.
    _occupy(scene, snakes[1])
    return True


@compiled
def _place_distractor(scene, snake, dashes):
    """One attempt at a distractor; if it gets stuck it leaves its traces in `occupied`."""
    if not _start_distractor(scene, snake):
        return False
    for number in range(scene.parameters.distractor_dashes):
        if number > 0 and not _grow(scene, snake):
            return False
        _record(dashes[number], snake, scene.parameters.gains[1])
    _occupy(scene, snake)
    return True


@compiled
def _place_distractors(scene, snake, dashes):
    """Fills `dashes` with the distractors that find room; returns how many do."""
    cells = scene.parameters.size**2
    halo = scene.occupied.size - cells
    scene.before[:] = scene.occupied
    placed = 0
    for _ in range(scene.parameters.distractors):
        if (np.sum(scene.occupied <= _FREE) - halo) * _CELLS_PER_FREE < cells:
            break
        for _ in range(_DISTRACTOR_TRIES):
            if _place_distractor(
                scene, snake, dashes[placed * scene.parameters.distractor_dashes :]
            ):
                scene.before[:] = scene.occupied
                placed += 1
                break
            scene.occupied[:] = scene.before
    return placed


@compiled
def place(parameters, table, which, margins, seed, first, layout):
    """Fills in those images of a seed, from number `first` on, that have one of the margins.

    Args:
        parameters: `Parameters`.
        table: the `Tables` of this margin.
        which: of the margins this is.
        margins: how many there are.
        seed: uint64.
        first: the first image's number.
        layout: a `Layout` of zeros, or with the images of other margins filled in.
    """
    side = parameters.size + 2 * table.halo
    random = np.zeros(1, np.uint64)
    scene = _Scene(
        parameters,
        table,
        random,
        np.zeros((side, side), np.uint8),
        np.zeros((side, side), np.uint8),
        np.zeros(len(table.ring), np.int64),
        np.zeros(parameters.size**2, np.int64),
    )
    snakes = np.zeros((2, 6), np.int64)
    for index in range(len(layout.labels)):
        random[0] = _mix(_mix(seed + _GOLDEN) + np.uint64(first + index) * _GOLDEN)
        label, margin = _below(random, 2), _below(random, margins)
        if margin != which:
            continue
        layout.labels[index], layout.margins[index] = label, margin
        dashes = layout.dashes[index]
        layout.attempts[index] = 1
        while not _place_targets(scene, snakes, dashes):
            layout.attempts[index] += 1
        layout.marked[index] = _below(random, 2)
        layout.distractors[index] = _place_distractors(
            scene, snakes[0], dashes[2 * parameters.dashes :]
        )
