"""Waiting for what another process does, but not for ever."""

import subprocess
import time
from collections.abc import Callable, Iterable


def wait_for(
    condition: Callable[[], object], processes: Iterable[subprocess.Popen] = (), seconds: float = 60
) -> None:
    """Return when the condition holds; fails after some time, or when all processes have ended."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited for {seconds:g} s"
        statuses = [process.poll() for process in processes]
        assert not statuses or None in statuses, f"ended with {statuses} before"
        time.sleep(0.02)
