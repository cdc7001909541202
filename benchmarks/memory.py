"""Memory of this process: how much a call needs, how much is available, and a limit on it.

A call needs as much as resident memory grows during it. Freed memory that the allocator retains
would hide growth, so it is returned to the system first. The peak can only be reset on Linux.
"""

import contextlib
import ctypes
import os
import pathlib
import resource
import time
from collections.abc import Callable, Iterator

from lra.process import peak_memory_bytes

# Memory has settled once it has not fallen for `_STABLE_POLLS` readings, of at most `_MAX_POLLS`.
_STABLE_POLLS, _MAX_POLLS, _POLL_SECONDS = 10, 100, 0.03
_STATUS = pathlib.Path("/proc/self/status")
_CLEAR_REFS = pathlib.Path("/proc/self/clear_refs")
_OWN_GROUPS = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")
# Control groups of versions 2 and 1, by their controller in `_OWN_GROUPS`: folder, files of the
# limit and of the usage, and prefix of the fields of memory.stat that include child groups.
_VERSIONS = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def growth_in(call: Callable[[], object]) -> int | None:
    """Return the peak growth of resident memory during `call()` in bytes; None if unknown."""
    before = _settled()
    if before is None or not _reset_peak():
        peak = peak_memory_bytes()
        call()
        return peak_memory_bytes() - peak or None  # unknown unless it exceeds the earlier peak
    call()
    return max(0, _status("VmHWM") - before)


def available_bytes() -> int:
    """Return free bytes of this machine, or of a control group of this process if fewer."""
    available = _field(pathlib.Path("/proc/meminfo"), "MemAvailable")
    bounds = [] if available is None else [available]
    bounds += _free_in_groups()
    if not bounds:
        bounds.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(bounds)


def _free_in_groups() -> Iterator[int]:
    """Yield free bytes of this process's control groups and their ancestors that have a limit."""
    lines = _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        for version in _VERSIONS.keys() & controllers.split(","):
            folder, *names = _VERSIONS[version]
            own = pathlib.PurePosixPath(path).relative_to("/")
            for group in (own, *own.parents):
                with contextlib.suppress(OSError, ValueError):  # `max`, not a number: no limit
                    yield _free_in_group(_GROUPS / folder / group, *names)


def _free_in_group(group: pathlib.Path, limit: str, usage: str, prefix: str) -> int:
    """Return bytes below a group's limit, with its page cache, which the kernel drops if needed."""
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = (int(stat.get(f"{prefix}{kind}active_file", 0)) for kind in ("", "in"))
    free = int((group / limit).read_text()) - int((group / usage).read_text()) + sum(cached)
    return max(0, free)


def bound_to(extra: int) -> None:
    """Limit this process to `extra` more bytes: allocations fail before the machine is full."""
    current = _status("VmData")
    if current is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (current + extra, resource.RLIM_INFINITY))


def _status(name: str) -> int | None:
    return _field(_STATUS, name)


def _field(path: pathlib.Path, name: str) -> int | None:
    """Return the bytes in a line `name:  123 kB`; None if there is no such line or file."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def _settled() -> int | None:
    """Return resident memory once it stops falling, as libraries free memory with a delay."""
    lowest, stable_polls = None, 0
    for _ in range(_MAX_POLLS):
        _trim_allocator()
        current = _status("VmRSS")
        if current is None:
            return None
        stable_polls = stable_polls + 1 if lowest is not None and current >= lowest else 0
        lowest = current if lowest is None else min(current, lowest)
        if stable_polls == _STABLE_POLLS:
            break
        time.sleep(_POLL_SECONDS)
    return lowest


def _trim_allocator() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc only
