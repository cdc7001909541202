"""Integer lookup tables for all decisions of the Pathfinder generator.

Positions are (row, column) with rows downwards; a direction t moves by (sin t, cos t). A snake's
direction is one of 360 whole degrees (first dash) or points to a cell of a small ring around its
last pivot (later dashes), so directions are indices into the tables. Rounding upwards is guarded by
`_EXACT`, and weights and ink are rounded to fixed point, so that differences of other machines in
the last digit have no effect.
"""

import math
from typing import NamedTuple

import numpy as np

from lra.data import pathfinder_stamps as stamps
from lra.data.pathfinder_parameters import Parameters

DEGREES = 360
WEIGHT_ONE = 1 << 16
# Values this close to an integer are exact: sines of multiples of 30 degrees, Pythagorean triples.
_EXACT = 1e-9


class Tables(NamedTuple):
    """Lookup tables for one margin; int64 unless stated otherwise.

    J is the number of ring cells, S that of stamps, `side` the side of a stamp in pixels. The
    directions are 360 degrees from -180, followed by the ring's cells.

    Attributes:
        halo: Number of extra cells on each side of the canvas, so that no stamp leaves it.
        empty: uint8 [size + 2 halo, size + 2 halo], occupancy without dashes in units of
            1 / `MASK_ONE`: full in the border of the image, zero in the halo.
        head: [360, 2], offset from a dash's start to its end.
        pivot: [360, 2], offset from a dash's start to the snake's first pivot, behind it.
        second: [2, 360, 2], offset from the first snake's start to the second's by bearing, for
            even and odd rows or columns of the first.
        start_stamp: [360], stamp of a first dash.
        step: [360 + J, 2], offset from a pivot to the next.
        slip: [360 + J, 2], a pivot closer to row or column 0 than this moves one cell further.
        ring: [J, 2], offsets of the cells around a pivot in which the next dash may start.
        ring_stamp: [J], stamp of that dash, drawn backwards.
        weight: [360 + J, J], weight of each cell by the snake's direction, in units of
            1 / `WEIGHT_ONE`.
        near: [n, 2], offsets within the margin.
        mask_cells: [S, n, 3], offsets and values of the mask's cells, largest value first, padded
            with zeros.
        probe: [S, n, 2], offsets of the cells that must be free where a snake starts, padded by
            repeating the first ones.
        probe_box: [S, 4], minimum and maximum row and column offset of the probe.
        probe_covers: bool [S]; where False, no position counts as free.
        ink: [S, side, side], ink of the stamps.
        disc: [classes, classes, disc side, disc side], see `stamps.discs`.
    """

    halo: int
    empty: np.ndarray
    head: np.ndarray
    pivot: np.ndarray
    second: np.ndarray
    start_stamp: np.ndarray
    step: np.ndarray
    slip: np.ndarray
    ring: np.ndarray
    ring_stamp: np.ndarray
    weight: np.ndarray
    near: np.ndarray
    mask_cells: np.ndarray
    probe: np.ndarray
    probe_box: np.ndarray
    probe_covers: np.ndarray
    ink: np.ndarray
    disc: np.ndarray


def tables(parameters: Parameters, margin: int) -> Tables:
    """Compute the tables of images whose dashes keep `margin` pixels free around them."""
    length, radius = parameters.length, parameters.length + margin
    half = length + math.ceil(parameters.width) + margin
    ring = ring_cells(radius)
    vectors = _unit_vectors(ring)
    stamp_indices, inks, masks = _stamps(parameters, margin, half, vectors)
    probes = [_probe(mask, half, radius) for mask in masks]
    head = ceil_move(vectors[:DEGREES], length)
    return Tables(
        halo=half,
        empty=_empty_canvas(parameters, half),
        head=head,
        pivot=head + ceil_move(-vectors[:DEGREES], radius),
        second=_second_starts(vectors[:DEGREES] * parameters.start_distance),
        start_stamp=stamp_indices[:DEGREES],
        step=ceil_move(vectors, length + 2 * margin),
        slip=_slips(ring, length + 2 * margin),
        ring=ring,
        ring_stamp=stamp_indices[DEGREES:],
        weight=_weights(ring, parameters.continuity),
        near=stamps.disc_offsets(margin),
        mask_cells=_mask_cells(masks, half),
        probe=_stack(probes),
        probe_box=np.array([[*cells.min(0), *cells.max(0)] for cells in probes])[:, [0, 2, 1, 3]],
        probe_covers=np.array([_covers(cells) for cells in probes]),
        ink=inks,
        disc=stamps.discs(parameters.disc_radius, parameters.oversampling),
    )


def _stamps(
    parameters: Parameters, margin: int, half: int, vectors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw all distinct dashes; return the stamp of each direction, [360 + J], inks and masks."""
    length, centre = parameters.length * parameters.oversampling, half * parameters.oversampling
    starts = fine_ends(vectors[:DEGREES], length, centre)
    # Later dashes are drawn backwards, from the cell of the ring to the pivot.
    later = fine_ends(-vectors[DEGREES:], length, centre)
    ends, indices = np.unique(np.concatenate([starts, later]), axis=0, return_inverse=True)
    width = round(parameters.width * parameters.oversampling)
    dashes = [
        stamps.dash(tuple(end), half, margin, parameters.oversampling, width)
        for end in ends.tolist()
    ]
    inks, masks = zip(*dashes, strict=True)
    return indices.ravel(), np.stack(inks), np.stack(masks)


def ring_cells(radius: int) -> np.ndarray:
    """Return the cells on a circle around a cell, sampled in steps of a pixel; [J, 2]."""
    angles = np.arange(math.ceil(2 * math.pi * radius)) / radius
    points = radius * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    return np.unique(np.floor(points).astype(np.int64), axis=0)


def ceil_move(vectors: np.ndarray, distance: int) -> np.ndarray:
    """Return `distance` times unit vectors [n, 2], rounded upwards; int64 [n, 2]."""
    return np.ceil(vectors * distance - _EXACT).astype(np.int64)


def _slips(ring: np.ndarray, distance: int) -> np.ndarray:
    """Reproduce a floating-point error of the published generator: int64 [360 + J, 2].

    In floating point, the sine of pi and the cosine of a quarter turn are slightly above 0. Near
    the upper and left edges this excess survives in the sum, so that rounding upwards adds a row to
    a move straight to the left and a column to one straight up or down. A tenth of the targets get
    stuck because of this.
    """
    left, vertical = _slip(distance * math.sin(math.pi)), _slip(distance * math.cos(math.pi / 2))
    slips = np.zeros((DEGREES + len(ring), 2), np.int64)
    # Among the whole degrees, left is -180, whose sine is slightly below 0.
    slips[DEGREES:, 0] = left * ((ring[:, 0] == 0) & (ring[:, 1] < 0))
    slips[DEGREES:, 1] = vertical * (ring[:, 1] == 0)
    slips[[90, 270], 1] = vertical
    return slips


def _slip(excess: float) -> int:
    """Return the smallest power of two that a float addition of `excess` leaves unchanged."""
    limit = 1
    while limit + excess > limit:
        limit *= 2
    return limit


def fine_ends(vectors: np.ndarray, distance: int, centre: int) -> np.ndarray:
    """Return the end offsets of dashes that start in the centre of a fine grid; int64 [n, 2].

    They are rounded upwards as in `ceil_move`, but without the guard against floating-point error,
    as in the published generator: with the cosine of 120 degrees slightly above -1/2, snakes start
    in 30 directions instead of 31. An error in the last digit of the cosine does not matter here.
    """
    return np.ceil(centre + vectors * distance).astype(np.int64) - centre


def _empty_canvas(parameters: Parameters, halo: int) -> np.ndarray:
    inner = np.zeros((parameters.size - 2 * parameters.pad,) * 2, np.uint8)
    return np.pad(np.pad(inner, parameters.pad, constant_values=stamps.MASK_ONE), halo)


def _unit_vectors(ring: np.ndarray) -> np.ndarray:
    """Return (sin, cos) of each direction, float64 [360 + J, 2]."""
    degrees = np.radians(np.arange(-180, 180))
    whole = np.stack([np.sin(degrees), np.cos(degrees)], axis=1)
    return np.concatenate([whole, ring / np.sqrt((ring**2).sum(axis=1, keepdims=True))])


def _second_starts(points: np.ndarray) -> np.ndarray:
    """Round `points` as when added to an even and to an odd integer: int64 [2, 360, 2].

    The result depends on the parity since halves are rounded to even numbers.
    """
    halves = np.rint(2 * points) / 2
    points = np.where(np.abs(points - halves) < _EXACT, halves, points)
    return np.stack([np.rint(points), np.rint(points + 1) - 1]).astype(np.int64)


def _weights(ring: np.ndarray, continuity: float) -> np.ndarray:
    """Return cos²(continuity * turn), 0 beyond a quarter turn: int64 [360 + J, J]."""
    to_cell = np.arctan2(ring[:, 0], ring[:, 1])
    direction = np.concatenate([np.radians(np.arange(-180, 180)), to_cell])
    turn = np.abs(direction[:, None] - to_cell)
    turn = np.minimum(turn, 2 * np.pi - turn)
    weight = np.cos(np.minimum(continuity * turn, np.pi / 2)) ** 2
    return np.rint(weight * WEIGHT_ONE).astype(np.int64)


def _probe(mask: np.ndarray, half: int, radius: int) -> np.ndarray:
    """Return the offsets of the full cells of a dash's mask, [n, 2], which must be free at a start.

    As in the published generator, the dash lies a pixel too far down and to the right, and cells
    further out than `radius` are dropped.
    """
    cells = np.argwhere(mask == stamps.MASK_ONE) - half + 1
    return cells[(np.abs(cells) <= radius).all(axis=1)]


def _covers(cells: np.ndarray) -> bool:
    """Return whether a probe around any cell of the image has a cell inside the image.

    Checking the corners suffices. For other probes, the published generator finds no position at
    all (its filter returns an invalid value), which skews the directions in which snakes start.
    """
    y, x = cells.T
    return all(((s * y >= 0) & (t * x >= 0)).any() for s in (-1, 1) for t in (-1, 1))


def _mask_cells(masks: np.ndarray, half: int) -> np.ndarray:
    lists = []
    for mask in masks:
        cells = np.argwhere(mask)
        values = mask[tuple(cells.T)].astype(np.int64)
        order = np.argsort(-values, kind="stable")
        lists.append(np.column_stack([cells[order] - half, values[order]]))
    longest = max(map(len, lists))
    return np.stack([np.pad(cells, ((0, longest - len(cells)), (0, 0))) for cells in lists])


def _stack(lists: list[np.ndarray]) -> np.ndarray:
    """Stack lists of different lengths, padding each by repeating its elements."""
    longest = max(map(len, lists))
    return np.stack([np.resize(cells, (longest, 2)) for cells in lists])
