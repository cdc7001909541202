"""CPU cores and memory of this process, without JAX."""

import contextlib
import os
import pathlib
import resource
import sys


def cores() -> int:
    """Number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on some systems
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def machine_memory_bytes() -> int | None:
    """Memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # absent, or without these names
        return None


def peak_memory_bytes() -> int:
    """Peak resident memory of this process so far, in bytes."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # without such a file or line
        # Linux only. There `ru_maxrss` would include the peak of the parent process.
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
