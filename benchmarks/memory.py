"""Memory of this process: how much a call needs, how much is available, and a limit on it.

What a call needs is the growth of resident memory during it. Freed memory that an allocator keeps
would hide growth, so it is returned to the system first; the peak can be reset on Linux only.
"""

import contextlib
import ctypes
import os
import pathlib
import resource
import time
from collections.abc import Callable

from lra.machine import peak_memory_bytes

# Memory has settled if it did not fall for `_STILL` readings; at most `_POLLS` are taken.
_STILL, _POLLS, _POLL_SECONDS = 10, 100, 0.03
_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def growth_in(call: Callable[[], object]) -> int | None:
    """The most by which resident memory grew during `call()`, in bytes; None if unknown."""
    before = _settled()
    if before is None or not _reset_peak():
        peak = peak_memory_bytes()
        call()
        return peak_memory_bytes() - peak or None  # not above the peak so far: unknown
    call()
    return max(0, _status("VmHWM") - before)


def available_bytes() -> int:
    """Free memory of this machine, or of the control group of this process if that is less."""
    available = _field(pathlib.Path("/proc/meminfo"), "MemAvailable")
    found = [] if available is None else [available]
    for limit, used in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):  # `max` is no number: no limit
            left = int(pathlib.Path(limit).read_text()) - int(pathlib.Path(used).read_text())
            found.append(max(left, 0))
    if not found:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found)


def bound_to(extra: int) -> None:
    """Limits this process to `extra` bytes more: allocations fail before the machine is full."""
    now = _status("VmData")
    if now is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (now + extra, resource.RLIM_INFINITY))


def _status(name: str) -> int | None:
    return _field(_STATUS, name)


def _field(path: pathlib.Path, name: str) -> int | None:
    """Bytes of a line `name:  123 kB`, None where there is no such line or file."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _settled() -> int | None:
    """Resident memory after it has stopped falling; libraries free memory with a delay."""
    lowest, still = None, 0
    for _ in range(_POLLS):
        _hand_back()
        now = _status("VmRSS")
        if now is None:
            return None
        still = still + 1 if lowest is not None and now >= lowest else 0
        lowest = now if lowest is None else min(now, lowest)
        if still == _STILL:
            break
        time.sleep(_POLL_SECONDS)
    return lowest


def _hand_back() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc
