"""When a run evaluates and redraws."""

from lra.timetable import Timetable


def stops(timetable, steps):
    """Where the calls of a run end at the latest."""
    found = [0]
    while found[-1] < steps:
        found.append(timetable.next_stop(found[-1]))
    return found[1:]


def test_evaluations_and_the_last_step_end_a_call(tiny_config):
    timetable = Timetable(tiny_config())  # 12 steps, evaluated every 5
    assert stops(timetable, 12) == [5, 10, 12]
    assert [step for step in range(13) if timetable.evaluates(step)] == [5, 10, 12]
    assert not any(map(timetable.redraws, range(13)))


def test_redraws_end_a_call_too(tiny_config):
    timetable = Timetable(tiny_config("listops", "performer", "model.attention.redraw_steps=4"))
    assert stops(timetable, 12) == [4, 5, 8, 10, 12]
    # After the last step nothing is drawn, since none follows.
    assert [step for step in range(13) if timetable.redraws(step)] == [4, 8]
