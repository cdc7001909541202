import numpy as np
import pytest

from lra.data.pathfinder_parameters import parameters
from lra.data.pathfinder_rendering import render
from lra.data.pathfinder_tables import tables
from tests.lra.data import pathfinder_reference as reference


@pytest.mark.parametrize("size", [32, 128])
def test_discs_anywhere_in_the_image(size):
    """Near its edges too, where the filter is cut."""
    settings = parameters(size, "hard")
    table = tables(settings, settings.margins[0])
    rows = np.arange(size)
    discs = np.stack([rows, (7 * rows + 5) % size, (3 * rows) % size, rows], axis=1)
    discs = discs.reshape(size, 2, 2).astype(np.int32)
    dashes = np.tile(np.array([size // 2, size // 2, 0, 1], np.int32), (size, 1, 1))
    images = np.zeros((size, size, size), np.uint8)
    render(table, 0, np.zeros(size, np.int32), dashes, discs, images)
    book = reference.Book(settings, settings.margins[0])
    for index in range(size):
        expected = reference.render(book, dashes[index], discs[index])
        assert np.abs(images[index] - expected).max() <= 0.51


def test_other_margins_are_left_alone():
    settings = parameters(128, "hard")
    dashes = np.array([[[64, 64, 0, 1]]] * 2, np.int32)
    discs = np.full((2, 2, 2), 20, np.int32)
    images = np.zeros((2, 128, 128), np.uint8)
    table = tables(settings, settings.margins[1])
    render(table, 1, np.array([0, 1], np.int32), dashes, discs, images)
    assert images[0].max() == 0
    assert images[1].max() == 255
