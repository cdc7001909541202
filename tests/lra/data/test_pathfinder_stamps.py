import math

import numpy as np
import pytest
from PIL import Image, ImageDraw

from lra.data import pathfinder_stamps as stamps
from tests.lra.data.pathfinder_reference import max_filter

# (half, margin, width in fine pixels) of the four sizes.
KINDS = [(4, 1, 1), (7, 1, 2), (9, 2, 3), (10, 3, 4)]
LANCZOS = Image.Resampling.LANCZOS


def ends(half):
    """The ends of dashes at every whole degree."""
    length = 2 if half == 4 else 5
    degrees = np.radians(np.arange(360))
    found = np.stack([np.sin(degrees), np.cos(degrees)], axis=1) * 2 * length
    return sorted(set(map(tuple, np.ceil(found - 1e-9).astype(int).tolist())))


def drawn(half, end, width):
    image = Image.new("L", (4 * half + 1, 4 * half + 1))
    line = [(2 * half, 2 * half), (2 * half + end[1], 2 * half + end[0])]
    ImageDraw.Draw(image).line(line, fill=1, width=width)
    return np.asarray(image)


@pytest.mark.parametrize(("half", "margin", "width"), KINDS)
def test_lines_are_those_of_pillow(half, margin, width):
    for end in ends(half):
        np.testing.assert_array_equal(stamps.line(2 * half, *end, width), drawn(half, end, width))


@pytest.mark.parametrize(("half", "margin", "width"), KINDS)
def test_dashes_are_those_of_pillow(half, margin, width):
    side = 2 * half + 1
    for end in ends(half):
        fine = drawn(half, end, width)
        ink, mask = stamps.dash(end, half, margin, 2, width)
        dilated = Image.fromarray(max_filter(fine, 2 * margin) * np.uint8(255))
        np.testing.assert_array_equal(mask, np.asarray(dilated.resize((side, side), LANCZOS)))
        expected = Image.fromarray(fine.astype(np.float32)).resize((side, side), LANCZOS)
        expected = np.maximum(np.asarray(expected, np.float64), 0)
        np.testing.assert_allclose(ink / stamps.INK_ONE, expected, atol=1e-5)


def test_a_dash_to_the_right():
    ink, mask = stamps.dash((0, 4), 4, 1, 2, 1)
    ink, mask = ink / stamps.INK_ONE, mask / stamps.MASK_ONE
    np.testing.assert_allclose(ink[4, 2:7], [0.006, 0, 0.402, 0.577, 0.455], atol=5e-4)
    assert ink[:4].max() == ink[5:].max() == 0
    centre, beside = [0.608, 1, 1, 1, 0.718], [0.078, 0.678, 0.800, 0.729, 0.110]
    np.testing.assert_allclose(mask[3:6, 3:8], [beside, centre, beside], atol=5e-4)


def test_a_disc():
    """The values are those of pixels of the published generator's images."""
    discs = stamps.discs(1.5, 2)
    middle = discs.shape[0] // 2
    reach = discs.shape[2] // 2
    inner = slice(reach - 2, reach + 3)
    expected = [
        [0, 0.105, 0.262, 0, 0],
        [0.105, 0.901, 1.071, 0.511, 0],
        [0.262, 1.071, 1.114, 0.752, 0],
        [0, 0.511, 0.752, 0.186, 0],
        [0, 0, 0, 0, 0.011],
    ]
    found = discs[middle, middle, inner, inner] / stamps.INK_ONE
    np.testing.assert_allclose(found, expected, atol=5e-4)


def test_filter_is_normalised_and_symmetric():
    matrix = stamps.lanczos_matrix(41, 21)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-12)


def test_uniform_bytes_stay_uniform():
    assert (stamps.reduce_bytes(np.full((41, 41), 255, np.uint8), 21) == 255).all()
    assert (stamps.reduce_bytes(np.zeros((41, 41), np.uint8), 21) == 0).all()


def test_disc_offsets():
    assert len(stamps.disc_offsets(0)) == 1
    assert len(stamps.disc_offsets(1)) == 5
    assert len(stamps.disc_offsets(3)) == 29
    assert (np.hypot(*stamps.disc_offsets(2.5).T) <= 2.5).all()
    assert len(stamps.disc_offsets(math.sqrt(2) - 1e-9)) == 5
