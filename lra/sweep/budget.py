"""Time budget of a sweep, counted from its start."""

import time

# A child needs about this long before it makes progress; with less time left, none is started.
_SHORTEST_MINUTES = 1.0
# How long to wait for trainings whose sweep was killed: they run on until they have saved.
_PATIENCE_SECONDS = 30.0


class Budget:
    """Time budget of a sweep.

    Args:
        minutes: Minutes the sweep may take, or None for no limit.
    """

    def __init__(self, minutes: float | None):
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._started = False
        self._patience_deadline: float | None = None

    def left(self) -> float | None:
        """Return the minutes left, or None for no limit."""
        if self._deadline is None:
            return None
        return max(0.0, (self._deadline - time.monotonic()) / 60)

    def to_spare(self) -> float | None:
        """Return the minutes in which a child can usefully be started, or None for no limit.

        The first child may start as long as there is any time left.
        """
        left = self.left()
        return left if left is None or not self._started else max(0.0, left - _SHORTEST_MINUTES)

    def allows_a_start(self) -> bool:
        """Return whether it is worth starting a child."""
        return self.to_spare() != 0.0

    def start(self) -> float | None:
        """Record that a child is started and return the minutes it may take."""
        self._started = True
        return self.left()

    def patience(self) -> float:
        """Return the seconds to wait, in total, for trainings whose sweep was killed."""
        now, left = time.monotonic(), self.left()
        if self._patience_deadline is None:
            self._patience_deadline = now + _PATIENCE_SECONDS
        seconds = max(0.0, self._patience_deadline - now)
        return seconds if left is None else min(seconds, 60 * left)
