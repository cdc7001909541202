"""When to stop before the end: signals and the time budget, asked for between calls."""

import signal
import time

# EX_TEMPFAIL of sysexits.h: stopped before the end, run the same command again to go on.
STATUS_STOPPED = 75

# Left of a budget for saving and leaving.
_SAVE_SECONDS = 5.0


class Stopped(Exception):
    """A run was told to stop before its end."""


class Stop:
    """Whether a run was told to stop.

    SIGTERM and SIGINT ask for a stop after the present call; a second one ends the process at
    once. A budget asks for it early enough to save before it is over. As a context manager it
    listens to signals until the block is left.

    Args:
        budget_minutes: from now on; None for no limit.
    """

    def __init__(self, budget_minutes: float | None):
        self.reason: str | None = None
        self._deadline = None
        if budget_minutes is not None:
            self._deadline = time.monotonic() + 60 * budget_minutes

    def __enter__(self) -> "Stop":
        self._previous = {s: signal.signal(s, self._ask) for s in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def before(self, seconds: float) -> bool:
        """Whether to stop rather than start something that takes about `seconds`."""
        if self.reason is None and self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left < seconds + _SAVE_SECONDS:
                self.reason = "the time budget is used up"
        return self.reason is not None

    def _ask(self, number: int, _frame: object) -> None:
        if self.reason is not None:
            # The second signal: as if there were no handler.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.reason = signal.Signals(number).name
