"""When to evaluate and to save, and how many steps to make in one call.

A call takes about a second (`Pace`), so that stops are prompt, and never goes beyond the next
evaluation or redraw (`Timetable`).
"""

import sys
import time

from ml_collections import config_dict

# Maximum number of training steps in a call, for which its array of example indices has room.
MAX_STEPS_PER_CALL = 512

# Time from a process's first call to its first save, so that even short processes make progress.
_FIRST_SAVE_SECONDS = 15.0


class Pace:
    """Adapts the number of units (steps or batches) in a call to the time they take.

    Args:
        fixed: Fixed number of units in every call; 0 to adapt it.
        limit: Maximum number of units when it adapts.
    """

    target_seconds = 1.0
    _growth = 8

    def __init__(self, fixed: int = 0, limit: int = sys.maxsize):
        self._fixed, self._limit = fixed, limit
        self._count = fixed or 1
        self._measured_before = False
        self._unit_seconds = 0.0

    @property
    def call_seconds(self) -> float:
        """Expected duration of the next call, if as many units remain.

        0 until a call after the first, which also compiles, has ended; but of a fixed number of
        several units, which may take long, the first call gives an upper bound.
        """
        return self._count * self._unit_seconds

    def next(self, left: int) -> int:
        """Number of units for the next call, of `left` that remain."""
        return min(self._count, left)

    def measured(self, count: int, seconds: float) -> bool:
        """Adapt to a call of `count` units; False for the first call, which also compiles."""
        if self._measured_before or self._fixed > 1:
            self._unit_seconds = seconds / count
        if not self._measured_before:
            self._measured_before = True
            return False
        if not self._fixed:
            fitting = int(count * self.target_seconds / max(seconds, 1e-9))
            self._count = max(1, min(fitting, self._growth * count, self._limit))
        return True


class Timetable:
    """After which steps a run evaluates and redraws, a function of its configuration alone.

    Args:
        config: Config of the run.
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

    def next_boundary(self, step: int) -> int:
        """Step of the next evaluation or redraw after `step`, at most the last step."""
        periods = [period for period in (self._eval_every, self._redraw_every) if period]
        return min(self._steps, *((step // period + 1) * period for period in periods))


class SaveTimes:
    """When a process saves: soon after its first call, then periodically.

    Args:
        seconds: Time from the end of one save to the next.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next: float | None = None

    def due(self, call_seconds: float) -> bool:
        """Whether to save now, which is the case if a save becomes due during the next call.

        Call this between calls; the first time starts the wait for the first save.

        Args:
            call_seconds: Expected duration of the next call.
        """
        now = time.monotonic()
        if self._next is None:
            self._next = now + min(_FIRST_SAVE_SECONDS, self._seconds)
        return now + call_seconds >= self._next

    def saved(self) -> None:
        """Note the end of a save, to be called after each."""
        self._next = time.monotonic() + self._seconds
