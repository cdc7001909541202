"""Calls grow to about a second, never beyond their limit."""

from lra.pace import Pace


def test_calls_grow_to_the_target_and_shrink_again():
    pace = Pace(limit=100)
    assert pace.next(1000) == 1
    assert not pace.measured(1, 30.0)  # compiled
    assert pace.next(1000) == 1
    assert pace.measured(1, 0.01)
    assert pace.next(1000) == 8  # at most eightfold a time
    pace.measured(8, 0.08)
    assert pace.next(1000) == 64
    pace.measured(64, 0.64)
    assert pace.next(1000) == 100
    assert pace.next(7) == 7
    pace.measured(100, 4.0)
    assert pace.next(1000) == 25
    assert pace.call_seconds == 4.0


def test_a_fixed_length_stays():
    pace = Pace(fixed=5, limit=100)
    for seconds in (9.0, 0.001, 50.0):
        assert pace.next(1000) == 5
        pace.measured(5, seconds)


def test_slow_units_are_asked_for_one_by_one():
    pace = Pace()
    pace.measured(1, 60)
    pace.measured(1, 20)
    assert pace.next(1000) == 1
