"""Several sweeps side by side, as one command: each executes the runs that no other has begun.

Each job has its share of the CPU cores, and of the GPUs that CUDA_VISIBLE_DEVICES lists; otherwise
JAX would use all of them in each. On a GPU that jobs share, one can compile while another trains.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from typing import TypeVar

from lra.stderr import say
from lra.stopping import STATUS_STOPPED
from lra.sweep.child import ForwardSignals, leashed

T = TypeVar("T")

_GPUS = "CUDA_VISIBLE_DEVICES"


def execute(command: list[str], number: int) -> int:
    """Run `number` copies of a sweep at once; return the largest of their exit statuses.

    That is 75 if any of them stopped before its end. Signals are forwarded to all. Lines that
    several print, such as the number of runs, are printed once.

    Args:
        command: Command of the sweep.
        number: Number of jobs.
    """
    reading, writing = os.pipe()
    with ForwardSignals() as signals:
        shares = zip(_shares_of_cores(number), _shares_of_gpus(number), strict=True)
        jobs = [_start(command, cores, gpus, writing) for cores, gpus in shares]
        signals.to(*jobs)
        os.close(writing)
        printed = set()
        with open(reading, errors="replace") as lines:
            for line in lines:
                if line not in printed:
                    say(line.rstrip("\n"))
                printed.add(line)
        return max(_status(job.wait()) for job in jobs)


def _start(
    command: list[str], cores: list[int] | None, gpus: list[str] | None, stderr: int
) -> subprocess.Popen:
    # By default JAX reserves three quarters of a GPU's memory.
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | dict(os.environ)
    if gpus is not None:
        variables[_GPUS] = ",".join(gpus)
    with _restricted_to(cores):
        return subprocess.Popen(
            leashed(command),
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            env=variables,
            # Otherwise Ctrl-C in a terminal would reach it twice.
            start_new_session=True,
        )


def _status(returned: int) -> int:
    """Return the exit status of a job, given that of its process."""
    if returned >= 0:
        return returned
    say(f"a job was ended by signal {-returned}; the same command goes on from here")
    return STATUS_STOPPED


def _shares_of_cores(number: int) -> list[list[int]] | list[None]:
    """Divide the CPU cores that this process may use; None where the system cannot tell them."""
    if not hasattr(os, "sched_getaffinity"):
        return [None] * number
    return _shares(sorted(os.sched_getaffinity(0)), number)


def _shares_of_gpus(number: int) -> list[list[str]] | list[None]:
    """Divide the GPUs that the user has listed; None if there is no such list."""
    listed = os.environ.get(_GPUS)
    return _shares(listed.split(","), number) if listed else [None] * number


def _shares(items: list[T], number: int) -> list[list[T]]:
    """Divide `items` into `number` runs of neighbours; with too few, some get the same item."""
    bounds = [i * len(items) // number for i in range(number + 1)]
    return [items[start : max(stop, start + 1)] for start, stop in itertools.pairwise(bounds)]


@contextlib.contextmanager
def _restricted_to(cores: list[int] | None) -> Iterator[None]:
    """Restrict this process, and what it starts within the block, to `cores`."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
