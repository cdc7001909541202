"""Stamps of Pathfinder's dashes and discs, drawn on a fine grid and reduced by a Lanczos filter.

The published generator (github.com/drewlinsley/pathfinder) draws and resamples with Pillow. Lines
and filter are reimplemented here, equal to Pillow's to the bit (lines, 8-bit masks) or up to
float32 rounding (ink), so that the data do not depend on its version. No floats leave this module:
ink is rounded to integers in units of 1 / `INK_ONE`.
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
    """Return the filter that reduces `fine` samples to `coarse`, float64 [coarse, fine].

    It is a Lanczos window of three lobes, stretched by fine / coarse, cut at the edges and
    normalised so that rows sum to 1.
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
    """Resample a square image to `coarse` pixels per side, unclipped; float64."""
    matrix = lanczos_matrix(len(fine), coarse)
    return matrix @ fine @ matrix.T


def reduce_bytes(fine: np.ndarray, coarse: int) -> np.ndarray:
    """Resample a square uint8 image in fixed point, rounding and clipping in each pass; uint8."""
    matrix = lanczos_matrix(len(fine), coarse) * (1 << _BITS)
    weights = np.trunc(matrix + np.copysign(0.5, matrix)).astype(np.int64)
    rows = _clip(fine.astype(np.int64) @ weights.T)
    return _clip(weights @ rows).astype(np.uint8)


def _clip(fixed: np.ndarray) -> np.ndarray:
    return np.clip((fixed + (1 << (_BITS - 1))) >> _BITS, 0, MASK_ONE)


def line(centre: int, dy: int, dx: int, width: int) -> np.ndarray:
    """Draw a line from the centre of a square canvas.

    Args:
        centre: Row and column of the line's start.
        dy: Number of rows from start to end.
        dx: Number of columns from start to end.
        width: Width in pixels; 1 gives Bresenham's line, larger values a filled polygon whose
            corners are rounded to whole pixels.

    Returns:
        The canvas, bool [2 centre + 1, 2 centre + 1].
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
    """Return the corners of a wide line's rectangle, in order, as (row, column) from its start.

    An even width is not centred: one side lies a pixel further out.
    """
    half = (width - 1) / 2
    near = _round_half_down(half) / math.hypot(dy, dx)
    far = _round_half_up(half) / math.hypot(dy, dx)
    left, right = _round_half_down(near * dy), _round_half_down(far * dy)
    up, down = _round_half_up(near * dx), _round_half_up(far * dx)
    return [(down, -left), (dy + down, dx - left), (dy - up, dx + right), (-up, right)]


def _fill(canvas: np.ndarray, corners: list[tuple[int, int]]) -> None:
    """Fill a convex polygon, row by row, between its outermost crossings."""
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
    """Round to the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _round_half_down(value: float) -> int:
    """Round to the nearest integer, halves towards zero."""
    return int(math.copysign(math.ceil(abs(value) - 0.5), value))


def disc_offsets(radius: float) -> np.ndarray:
    """Return the grid points within `radius` of the origin, int64 [n, 2] (row, column)."""
    reach = math.floor(radius)
    grid = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1).T
    return grid[(grid**2).sum(axis=1) <= radius**2]


def dash(
    fine_end: tuple[int, int], half: int, margin: int, oversampling: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a dash that starts in the centre of its stamp.

    Args:
        fine_end: End of the dash, (rows, columns) from the start on the fine grid.
        half: Half the size of the stamp, which has 2 half + 1 pixels per side.
        margin: Number of pixels kept free around the dash.
        oversampling: Number of fine pixels per pixel.
        width: Width of the line in fine pixels.

    Returns:
        The ink, int64 [side, side] in units of 1 / `INK_ONE`, nonnegative; and the mask, the area
        occupied by the dash and its margin, uint8 [side, side] in units of 1 / `MASK_ONE`.
    """
    fine = line(half * oversampling, *fine_end, width)
    ink = reduce_float(fine.astype(np.float64), 2 * half + 1)
    mask = reduce_bytes(_dilate(fine, margin * oversampling) * np.uint8(MASK_ONE), 2 * half + 1)
    return quantize_ink(ink), mask


def _dilate(image: np.ndarray, radius: int) -> np.ndarray:
    """Dilate a binary image by a disc, cropped to the canvas."""
    side = len(image)
    padded = np.pad(image, radius)
    result = np.zeros_like(image)
    for y, x in disc_offsets(radius) + radius:
        result |= padded[y : y + side, x : x + side]
    return result


def discs(radius: float, oversampling: int) -> np.ndarray:
    """Draw discs at every distance from the image's edges, where the filter is cut.

    Returns:
        int64 [classes, classes, side, side] in units of 1 / `INK_ONE`, indexed by the classes of
        the centre's row and column; `classes` is odd. Near the top, the class of a row is its
        index; near the bottom, it is counted back from the last class; in between, it is the
        middle class. Likewise for columns.
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
    """Quantize ink to int64 in units of 1 / `INK_ONE`, clipping the filter's negative lobes."""
    return np.maximum(np.rint(ink * INK_ONE), 0).astype(np.int64)
