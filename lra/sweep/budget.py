"""The minutes a sweep may take, from its own start on."""

import time

# A start needs about this long until it makes progress; with less time left, none is made.
_SHORTEST_MINUTES = 1.0
# How long trainings whose sweep was killed are waited for: they go on until they have saved.
_PATIENCE_SECONDS = 30.0


class Budget:
    """What is left of the minutes a sweep may take; None for no limit."""

    def __init__(self, minutes: float | None):
        self._end = None if minutes is None else time.monotonic() + 60 * minutes
        self._started = False
        self._end_of_patience: float | None = None

    def left(self) -> float | None:
        """Minutes left; None for no limit."""
        return None if self._end is None else max(0.0, (self._end - time.monotonic()) / 60)

    def to_spare(self) -> float | None:
        """Minutes in which it is still worth starting a child; None for no limit.

        The first child may start as long as there is any time left.
        """
        left = self.left()
        return left if left is None or not self._started else max(0.0, left - _SHORTEST_MINUTES)

    def allows_a_start(self) -> bool:
        """Whether it is worth starting a child."""
        return self.to_spare() != 0.0

    def start(self) -> float | None:
        """Notes that a child is started; returns the minutes it may take."""
        self._started = True
        return self.left()

    def patience(self) -> float:
        """Seconds to wait for trainings whose sweep was killed: one allowance for all of them."""
        now, left = time.monotonic(), self.left()
        if self._end_of_patience is None:
            self._end_of_patience = now + _PATIENCE_SECONDS
        seconds = max(0.0, self._end_of_patience - now)
        return seconds if left is None else min(seconds, 60 * left)
