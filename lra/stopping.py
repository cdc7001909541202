"""Requests to stop before the end, by a signal or the time budget, checked between calls."""

import os
import signal
import socket
import threading
import time

# EX_TEMPFAIL of sysexits.h: stopped before the end; the same command continues the run.
STATUS_STOPPED = 75

# If a signal ends a process, a shell reports this plus the signal's number as its status.
_STATUS_OF_SIGNALS = 128

# Repeats within this time count as one signal: one that is sent to a whole process tree reaches a
# child twice, since its parent passes it on as well.
_REPEAT_SECONDS = 1.0

# Seconds of the time budget that are reserved for saving and exiting.
_SAVE_SECONDS = 5.0
_OVER_BUDGET = "the time budget is used up"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """Raised when a run is requested to stop before its end."""


class Stop:
    """Whether and why a run should stop.

    As a context manager, it handles SIGTERM and SIGINT until the block is left. The first signal
    requests a stop after the current call; a second one ends the process at once, whatever it is
    doing, with status 128 + its number. Repeats within a second of the first count as the first. A
    time budget requests a stop early enough to save before it is used up.

    Args:
        budget_minutes: Time budget from now on; None for no limit.

    Attributes:
        reason: Reason to stop; None if there is none so far.
        started: Time at which this was created, by `time.monotonic`.
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
        threading.Thread(target=_exit_at_second_signal, args=[receiving], daemon=True).start()
        self._previous_fd = signal.set_wakeup_fd(self._sending.fileno(), warn_on_full_buffer=False)
        self._previous_handlers = {
            number: signal.signal(number, self._request_stop) for number in _SIGNALS
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._sending.close()  # ends the thread

    @property
    def is_over_budget(self) -> bool:
        """Whether the time budget is the reason to stop."""
        return self.reason == _OVER_BUDGET

    def before(self, seconds: float) -> bool:
        """Whether to stop before a call that takes about `seconds`."""
        if self.reason is None and self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left < seconds + _SAVE_SECONDS:
                self.reason = _OVER_BUDGET
        return self.reason is not None

    def _request_stop(self, number: int, _frame: object) -> None:
        self.reason = signal.Signals(number).name


def ignore_signals() -> None:
    """Ignore signals in a process that is about to exit, whose status they would change."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _exit_at_second_signal(receiving: socket.socket) -> None:
    """Exit the process at the second signal, ignoring repeats within a second of the first.

    Python runs signal handlers only between bytecode instructions, so not while XLA compiles or
    computes. This thread receives signal numbers as soon as they arrive.
    """
    repeats_until = None
    with receiving:
        while numbers := receiving.recv(64):
            for number in filter(_SIGNALS.__contains__, numbers):
                now = time.monotonic()
                if repeats_until is None:
                    repeats_until = now + _REPEAT_SECONDS
                elif now > repeats_until:
                    os._exit(_STATUS_OF_SIGNALS + number)
