"""Calls grow to about a second, never beyond their limit, an evaluation or a redraw; saves."""

import pytest

from lra.pace import Pace, SaveTimes, Timetable


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
    assert pace.call_seconds == 1.0


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


def stops(timetable, steps):
    """Where the calls of a run end at the latest."""
    found = [0]
    while found[-1] < steps:
        found.append(timetable.next_boundary(found[-1]))
    return found[1:]


def test_evaluations_and_the_last_step_end_a_call(tiny_config):
    timetable = Timetable(tiny_config())  # 12 steps, evaluated every 5
    assert stops(timetable, 12) == [5, 10, 12]
    assert [step for step in range(13) if timetable.evaluates(step)] == [5, 10, 12]
    assert not any(map(timetable.redraws, range(13)))


def test_every_step_may_be_evaluated(tiny_config):
    timetable = Timetable(tiny_config("listops", "standard", "train.eval_every=1"))
    assert [step for step in range(13) if timetable.evaluates(step)] == [*range(1, 13)]


def test_redraws_end_a_call_too(tiny_config):
    timetable = Timetable(tiny_config("listops", "performer", "model.attention.redraw_steps=4"))
    assert stops(timetable, 12) == [4, 5, 8, 10, 12]
    # After the last step nothing is drawn, since none follows.
    assert [step for step in range(13) if timetable.redraws(step)] == [4, 8]


@pytest.mark.parametrize(("seconds", "first"), [(60, 15), (5, 5)])
def test_saves_begin_soon_and_come_before_the_call_in_which_they_fall_due(
    seconds, first, monkeypatch
):
    now = [100.0]
    monkeypatch.setattr("lra.pace.time.monotonic", lambda: now[0])
    saves = SaveTimes(seconds)
    assert not saves.due(1.0)
    now[0] = 100 + first - 1.5
    assert not saves.due(1.0)
    assert saves.due(2.0)
    now[0] += 10
    saves.saved()
    now[0] += seconds - 0.5
    assert not saves.due(0.25)
    assert saves.due(0.75)


def test_calls_of_a_fixed_length_have_a_duration():
    one = Pace(fixed=1)
    one.measured(1, 9.0)
    assert one.call_seconds == 0
    pace = Pace(fixed=5)
    assert pace.call_seconds == 0
    assert not pace.measured(5, 9.0)
    assert pace.call_seconds == 9  # at most, since it compiled
    pace.measured(5, 2.0)
    assert pace.call_seconds == 2
    pace.measured(1, 0.5)  # the last before an evaluation; those after it are of 5 again
    assert pace.call_seconds == 2.5
