"""Place Pathfinder's dashes and discs: the compiled part of `pathfinder_generator`.

Two target snakes grow dash by dash, alternately, from starts a fixed distance apart; if either gets
stuck, both are discarded. Short distractors follow where there is room for them.

Positions are (row, column) in the image; the canvas around it has a halo for stamps to extend into.
A snake is a row of integers (see `_PIVOT_Y` etc.), and so is a dash: row, column, stamp and gain.
`scene` is a `pathfinder_generator.Scene`.
"""

import math

import numpy as np

from lra.data.compiled import compiled
from lra.data.pathfinder_stamps import MASK_ONE
from lra.data.pathfinder_tables import DEGREES, WEIGHT_ONE

# A cell is free up to an occupancy of 0.3, dashes may overlap up to a sum of occupancies below 1.8,
# and a snake is stuck if its weights sum to less than 1e-4.
_FREE = int(0.3 * MASK_ONE)
_CROWDED = round(1.8 * MASK_ONE)
_DEAD_END = math.ceil(1e-4 * WEIGHT_ONE * MASK_ONE)
# A failed draw is repeated twice, a distractor four times.
_TRIES, _DISTRACTOR_TRIES = 3, 5
# Distractors are tried while at least one cell in this many is free.
_CELLS_PER_FREE = 100
_GUESSES = 16
# Columns of a snake.
_PIVOT_Y, _PIVOT_X, _DIRECTION, _TIP_Y, _TIP_X, _STAMP = range(6)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled
def _mix(value):
    """Output function of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2714064)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _below(random, limit):
    """Draw a uniform integer from 0 to `limit` - 1, limit < 2^31."""
    random[0] += _GOLDEN
    high = _mix(random[0]) >> np.uint64(32)
    return np.int64((high * np.uint64(limit)) >> np.uint64(32))


@compiled
def _inside(size, y, x):
    return 0 <= y < size and 0 <= x < size


@compiled
def _fits(scene, y, x, stamp):
    """Return whether a dash fits at (y, x): its mask hardly overlaps the occupied cells."""
    cells, occupied, halo = scene.table.mask_cells, scene.occupied, scene.table.halo
    for i in range(cells.shape[1]):
        dy, dx, value = cells[stamp, i, 0], cells[stamp, i, 1], cells[stamp, i, 2]
        if value + MASK_ONE < _CROWDED:
            break
        if value + occupied[y + dy + halo, x + dx + halo] >= _CROWDED:
            return False
    return True


@compiled
def _occupy(scene, snake):
    """Merge the mask of the snake's last dash into `occupied` by maximum, cropped to the image."""
    cells, occupied, halo = scene.table.mask_cells, scene.occupied, scene.table.halo
    size, stamp = scene.parameters.size, snake[_STAMP]
    for i in range(cells.shape[1]):
        y, x = snake[_TIP_Y] + cells[stamp, i, 0], snake[_TIP_X] + cells[stamp, i, 1]
        if _inside(size, y, x):
            occupied[y + halo, x + halo] = max(occupied[y + halo, x + halo], cells[stamp, i, 2])


@compiled
def _start(scene, snake, degree, y, x):
    """Start a snake at (y, x); return False if its first dash or pivot leaves the image."""
    table, size = scene.table, scene.parameters.size
    snake[_PIVOT_Y], snake[_PIVOT_X] = y + table.pivot[degree, 0], x + table.pivot[degree, 1]
    snake[_DIRECTION] = degree
    snake[_TIP_Y], snake[_TIP_X], snake[_STAMP] = y, x, table.start_stamp[degree]
    ends_inside = _inside(size, y + table.head[degree, 0], x + table.head[degree, 1])
    return ends_inside and _inside(size, snake[_PIVOT_Y], snake[_PIVOT_X])


@compiled
def _start_first(scene, snake):
    """Start the first target so that its first dash lies in the middle of the image."""
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
    """Start the second target at the given distance from the first, regardless of occupancy."""
    for _ in range(_TRIES):
        degree = _below(scene.random, DEGREES)
        bearing, y, x = _below(scene.random, DEGREES), first[_TIP_Y], first[_TIP_X]
        y += scene.table.second[y & 1, bearing, 0]
        x += scene.table.second[x & 1, bearing, 1]
        if _start(scene, snake, degree, y, x):
            return True
    return False


@compiled
def _start_distractor(scene, snake):
    """Start a distractor where its first dash has room."""
    for _ in range(_TRIES):
        degree = _below(scene.random, DEGREES)
        cell = _free_cell(scene, scene.table.start_stamp[degree])
        if cell < 0:
            return False
        if _start(scene, snake, degree, *divmod(cell, scene.parameters.size)):
            return True
    return False


@compiled
def _free_cell(scene, stamp):
    """Draw one of the cells around which a stamp's probe is free; -1 if there are none."""
    if not scene.table.probe_covers[stamp]:
        return -1
    cells = scene.parameters.size**2
    # Rejection sampling is faster while many cells are free.
    for _ in range(_GUESSES):
        cell = _below(scene.random, cells)
        if _is_free(scene, stamp, cell):
            return cell
    count = 0
    for cell in range(cells):
        scene.free[count] = cell
        count += _is_free(scene, stamp, cell)
    return scene.free[_below(scene.random, count)] if count else -1


@compiled
def _is_free(scene, stamp, cell):
    """Return whether all cells of a stamp's probe around a cell are free."""
    probe, occupied, halo = scene.table.probe, scene.occupied, scene.table.halo
    y, x = divmod(cell, scene.parameters.size)
    for i in range(probe.shape[1]):
        if occupied[y + probe[stamp, i, 0] + halo, x + probe[stamp, i, 1] + halo] > _FREE:
            return False
    return True


@compiled
def _grow(scene, snake):
    """Add a dash to a snake; return False if it is stuck.

    The next dash starts on a ring around the next pivot, preferably straight ahead and where there
    is room. The previous dash is added to `occupied` only now.
    """
    ring, step, slip = scene.table.ring, scene.table.step, scene.table.slip
    pivot_y, pivot_x, direction = snake[_PIVOT_Y], snake[_PIVOT_X], snake[_DIRECTION]
    pivot_y += step[direction, 0] + (abs(pivot_y) < slip[direction, 0])
    pivot_x += step[direction, 1] + (abs(pivot_x) < slip[direction, 1])
    total = _weigh(scene, direction, pivot_y, pivot_x)
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
def _weigh(scene, direction, pivot_y, pivot_x):
    """Compute the cumulative weights of the ring's cells; return the total."""
    ring, near, halo = scene.table.ring, scene.table.near, scene.table.halo
    size, occupied = scene.parameters.size, scene.occupied
    total = 0
    for cell in range(len(ring)):
        weight = scene.table.weight[direction, cell]
        y, x = pivot_y + ring[cell, 0], pivot_x + ring[cell, 1]
        if weight > 0 and _inside(size, y, x):
            occupancy = 0
            for i in range(len(near)):
                occupancy = max(occupancy, occupied[y + near[i, 0] + halo, x + near[i, 1] + halo])
            total += weight * (MASK_ONE - occupancy)
        scene.cumulative[cell] = total
    return total


@compiled
def _copy(source, target):
    for y in range(len(source)):
        for x in range(source.shape[1]):
            target[y, x] = source[y, x]


@compiled
def _record(dash, snake, gain):
    dash[0], dash[1], dash[2], dash[3] = snake[_TIP_Y], snake[_TIP_X], snake[_STAMP], gain


@compiled
def _place_targets(scene, snakes, dashes):
    """Try once to place both targets; return False if either gets stuck."""
    if not _start_first(scene, snakes[0]) or not _start_second(scene, snakes[0], snakes[1]):
        return False
    _copy(scene.table.empty, scene.occupied)
    for number in range(2 * scene.parameters.dashes):
        snake = snakes[number % 2]
        if number >= 2 and not _grow(scene, snake):
            return False
        _record(dashes[number], snake, scene.parameters.gains[0])
    # The first snake's last dash is never added to `occupied`: distractors may touch it.
    _occupy(scene, snakes[1])
    return True


@compiled
def _place_distractor(scene, snake, dashes):
    """Try once to place a distractor; if it gets stuck, the caller must restore `occupied`."""
    if not _has_room(scene) or not _start_distractor(scene, snake):
        return False
    for number in range(scene.parameters.distractor_dashes):
        if number > 0 and not _grow(scene, snake):
            return False
        _record(dashes[number], snake, scene.parameters.gains[1])
    _occupy(scene, snake)
    return True


@compiled
def _has_room(scene):
    """Return whether enough cells are free to try a distractor."""
    size, halo, free = scene.parameters.size, scene.table.halo, 0
    for y in range(halo, halo + size):
        for x in range(halo, halo + size):
            free += scene.occupied[y, x] <= _FREE
    return free * _CELLS_PER_FREE >= size**2


@compiled
def _place_distractors(scene, snake, dashes):
    """Fill `dashes` with the distractors that find room; return their number."""
    _copy(scene.occupied, scene.before)
    length, placed = scene.parameters.distractor_dashes, 0
    for _ in range(scene.parameters.distractors):
        for _ in range(_DISTRACTOR_TRIES):
            if _place_distractor(scene, snake, dashes[placed * length :]):
                _copy(scene.occupied, scene.before)
                placed += 1
                break
            _copy(scene.before, scene.occupied)
    for dash in dashes[placed * length :]:
        dash[3] = 0
    return placed


@compiled
def place(scene, which, margins, seed, first, layout):
    """Fill in the layout of those images that have a given margin.

    The margin is number `which` of `margins`, and `first` is the index of the layout's first image.
    """
    snakes = np.zeros((2, 6), np.int64)
    targets = 2 * scene.parameters.dashes
    for index in range(len(layout.labels)):
        scene.random[0] = _mix(_mix(seed + _GOLDEN) + np.uint64(first + index) * _GOLDEN)
        label, margin = _below(scene.random, 2), _below(scene.random, margins)
        if margin != which:
            continue
        layout.labels[index], layout.margins[index] = label, margin
        dashes = layout.dashes[index]
        layout.attempts[index] = 1
        while not _place_targets(scene, snakes, dashes):
            layout.attempts[index] += 1
        layout.marked[index] = _below(scene.random, 2)
        layout.distractors[index] = _place_distractors(scene, snakes[0], dashes[targets:])
