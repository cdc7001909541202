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
from collections.abc import Callable, Iterator

from lra.process import peak_memory_bytes

# Memory has settled if it did not fall for `_STILL` readings; at most `_POLLS` are taken.
_STILL, _POLLS, _POLL_SECONDS = 10, 100, 0.03
_STATUS = pathlib.Path("/proc/self/status")
_CLEAR = pathlib.Path("/proc/self/clear_refs")
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")
# Of control groups of versions 2 and 1, by the controller in `_OWN_GROUPS`: folder, files of the
# limit and of what is used, and what names in memory.stat that count groups below begin with.
_VERSIONS = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


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
    """Free memory of this machine, or of a control group of this process if that is less."""
    available = _field(pathlib.Path("/proc/meminfo"), "MemAvailable")
    found = [] if available is None else [available]
    found += _left_in_groups()
    if not found:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found)


def _left_in_groups() -> Iterator[int]:
    """Free memory of each control group with a limit: that of this process, and those above."""
    lines = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        for version in _VERSIONS.keys() & controllers.split(","):
            folder, *names = _VERSIONS[version]
            own = pathlib.PurePosixPath(path).relative_to("/")
            for group in (own, *own.parents):
                with contextlib.suppress(OSError, ValueError):  # `max` is no number: no limit
                    yield _left(_GROUPS / folder / group, *names)


def _left(group: pathlib.Path, limit: str, used: str, prefix: str) -> int:
    """Bytes below the limit of a group; the kernel drops its cache of files before it is full."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = (int(stat.get(f"{prefix}{kind}active_file", 0)) for kind in ("", "in"))
    left = int((group / limit).read_text()) - int((group / used).read_text()) + sum(cached)
    return max(0, left)


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
