import functools
import math

import numpy as np
import pytest

from lra.data.pathfinder_parameters import SIZES, parameters
from lra.data.pathfinder_stamps import INK_ONE, MASK_ONE
from lra.data.pathfinder_tables import DEGREES, WEIGHT_ONE, ring_cells, tables

SIZES_AND_MARGINS = [
    (size, margin) for size in SIZES for margin in parameters(size, "hard").margins
]


def degree(number):
    """The index of a whole degree."""
    return number + 180


@functools.cache
def exact(size, margin):
    return tables(parameters(size, "hard"), margin)


@pytest.fixture
def small():
    return exact(32, 1)


def cell_index(table, cell):
    (found,) = np.flatnonzero((table.ring == cell).all(axis=1))
    return found


def test_sizes_of_the_smallest(small):
    assert len(small.ink) == 30
    assert len(small.ring) == 18
    # Cells that are full, and nearly so.
    full = [np.count_nonzero(cells[:, 2] == MASK_ONE) for cells in small.mask_cells]
    nearly = [np.count_nonzero(cells[:, 2] >= 0.8 * MASK_ONE) for cells in small.mask_cells]
    assert (min(full), max(full)) == (1, 4)
    assert (min(nearly), max(nearly)) == (2, 5)
    peaks = small.ink.max(axis=(1, 2)) / INK_ONE
    assert (peaks.min(), peaks.max()) == pytest.approx((0.396, 0.600), abs=5e-4)


def test_snakes_start_up_and_to_the_left(small):
    """Only there does a probe, one down and to the right, cover the corners of the image."""
    covers = small.probe_covers[small.start_stamp]
    assert np.flatnonzero(covers).tolist() == [degree(d) for d in range(-150, -120)]


def test_moves(small):
    assert small.head[degree(0)].tolist() == [0, 2]
    assert small.head[degree(90)].tolist() == [2, 0]
    assert small.head[degree(30)].tolist() == [1, 2]
    assert small.head[degree(-30)].tolist() == [-1, 2]
    assert small.head[degree(-45)].tolist() == [-1, 2]
    assert small.pivot[degree(0)].tolist() == [0, -1]
    assert small.step[degree(45)].tolist() == [3, 3]
    assert small.step[DEGREES + cell_index(small, (-3, 0))].tolist() == [-4, 0]


def test_second_start_is_rounded_half_to_even(small):
    """From every row and in every direction, as rounding the sum would."""
    for start in range(10, 20):
        for index, way in enumerate(small.second[start & 1]):
            bearing = math.radians(index - 180)
            for axis, shift in enumerate((7 * math.sin(bearing), 7 * math.cos(bearing))):
                assert start + way[axis] == round(round(start + shift, 9))


@pytest.mark.parametrize(("size", "margin"), SIZES_AND_MARGINS)
def test_steps_and_slips_are_what_floats_do(size, margin):
    settings = parameters(size, "hard")
    table, distance = exact(size, margin), settings.length + 2 * margin
    for index, (dy, dx) in enumerate(table.ring.tolist(), start=DEGREES):
        t = math.atan2(dy, dx)
        for axis, way in enumerate((distance * math.sin(t), distance * math.cos(t))):
            for place in range(-3, 40):
                moved = place + table.step[index, axis] + (abs(place) < table.slip[index, axis])
                assert moved == math.ceil(place + way)


def test_ring():
    cells = ring_cells(3)
    assert (0, 3) in set(map(tuple, cells.tolist()))
    assert (0, -3) in set(map(tuple, cells.tolist()))
    assert ((np.hypot(*cells.T) >= 2) & (np.hypot(*cells.T) < 4.3)).all()
    assert cells.tolist() == sorted(cells.tolist())


def test_weights(small):
    right, down = cell_index(small, (0, 3)), cell_index(small, (2, 0))
    diagonal = cell_index(small, (2, -2))
    assert small.weight[degree(0), right] == WEIGHT_ONE
    assert small.weight[degree(60), right] == WEIGHT_ONE // 4
    assert small.weight[degree(90), right] == 0
    assert small.weight[degree(-180), right] == 0
    assert small.weight[DEGREES + down, diagonal] == WEIGHT_ONE // 2
    np.testing.assert_array_equal(np.diag(small.weight[DEGREES:]), WEIGHT_ONE)


def test_stiffer_snakes_turn_by_50_degrees():
    stiff = exact(64, 1)
    right = cell_index(stiff, (0, 6))
    assert stiff.weight[degree(49), right] > 0
    assert stiff.weight[degree(50), right] == 0


@pytest.mark.parametrize("towards", [-np.inf, pytest.param(np.inf, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "margin"), SIZES_AND_MARGINS)
def test_rounding_errors_change_no_table(size, margin, towards, monkeypatch):
    """Another machine's sines may differ in the last digit (not its roots), its tables may not."""

    def nudged(function):
        def wrapper(*arguments):
            exact = function(*arguments)
            # Every machine gets -1, 0 and 1 right.
            return np.where(np.isin(exact, (-1, 0, 1)), exact, np.nextafter(exact, towards))

        return wrapper

    expected = exact(size, margin)
    for name in ("sin", "cos", "arctan2", "sinc"):
        monkeypatch.setattr(np, name, nudged(getattr(np, name)))
    found = tables(parameters(size, "hard"), margin)
    assert np.sin(1.0) != math.sin(1.0)
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)
