"""When to stop before the end: signals and the time budget, asked for between calls."""

import os
import signal
import socket
import threading
import time

# EX_TEMPFAIL of sysexits.h: stopped before the end, run the same command again to go on.
STATUS_STOPPED = 75

# A shell reports this plus the signal's number of a process that a signal has ended.
_STATUS_OF_SIGNALS = 128

# A signal to a whole tree of processes reaches a child twice: its parent passes it on as well.
_SAME_SECONDS = 1.0

# Seconds of a budget that are kept for saving and leaving.
_SAVE_SECONDS = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """A run was told to stop before its end."""


class Stop:
    """Whether a run was told to stop.

    As a context manager it listens for SIGTERM and SIGINT until the block is left. The first asks
    for a stop after the current call; a second ends the process at once, whatever it is doing, with
    status 128 + its number. Repeats within a second of the first count as the first. A budget asks
    for a stop early enough to save before it runs out.

    Args:
        budget_minutes: from now on; None for no limit.

    Attributes:
        reason: why to stop; None as long as there is none.
        started: when this was made, by `time.monotonic`.
    """

    def __init__(self, budget_minutes: float | None = None):
        self.reason: str | None = None
        self.started = time.monotonic()
        self._deadline = None
        if budget_minutes is not None:
            self._deadline = self.started + 60 * budget_minutes

    def __enter__(self) -> "Stop":
        receiving, self._sending = socket.socketpair()
        self._sending.setblocking(False)
        threading.Thread(target=_end_at_the_second, args=[receiving], daemon=True).start()
        self._previous_fd = signal.set_wakeup_fd(self._sending.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._sending.close()  # ends the thread

    def before(self, seconds: float) -> bool:
        """Whether to stop rather than start something that takes about `seconds`."""
        if self.reason is None and self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left < seconds + _SAVE_SECONDS:
                self.reason = "the time budget is used up"
        return self.reason is not None

    def _ask(self, number: int, _frame: object) -> None:
        self.reason = signal.Signals(number).name


def ignore_signals() -> None:
    """For a process that is about to end: a signal would only change its exit status."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_at_the_second(receiving: socket.socket) -> None:
    """Ends the process at the second signal, ignoring repeats within a second of the first.

    Python runs handlers only between its own instructions, so not while XLA compiles or computes;
    signal numbers are sent here as soon as they arrive.
    """
    end_of_first = None
    with receiving:
        while numbers := receiving.recv(64):
            for number in filter(_SIGNALS.__contains__, numbers):
                now = time.monotonic()
                if end_of_first is None:
                    end_of_first = now + _SAME_SECONDS
                elif now > end_of_first:
                    os._exit(_STATUS_OF_SIGNALS + number)
