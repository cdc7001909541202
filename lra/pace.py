"""When to evaluate and to save, and how much to ask of the device in one call.

A call is about a second's work (`Pace`), so that stops are prompt, and never goes beyond the next
evaluation or redraw (`Timetable`).
"""

import sys
import time

from ml_collections import config_dict

# The most training steps in a call; the table of its examples has room for so many.
MAX_STEPS_PER_CALL = 512

# Each start first saves this soon after its first call, so that even short ones make progress.
_FIRST_SAVE_SECONDS = 15.0


class Pace:
    """Adapts the number of units in a call to the time they take.

    Args:
        fixed: this many in every call; 0 to adapt.
        limit: never more, when it adapts.
    """

    target_seconds = 1.0
    _growth = 8

    def __init__(self, fixed: int = 0, limit: int = sys.maxsize):
        self._fixed, self._limit = fixed, limit
        self._count = fixed or 1
        self._measured_before = False
        self.call_seconds = 0.0  # what a call took lately; 0 before the first

    def next(self, left: int) -> int:
        """Units for the next call, where `left` remain."""
        return min(self._count, left)

    def measured(self, count: int, seconds: float) -> bool:
        """Learns from a call; False for the first, which compiles and tells nothing."""
        if not self._measured_before:
            self._measured_before = True
            return False
        self.call_seconds = seconds
        if not self._fixed:
            fitting = int(count * self.target_seconds / max(seconds, 1e-9))
            self._count = max(1, min(fitting, self._growth * count, self._limit))
        return True


class Timetable:
    """After which steps a run evaluates and redraws, by its configuration alone.

    Args:
        config: of the run.
    """

    def __init__(self, config: config_dict.ConfigDict):
        attention = config.model.attention
        self._steps, self._eval_every = config.train.steps, config.train.eval_every
        self._redraw_every = attention.redraw_steps if "redraw_steps" in attention else 0

    def evaluates(self, step: int) -> bool:
        """Whether there is an evaluation after `step` steps; always after the last."""
        return step > 0 and (step % self._eval_every == 0 or step == self._steps)

    def redraws(self, step: int) -> bool:
        """Whether the step after `step` steps begins with new untrained arrays."""
        return self._redraw_every > 0 and 0 < step < self._steps and step % self._redraw_every == 0

    def next_stop(self, step: int) -> int:
        """How many steps are made when the next evaluation or redraw is due."""
        everies = [every for every in (self._eval_every, self._redraw_every) if every]
        return min(self._steps, *((step // every + 1) * every for every in everies))


class SaveTimes:
    """When a start saves: soon after its first call, then every so often.

    Args:
        seconds: from the end of one to the next.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next: float | None = None

    def due(self, call_seconds: float) -> bool:
        """Whether to save now: what falls due during the next call is saved before it.

        To be asked after each call; the time to the first save begins when it is asked first.

        Args:
            call_seconds: that the next call will take.
        """
        now = time.monotonic()
        if self._next is None:
            self._next = now + min(_FIRST_SAVE_SECONDS, self._seconds)
        return now + call_seconds >= self._next

    def saved(self) -> None:
        """To be told after each."""
        self._next = time.monotonic() + self._seconds
