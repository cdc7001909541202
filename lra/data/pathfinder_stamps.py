"""What Pathfinder's ink looks like: dashes and discs, drawn fine and reduced by a Lanczos filter.

Everything is drawn on a grid finer than the image and resampled, as the published generator
(github.com/drewlinsley/pathfinder) does with Pillow. Line and filter are our own and equal to
Pillow's to the bit (lines, 8-bit masks) or to float32 rounding (ink), so that the data depend on
no version of it. Floats end here: ink becomes integers in units of 1 / `INK_ONE`.
"""

import math
from fractions import Fraction

import numpy as np

INK_ONE = 1 << 16
MASK_ONE = 255

_LOBES = 3
# Pillow's fixed-point precision of 8-bit resampling.
_BITS = 22


def lanczos_matrix(fine: int, coarse: int) -> np.ndarray:
    """The filter that reduces `fine` samples to `coarse`: float64 [coarse, fine], rows sum to 1.

    A Lanczos window of three lobes, stretched by fine / coarse, cut at the edges and normalised.
    """
    scale = fine / coarse
    matrix = np.zeros((coarse, fine))
    for row in range(coarse):
        centre = (row + 0.5) * scale
        first = max(int(centre - _LOBES * scale + 0.5), 0)
        last = min(int(centre + _LOBES * scale + 0.5), fine)
        x = (np.arange(first, last) + 0.5 - centre) / scale
        inside = (x >= -_LOBES) & (x < _LOBES)
        matrix[row, first:last] = np.where(inside, np.sinc(x) * np.sinc(x / _LOBES), 0.0)
    return matrix / matrix.sum(axis=1, keepdims=True)


def reduce_float(fine: np.ndarray, coarse: int) -> np.ndarray:
    """A square image resampled to `coarse` pixels a side, unclipped; float64."""
    matrix = lanczos_matrix(len(fine), coarse)
    return matrix @ fine @ matrix.T


def reduce_bytes(fine: np.ndarray, coarse: int) -> np.ndarray:
    """A square uint8 image resampled to uint8 in fixed point, rounded and clipped in each pass."""
    matrix = lanczos_matrix(len(fine), coarse) * (1 << _BITS)
    weights = np.trunc(matrix + np.copysign(0.5, matrix)).astype(np.int64)
    rows = _clip(fine.astype(np.int64) @ weights.T)
    return _clip(weights @ rows).astype(np.uint8)


def _clip(fixed: np.ndarray) -> np.ndarray:
    return np.clip((fixed + (1 << (_BITS - 1))) >> _BITS, 0, MASK_ONE)


def line(centre: int, dy: int, dx: int, width: int) -> np.ndarray:
    """A line from the centre of a square of 2 centre + 1 pixels a side to (dy, dx) from there.

    Args:
        centre: row and column of the line's start.
        dy: rows from start to end.
        dx: columns from start to end.
        width: in pixels; 1 gives Bresenham's line, more a filled polygon whose corners are
            rounded to whole pixels.

    Returns:
        bool [2 centre + 1, 2 centre + 1].
    """
    canvas = np.zeros((2 * centre + 1, 2 * centre + 1), bool)
    if width == 1:
        _bresenham(canvas, centre, dy, dx)
    else:
        _fill(canvas, [(centre + y, centre + x) for y, x in _corners(dy, dx, width)])
    return canvas


def _bresenham(canvas: np.ndarray, centre: int, dy: int, dx: int) -> None:
    steep = abs(dy) > abs(dx)
    long, short = (dy, dx) if steep else (dx, dy)
    error, across = 2 * abs(short) - abs(long), 0
    for step in range(abs(long) + 1):
        along, offset = int(math.copysign(step, long)), int(math.copysign(across, short))
        y, x = (along, offset) if steep else (offset, along)
        canvas[centre + y, centre + x] = True
        if error >= 0:
            across += 1
            error -= 2 * abs(long)
        error += 2 * abs(short)


def _corners(dy: int, dx: int, width: int) -> list[tuple[int, int]]:
    """The wide line's rectangle, (row, column) from its start, in order around it.

    An even width is not centred: one side lies a pixel further out.
    """
    half = (width - 1) / 2
    near = _round_half_down(half) / math.hypot(dy, dx)
    far = _round_half_up(half) / math.hypot(dy, dx)
    left, right = _round_half_down(near * dy), _round_half_down(far * dy)
    up, down = _round_half_up(near * dx), _round_half_up(far * dx)
    return [(down, -left), (dy + down, dx - left), (dy - up, dx + right), (-up, right)]


def _fill(canvas: np.ndarray, corners: list[tuple[int, int]]) -> None:
    """Fills a convex polygon, row by row, between its outermost crossings."""
    edges = list(zip(corners, corners[1:] + corners[:1], strict=True))
    for row in range(len(canvas)):
        crossings = []
        for (y0, x0), (y1, x1) in edges:
            if y0 == y1 == row:
                crossings += [Fraction(x0), Fraction(x1)]
            elif y0 != y1 and min(y0, y1) <= row <= max(y0, y1):
                crossings.append(x0 + Fraction((row - y0) * (x1 - x0), y1 - y0))
        if crossings:
            first = math.floor(min(crossings) + Fraction(1, 2))
            last = math.ceil(max(crossings) - Fraction(1, 2))
            canvas[row, first : last + 1] = True


def _round_half_up(value: float) -> int:
    """To the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _round_half_down(value: float) -> int:
    """To the nearest integer, halves towards zero."""
    return int(math.copysign(math.ceil(abs(value) - 0.5), value))


def disc_offsets(radius: float) -> np.ndarray:
    """The grid points within `radius` of the origin: int64 [n, 2] (row, column)."""
    reach = math.floor(radius)
    grid = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1).T
    return grid[(grid**2).sum(axis=1) <= radius**2]


def dash(
    fine_end: tuple[int, int], half: int, margin: int, oversampling: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """One dash, its start in the centre of the stamp.

    Args:
        fine_end: the other end, (rows, columns) from the start on the fine grid.
        half: the stamp has 2 half + 1 pixels a side.
        margin: pixels kept free around a dash.
        oversampling: fine pixels per pixel.
        width: of the line, in fine pixels.

    Returns:
        Ink int64 [side, side] in units of 1 / `INK_ONE`, no less than 0; and the mask, the room
        the dash takes with its margin: uint8 [side, side] in units of 1 / `MASK_ONE`.
    """
    fine = line(half * oversampling, *fine_end, width)
    ink = reduce_float(fine.astype(np.float64), 2 * half + 1)
    mask = reduce_bytes(_dilate(fine, margin * oversampling) * np.uint8(MASK_ONE), 2 * half + 1)
    return quantize_ink(ink), mask


def _dilate(image: np.ndarray, radius: int) -> np.ndarray:
    """Binary dilation by a disc; what leaves the canvas is cut off."""
    side = len(image)
    padded = np.pad(image, radius)
    result = np.zeros_like(image)
    for y, x in disc_offsets(radius) + radius:
        result |= padded[y : y + side, x : x + side]
    return result


def discs(radius: float, oversampling: int) -> np.ndarray:
    """The discs at every distance from the image's edges, where the filter is cut.

    Returns:
        int64 [classes, classes, side, side] in units of 1 / `INK_ONE`; `classes` is odd. A
        centre row is its own class from the top, counts back from the last class from the
        bottom, and is the middle class in between; likewise the columns.
    """
    reach = math.ceil(radius) + _LOBES
    edge = reach + _LOBES
    classes, side = 2 * edge + 1, 2 * reach + 1
    fine_offsets = disc_offsets(radius * oversampling)
    result = np.zeros((classes, classes, side, side), np.int64)
    for row in range(classes):
        for column in range(classes):
            fine = np.zeros((classes * oversampling,) * 2)
            cells = fine_offsets + np.array([row, column]) * oversampling
            cells = cells[((cells >= 0) & (cells < len(fine))).all(axis=1)]
            fine[cells[:, 0], cells[:, 1]] = 1.0
            canvas = np.pad(quantize_ink(reduce_float(fine, classes)), reach)
            result[row, column] = canvas[row : row + side, column : column + side]
    return result


def quantize_ink(ink: np.ndarray) -> np.ndarray:
    """Ink in units of 1 / `INK_ONE`, the filter's negative lobes cut off; int64."""
    return np.maximum(np.rint(ink * INK_ONE), 0).astype(np.int64)
