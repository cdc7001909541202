"""Render the placed dashes and discs: a compiled part of `pathfinder_generator`.

The ink of the dashes is scaled to its maximum, then discs are added, then everything is scaled to
the maximum. As far as one image can show, this gives the grey levels of the images that LRA
released. The published generator stretches the levels of every stamp instead.
"""

import numpy as np

from lra.data.compiled import compiled
from lra.data.pathfinder_stamps import INK_ONE, MASK_ONE


@compiled
def render(table, which, margins, dashes, discs, images):
    """Draw the images that have a given margin.

    Args:
        table: `Tables` of the margin.
        which: Index of the margin.
        margins: int32 [n], index of each image's margin.
        dashes: int32 [n, max dashes, 4], row, column, stamp and gain; gain 0 draws nothing.
        discs: int32 [n, 2, 2], row and column of the centres of the discs.
        images: uint8 [n, size, size], output.
    """
    for index in range(len(images)):
        if margins[index] == which:
            ink = _draw_dashes(table, dashes[index], images.shape[1])
            for disc in range(2):
                _draw_disc(table, ink, discs[index, disc, 0], discs[index, disc, 1])
            _scale(ink, MASK_ONE, images[index])


@compiled
def _draw_dashes(table, dashes, size):
    """Return the ink of all dashes relative to its maximum, int64 [size, size], 1 / `INK_ONE`."""
    canvas = np.zeros((size + 2 * table.halo, size + 2 * table.halo), np.int64)
    side = table.ink.shape[1]
    for top, left, stamp, gain in dashes:
        for y in range(side):
            for x in range(side):
                value = gain * table.ink[stamp, y, x]
                canvas[top + y, left + x] = max(canvas[top + y, left + x], value)
    ink = canvas[table.halo : table.halo + size, table.halo : table.halo + size]
    _scale(ink, INK_ONE, ink)
    return ink


@compiled
def _scale(ink, highest, scaled):
    """Scale ink so that its maximum becomes `highest`, rounding to nearest, halves up."""
    peak = 0
    for row in ink:
        for value in row:
            peak = max(peak, value)
    for y in range(len(ink)):
        for x in range(ink.shape[1]):
            scaled[y, x] = (2 * highest * ink[y, x] + peak) // (2 * peak)


@compiled
def _draw_disc(table, ink, y, x):
    """Add a disc with its centre at (y, x)."""
    reach = table.disc.shape[2] // 2
    row = _disc_class(y, len(ink), table.disc.shape[0])
    column = _disc_class(x, len(ink), table.disc.shape[0])
    for dy in range(-min(reach, y), min(reach + 1, len(ink) - y)):
        for dx in range(-min(reach, x), min(reach + 1, len(ink) - x)):
            value = table.disc[row, column, dy + reach, dx + reach]
            ink[y + dy, x + dx] = max(ink[y + dy, x + dx], value)


@compiled
def _disc_class(position, size, classes):
    """Class of a row or column by its distance from the edges (see `pathfinder_stamps.discs`)."""
    return max(min(position, classes // 2), position - size + classes)
