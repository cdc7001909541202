"""Processes that measure, and the `Worker` that sends them requests.

Each contender runs in its own process: frameworks share neither threads nor allocators, their
memory is measured separately, and if one is killed the others continue.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

from benchmarks import memory
from benchmarks.cases import Case, Contender
from lra.errors import UserError
from lra.process import cores

_MEMORY_SHARE = 0.8  # share of a machine's free memory to use; other processes need some
_EXPECTED = (UserError, ValueError)  # errors whose message is sufficient without a traceback
_SPAWN = multiprocessing.get_context("spawn")


class WorkerError(Exception):
    """Raised if a request failed; `kind` is `out_of_memory` or `unsupported`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Worker:
    """A process that answers requests, started by the first one.

    Args:
        make: Called in the process; returns the function that answers requests.
        *arguments: Arguments of `make`.
        environment: Environment variables of the process, set before it starts.
    """

    def __init__(
        self, make: Callable, *arguments: Any, environment: Mapping[str, str] | None = None
    ):
        self._make, self._arguments, self._environment = make, arguments, environment or {}
        self._process: multiprocessing.Process | None = None

    def start(self) -> None:
        """Start the process unless it runs; not thread-safe, as it sets this process's environ."""
        if self._process is not None:
            return
        self._pipe, child_pipe = _SPAWN.Pipe()
        arguments = (child_pipe, self._make, self._arguments)
        self._process = _SPAWN.Process(target=_serve, args=arguments, daemon=True)
        with mock.patch.dict(os.environ, self._environment):
            self._process.start()
        child_pipe.close()

    def ask(self, *request: Any, **named: Any) -> Any:
        """Call the function in the process with these arguments and return its answer.

        Raises:
            WorkerError: If the function raised an error, or the process ended.
        """
        self.start()
        result = None
        with contextlib.suppress(EOFError, OSError):
            self._pipe.send((request, named))
            result = self._pipe.recv()
        if result is None:
            raise self._exit_error()
        kind, answer = result
        if kind:
            raise WorkerError(kind, answer)
        return answer

    def close(self) -> None:
        """Kill the process, if there is one; the next request starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _exit_error(self) -> WorkerError:
        """Return the error for a process that ended."""
        self._process.join()
        status = self._process.exitcode
        self.close()
        if status == -signal.SIGKILL:
            return WorkerError("out_of_memory", "killed by the operating system")
        return WorkerError("unsupported", f"its process ended with status {status}")


def _serve(pipe: Connection, make: Callable, arguments: tuple) -> None:
    """Answer requests until the other end of the pipe is closed.

    Each answer is a pair: the kind of failure and its message, or None and the result.
    """
    os.dup2(2, 1)  # sends what libraries print to stderr, apart from the tables
    answer = None
    while True:
        try:
            request, named = pipe.recv()
        except EOFError:
            return
        try:
            answer = answer or make(*arguments)
            result = None, answer(*request, **named)
        except Exception as error:
            result = failure_kind(error), _message(error)
            if result[0] == "unsupported" and not isinstance(error, _EXPECTED):
                traceback.print_exc()
            gc.collect()
        pipe.send(result)


def environment_for(threads: int | None) -> dict[str, str]:
    """Return environment variables for memory and threads, which libraries read at start-up.

    glibc requests huge pages, for our methods and peers alike: without them, a call on long
    sequences mostly waits for its memory to be mapped.
    """
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"}
    env["GLIBC_TUNABLES"] = os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    env |= {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "TOKENIZERS_PARALLELISM": "false"}
    if threads:
        env |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if threads == 1:
        env["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    return env


def check_threads(threads: int | None) -> None:
    """Raise UserError if there are fewer cores than `threads`, which rows would record."""
    if threads and threads > cores():
        raise UserError(f"--threads={threads} are more than the cores that can be used: {cores()}")


def hold_to(threads: int | None) -> None:
    """Pin all threads of this process to the first `threads` of its cores."""
    if threads and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class Contending:
    """Request handler of one contender's process, with a method for each command.

    Args:
        contender: Contender to measure.
        threads: Number of CPU threads; None for all.
        precision: Precision of float32 matrix products.
        platform: Platform that torch must support; None if not known yet.
    """

    def __init__(self, contender: Contender, threads: int | None, precision: str, platform=None):
        hold_to(threads)  # before a framework starts its own
        if contender.framework == "torch":
            from benchmarks import torch_peers as programs
        else:
            from benchmarks import programs
        self._contender, self._programs = contender, programs
        programs.configure(threads, precision, platform)
        self._available = int(_MEMORY_SHARE * memory.available_bytes())
        if programs.platform() == "cpu":
            memory.bound_to(self._available)
        self._program = None

    def __call__(self, command: str, **arguments: Any) -> dict:
        return getattr(self, command)(**arguments)

    def hello(self) -> dict:
        """Return device, memory, versions and commit."""
        return self._programs.describe() | {"available_bytes": self._available}

    def ceilings(self, dtype: str) -> dict:
        """Measure the peak rates of the device."""
        from benchmarks.ceilings import measure

        return measure(dtype)

    def check(self, case: Case) -> dict:
        """Raise ValueError if the contender does not support a case."""
        self._programs.check(self._contender, case)
        return {}

    def prepare(self, case: Case) -> dict:
        """Compile a case; return its analysis, which is known without running it."""
        if self._program is not None:
            self._program = None  # frees it and its arrays
            gc.collect()
            self._programs.release()
        self._program = self._programs.build(self._contender, case)
        return self._program.analysis

    def first(self) -> dict:
        """Return seconds of a warm call, and its memory, which takes another call on a CPU."""
        program = self._program
        before = program.device_peak()
        program.run()  # warm-up: allocations and autotuning
        seconds = timed(program.run)
        if self._programs.platform() == "cpu":
            return {"seconds": seconds, "process_memory": self._process_memory()}
        return {"seconds": seconds, "device_memory": program.device_peak(since=before)}

    def time(self, calls: int) -> dict:
        """Return seconds of each of `calls` calls; an untimed call precedes several."""
        if calls > 1:
            self._program.run()  # warms caches up
        return {"seconds": [timed(self._program.run) for _ in range(calls)]}

    def _process_memory(self) -> int | None:
        """Return the bytes that a call needs, with its arguments; None if unknown."""
        self._program.forget()
        growth = memory.growth_in(self._program.run)
        return None if growth is None else growth + self._program.argument_bytes


def timed(run: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def failure_kind(error: Exception) -> str:
    """Classify a framework's error as `out_of_memory` or `unsupported`."""
    text = f"{type(error).__name__} {error}".lower()
    phrases = ("resource_exhausted", "out of memory", "outofmemory", "allocate memory", "bad_alloc")
    phrases += ("ynnpack operation failed",)  # XLA's only message if a CPU product lacks memory
    if isinstance(error, MemoryError) or any(phrase in text for phrase in phrases):
        return "out_of_memory"
    return "unsupported"


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    prefix = "" if isinstance(error, _EXPECTED) else f"{type(error).__name__}: "
    return (prefix + text)[:300]
