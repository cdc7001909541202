"""A process that measures one contender: a line of JSON in, a line of JSON out.

Each contender has a process of its own: frameworks share neither threads nor allocators, memory can
be told apart, and if one is killed the others go on. `Worker` is used by the process that asks.
Commands: `hello`, `check`, `prepare`, `first`, `time`, `ceilings`.
"""

import contextlib
import gc
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import memory
from lra.errors import UserError
from lra.machine import cores

_SHARE = 0.8  # of a machine's free memory may be used; other processes need some
_ROOT = pathlib.Path(__file__).resolve().parent.parent


class WorkerError(Exception):
    """A command failed; `kind` is `out_of_memory` or `unsupported`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Worker:
    """The process of one contender, started when first asked.

    Args:
        spec: `contender` (method, options, peer, framework, ...), `threads`, `matmul_precision`
            and `platform`, which torch must have as well (None: not known yet).
    """

    def __init__(self, spec: dict):
        self.spec = spec
        self._process: subprocess.Popen | None = None

    def ask(self, command: str, **arguments) -> dict:
        """The answer to a command.

        Raises:
            WorkerError: it failed, or ended the process.
        """
        if self._process is None:
            self._process = self._start()
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"], answer["message"])
        return answer

    def close(self) -> None:
        """Ends the process, if there is one; the next command starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):  # of a command that it did not live to read
                self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def _start(self) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env=_environment(self.spec["threads"]),
        )
        process.stdin.write(json.dumps(self.spec) + "\n")
        return process

    def _ended(self) -> WorkerError:
        status = self._process.wait()
        self.close()
        if status == -9:
            return WorkerError("out_of_memory", "killed by the operating system")
        return WorkerError("unsupported", f"its process ended with status {status}")


def _environment(threads: int | None) -> dict[str, str]:
    """Variables that must be set before any library starts: of memory and of threads.

    glibc asks the system for huge pages, for us and peers alike: without them a call on long
    sequences mostly waits for its memory to be mapped.
    """
    env = dict(os.environ)
    env |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95"}
    env.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    env |= {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "TOKENIZERS_PARALLELISM": "false"}
    if threads:
        env |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if threads == 1:
        env["XLA_FLAGS"] = env.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    return env


def main() -> None:
    """Answers commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that what libraries print does not mix with the answers
    spec = json.loads(sys.stdin.readline())
    hold_to(spec["threads"])
    handler = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if handler is None:
                handler = _Handler(spec)
            answer = getattr(handler, request.pop("command"))(**request)
        except Exception as error:
            answer = {"error": failure_kind(error), "message": _message(error)}
            gc.collect()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def check_threads(threads: int | None) -> None:
    """Raises UserError if there are fewer cores than `threads`, which rows would record."""
    if threads and threads > cores():
        raise UserError(f"--threads={threads} are more than the cores that can be used: {cores()}")


def hold_to(threads: int | None) -> None:
    """Keeps every thread of this process on the first `threads` of its cores."""
    if threads and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class _Handler:
    """One method per command. Imports frameworks when made, so after threads are settled."""

    def __init__(self, spec: dict):
        if spec["contender"]["framework"] == "torch":
            from benchmarks import torch_peers as programs
        else:
            from benchmarks import programs
        self._spec, self._programs = spec, programs
        programs.configure(spec["threads"], spec["matmul_precision"], spec["platform"])
        self._available = int(_SHARE * memory.available_bytes())
        if programs.platform() == "cpu":
            memory.bound_to(self._available)
        self._program = None

    def hello(self) -> dict:
        """Device, memory, versions and commit."""
        return self._programs.describe() | {"available_bytes": self._available}

    def ceilings(self, dtype: str) -> dict:
        """Measured limits of the device."""
        from benchmarks.ceilings import measure

        return measure(dtype)

    def check(self, case: dict) -> dict:
        """Raises ValueError if the method does not take such a case."""
        self._programs.check(self._spec["contender"], case)
        return {}

    def prepare(self, case: dict) -> dict:
        """Compiles a case; tells what is known without running it."""
        if self._program is not None:  # frees it and its arrays
            self._program = None
            gc.collect()
            self._programs.release()
        self._program = self._programs.build(self._spec["contender"], case)
        return self._program.analysis

    def first(self) -> dict:
        """Seconds of a warm call, and its memory; on a CPU that is of a call of its own."""
        program = self._program
        before = program.device_peak()
        program.run()  # allocates and chooses whatever is done once
        seconds = timed(program.run)
        if self._programs.platform() == "cpu":
            return {"seconds": seconds, "process_memory": self._process_memory()}
        return {"seconds": seconds, "device_memory": program.device_peak(since=before)}

    def time(self, calls: int) -> dict:
        """Seconds of each of `calls` calls; of several, after one that only warms caches up."""
        if calls > 1:
            self._program.run()
        return {"seconds": [timed(self._program.run) for _ in range(calls)]}

    def _process_memory(self) -> int | None:
        """Bytes that a call needs, with its arguments; None where they cannot be told."""
        growth = memory.growth_in(self._program.run)
        return None if growth is None else growth + self._program.argument_bytes


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def failure_kind(error: Exception) -> str:
    """What a framework's error means: `out_of_memory` or `unsupported`."""
    text = f"{type(error).__name__} {error}".lower()
    signs = ("resource_exhausted", "out of memory", "outofmemory", "allocate memory", "bad_alloc")
    signs += ("ynnpack operation failed",)  # all that XLA says of a CPU product without its memory
    if isinstance(error, MemoryError) or any(sign in text for sign in signs):
        return "out_of_memory"
    return "unsupported"


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    prefix = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return (prefix + text)[:300]


if __name__ == "__main__":
    main()
