"""What this process has of the machine, and took of it; without JAX."""

import os
import resource
import sys


def cores() -> int:
    """The CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def peak_memory_bytes() -> int:
    """The most memory that this process has had at a time."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
