"""Every decision of the Pathfinder generator as tables of integers.

Positions are (row, column), rows downwards; a direction t moves by (sin t, cos t). A snake's
direction is one of the 360 whole degrees (its first dash) or points to one of the cells of a
small ring around its last pivot (every later dash): directions are indices, and what follows from
one is looked up. Rounding upwards is guarded by `_EXACT`, weights and ink are rounded to fixed
point, so another machine's last digit changes nothing.
"""

import math
from typing import NamedTuple

import numpy as np

from lra.data import pathfinder_stamps as stamps
from lra.data.pathfinder_parameters import Parameters

DEGREES = 360
WEIGHT_ONE = 1 << 16
# What is this close to an integer is one: sines of multiples of 30 degrees, Pythagorean triples.
_EXACT = 1e-9


class Tables(NamedTuple):
    """All the generator looks up for one margin; int64 unless said otherwise.

    J ring cells, S stamps, `side` pixels a side. Directions: 360 degrees from -180, then the
    ring's cells.

    Attributes:
        halo: a canvas has this many cells more on each side, so that no stamp leaves it.
        empty: uint8 [size + 2 halo, size + 2 halo], the occupancy without dashes, in units of
            1 / `MASK_ONE`: full in the border of the image, nothing in the halo.
        head: [360, 2], from a dash's start to its end.
        pivot: [360, 2], from a dash's start to the snake's first pivot, behind it.
        second: [2, 360, 2], from the first snake's start to the second's by bearing, for even
            and odd rows or columns of the first.
        start_stamp: [360], the dash's stamp.
        step: [360 + J, 2], from a pivot to the next.
        slip: [360 + J, 2], a pivot nearer to row or column 0 than this slips one further on.
        ring: [J, 2], the cells around a pivot in which the next dash may start.
        ring_stamp: [J], that dash's stamp, drawn backwards.
        weight: [360 + J, J], of each cell by the snake's direction, in units of 1 / `WEIGHT_ONE`.
        near: [n, 2], the cells within a margin.
        mask_cells: [S, n, 3], the mask's cells and values, largest first, then zeros.
        probe: [S, n, 2], the cells that must be free where a snake starts, the first ones
            repeated where a stamp has fewer than n.
        probe_box: [S, 4], their least and largest row and column offsets.
        probe_covers: bool [S]; without it no place counts as free.
        ink: [S, side, side].
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
    """The tables of images whose dashes keep `margin` pixels free around them."""
    length, radius = parameters.length, parameters.length + margin
    half = length + math.ceil(parameters.width) + margin
    ring = ring_cells(radius)
    vectors = _unit_vectors(ring)
    which, inks, masks = _stamps(parameters, margin, half, vectors)
    probes = [_probe(mask, half, radius) for mask in masks]
    head = ceil_move(vectors[:DEGREES], length)
    return Tables(
        halo=half,
        empty=_empty_canvas(parameters, half),
        head=head,
        pivot=head + ceil_move(-vectors[:DEGREES], radius),
        second=_second_starts(vectors[:DEGREES] * parameters.start_distance),
        start_stamp=which[:DEGREES],
        step=ceil_move(vectors, length + 2 * margin),
        slip=_slips(ring, length + 2 * margin),
        ring=ring,
        ring_stamp=which[DEGREES:],
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
    """All different dashes: which of them each direction has, [360 + J]; their inks and masks."""
    length, centre = parameters.length * parameters.oversampling, half * parameters.oversampling
    starts = fine_ends(vectors[:DEGREES], length, centre)
    # Later dashes are drawn backwards, from the cell of the ring to the pivot.
    others = fine_ends(-vectors[DEGREES:], length, centre)
    ends, which = np.unique(np.concatenate([starts, others]), axis=0, return_inverse=True)
    width = round(parameters.width * parameters.oversampling)
    drawn = [
        stamps.dash(tuple(end), half, margin, parameters.oversampling, width)
        for end in ends.tolist()
    ]
    inks, masks = zip(*drawn, strict=True)
    return which.ravel(), np.stack(inks), np.stack(masks)


def ring_cells(radius: int) -> np.ndarray:
    """The cells on a circle around a cell, found by walking it in steps of a pixel; [J, 2]."""
    angles = np.arange(math.ceil(2 * math.pi * radius)) / radius
    points = radius * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    return np.unique(np.floor(points).astype(np.int64), axis=0)


def ceil_move(vectors: np.ndarray, distance: int) -> np.ndarray:
    """Cells moved by going `distance` along unit vectors [n, 2], rounded upwards; int64 [n, 2]."""
    return np.ceil(vectors * distance - _EXACT).astype(np.int64)


def _slips(ring: np.ndarray, distance: int) -> np.ndarray:
    """Where the published generator's rounding upwards goes wrong: int64 [360 + J, 2].

    To a computer the sine of pi and the cosine of a quarter turn are a little more than 0. Near
    the upper and left edges that little is not lost in the sum, and a move straight to the left
    gains a row, one straight up or down a column. A tenth of the targets get stuck from that.
    """
    left, vertical = _slip(distance * math.sin(math.pi)), _slip(distance * math.cos(math.pi / 2))
    slips = np.zeros((DEGREES + len(ring), 2), np.int64)
    # A whole degree is left as -180, whose sine is a little less than 0.
    slips[DEGREES:, 0] = left * ((ring[:, 0] == 0) & (ring[:, 1] < 0))
    slips[DEGREES:, 1] = vertical * (ring[:, 1] == 0)
    slips[[90, 270], 1] = vertical
    return slips


def _slip(little: float) -> int:
    """The power of two from which on adding `little` to a float changes nothing."""
    limit = 1
    while limit + little > limit:
        limit *= 2
    return limit


def fine_ends(vectors: np.ndarray, distance: int, centre: int) -> np.ndarray:
    """Where dashes that start in the centre of a fine grid end, from there; int64 [n, 2].

    Rounded upwards like `ceil_move`, but what floating point adds counts, as it does in the
    published generator: with the cosine of 120 degrees a little above -1/2, snakes start in 30
    directions instead of 31. An error of a digit in the cosine does not matter here.
    """
    return np.ceil(centre + vectors * distance).astype(np.int64) - centre


def _empty_canvas(parameters: Parameters, halo: int) -> np.ndarray:
    inner = np.zeros((parameters.size - 2 * parameters.pad,) * 2, np.uint8)
    return np.pad(np.pad(inner, parameters.pad, constant_values=stamps.MASK_ONE), halo)


def _unit_vectors(ring: np.ndarray) -> np.ndarray:
    """(sin, cos) of each direction: float64 [360 + J, 2]."""
    degrees = np.radians(np.arange(-180, 180))
    whole = np.stack([np.sin(degrees), np.cos(degrees)], axis=1)
    return np.concatenate([whole, ring / np.sqrt((ring**2).sum(axis=1, keepdims=True))])


def _second_starts(points: np.ndarray) -> np.ndarray:
    """`points` added to an even and to an odd integer, and rounded: int64 [2, 360, 2].

    Halves are rounded to even numbers, so that it depends on the integer.
    """
    halves = np.rint(2 * points) / 2
    points = np.where(np.abs(points - halves) < _EXACT, halves, points)
    return np.stack([np.rint(points), np.rint(points + 1) - 1]).astype(np.int64)


def _weights(ring: np.ndarray, continuity: float) -> np.ndarray:
    """cos² of the turn times the continuity, 0 beyond a quarter turn: int64 [360 + J, J]."""
    to_cell = np.arctan2(ring[:, 0], ring[:, 1])
    direction = np.concatenate([np.radians(np.arange(-180, 180)), to_cell])
    turn = np.abs(direction[:, None] - to_cell)
    turn = np.minimum(turn, 2 * np.pi - turn)
    weight = np.cos(np.minimum(continuity * turn, np.pi / 2)) ** 2
    return np.rint(weight * WEIGHT_ONE).astype(np.int64)


def _probe(mask: np.ndarray, half: int, radius: int) -> np.ndarray:
    """The full cells of a dash's mask, [n, 2]: where they are free, a snake may start.

    As in the published generator the dash lies a pixel too far down and to the right, and what
    lies further out than `radius` is cut off.
    """
    cells = np.argwhere(mask == stamps.MASK_ONE) - half + 1
    return cells[(np.abs(cells) <= radius).all(axis=1)]


def _covers(cells: np.ndarray) -> bool:
    """Whether a probe around any cell of the image keeps a cell inside the image.

    The corners decide. Where it does not, the published generator finds no place at all (its
    filter returns an invalid value there); this skews the directions in which snakes start.
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
    """Lists of unlike lengths as rows, each filled up with its own elements."""
    longest = max(map(len, lists))
    return np.stack([np.resize(cells, (longest, 2)) for cells in lists])
