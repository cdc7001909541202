"""Run a training as a child process: its environment, log, forwarded signals and exit."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from typing import BinaryIO, NamedTuple

from lra import disk_space
from lra.sweep import leash

# Seconds between polls of the child's status and of the last line of its log.
_POLL_SECONDS = 0.2
# The signal by which submitit announces that a job nears its time limit.
WARNING = signal.SIGUSR2
_MAX_REASON_CHARS = 500
_MAX_OUTPUT_BYTES = 100_000

_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*")
_CACHE_NOT_WRITTEN = "persistent compilation cache"
# JAX warns with this message.
_UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '(\w+)'")


class Ended(NamedTuple):
    """How a child process ended.

    Attributes:
        status: Exit status; -n if it was killed by signal n.
        output: End of its output.
        stop_signal: Signal that asked it to stop (of several `WARNING`, else the last), or None.
    """

    status: int
    output: str
    stop_signal: int | None

    def reason(self) -> str:
        """Return one line that says why the child failed."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        # Lines after an exception (notes, warnings at exit) are not the reason.
        errors = [line for line in lines if line.startswith("error: ") or _EXCEPTION.match(line)]
        last = (errors or lines or ["no output"])[-1].removeprefix("error: ")
        if self.status < 0:
            last = f"killed by {_signal_name(-self.status)} after: {last}"
        elif not errors:
            last = f"exit status {self.status} after: {last}"
        return last[:_MAX_REASON_CHARS]

    @property
    def tells_of_a_full_disk(self) -> bool:
        """Whether the output says so: in its reason, or without one amid tracebacks of libraries.

        A disk that is too full for JAX's cache of programs ends no run.
        """
        lines = [line for line in self.output.splitlines() if _CACHE_NOT_WRITTEN not in line]
        errors = [line for line in lines if line.startswith("error: ")]
        return any(map(disk_space.is_told_in, errors[-1:] or lines))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals other than SIGRTMIN and SIGRTMAX have no name
        return f"signal {number}"


def environment(workdir: pathlib.Path) -> dict[str, str]:
    """Return the environment of a child: the user's, completed with our defaults."""
    return additions(workdir) | dict(os.environ)


def additions(workdir: pathlib.Path) -> dict[str, str]:
    """Return defaults for variables the user has not set, such as a shared compile cache."""
    defaults = {
        "JAX_COMPILATION_CACHE_DIR": str(_cache(workdir)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # Tracebacks without colours, even with FORCE_COLOR: rows quote their last lines.
        "PYTHON_COLORS": "0",
        # Huge pages for large buffers; otherwise a CPU faults them in again on every call.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }
    return {name: value for name, value in defaults.items() if name not in os.environ}


def _cache(workdir: pathlib.Path) -> pathlib.Path:
    return workdir.resolve() / "compile_cache"


def forget_unreadable(workdir: pathlib.Path, output: str) -> None:
    """Remove the compile cache entries that JAX could not read according to a child's output.

    JAX never rewrites an entry that was truncated (by a kill or a full disk), so every later start
    would recompile it.
    """
    for name in set(_UNREADABLE.findall(output)):
        for path in _cache(workdir).glob(f"{name}-*"):
            path.unlink(missing_ok=True)


def run(command: list[str], log: pathlib.Path, variables: dict[str, str]) -> Ended:
    """Run a command until it exits, appending its output to `log`.

    SIGTERM and SIGINT are forwarded to the child instead of ending this process, and `WARNING` is
    forwarded as SIGTERM. If this process is killed, the child receives SIGTERM on Linux; elsewhere
    it runs on alone.
    """
    with open(log, "a+b") as output:
        start = output.seek(0, os.SEEK_END)
        with ForwardSignals() as signals:
            child = subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                # A file, not a pipe: the child must be able to write after this process dies.
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                # Otherwise Ctrl-C in a terminal would reach it twice, and a second one aborts.
                start_new_session=True,
            )
            signals.to(child)
            status = _wait(child, output, start)
        return Ended(status, _text_after(output, start), signals.received)


class ForwardSignals:
    """Context that forwards stop signals to children, including those received before they start.

    Attributes:
        received: Signal that was received (of several `WARNING`, else the last), or None.
    """

    def __init__(self):
        self.received: int | None = None
        self._children: tuple[subprocess.Popen, ...] = ()
        self._pending: int | None = None

    def __enter__(self) -> "ForwardSignals":
        numbers = (signal.SIGTERM, signal.SIGINT, WARNING)
        self._handlers = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def to(self, *children: subprocess.Popen) -> None:
        self._children = children
        if self._pending is not None:
            self._send(self._pending)

    def _handle(self, number: int, _frame: object) -> None:
        previous, self.received = self.received, number
        if previous is None:
            self._send(signal.SIGTERM if number == WARNING else number)
        elif WARNING in (previous, number):
            # Slurm sends both on preemption; forwarding the second would abort the children.
            self.received = WARNING
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        if not self._children:
            self._pending = number
        for child in self._children:
            child.send_signal(number)


def leashed(command: list[str]) -> list[str]:
    """Return `command` such that it receives SIGTERM when this process dies (Linux only)."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-S", leash.__file__, str(os.getpid()), *command]


def _wait(child: subprocess.Popen, log: BinaryIO, start: int) -> int:
    shown = ""
    while True:
        try:
            status = child.wait(_POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            if sys.stderr.isatty():
                shown = _show_last_line(log, start, shown)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return status


def _show_last_line(log: BinaryIO, start: int, shown: str) -> str:
    """Show the last line of the log in place of `shown` and return it."""
    lines = _text_after(log, start)[-2000:].splitlines()
    last = lines[-1] if lines else ""
    if last != shown:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{'  ' + last:.{width}}", end="", file=sys.stderr, flush=True)
    return last


def _text_after(log: BinaryIO, start: int) -> str:
    """Return the end of what was written after `start`, even if the file has been deleted."""
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), _MAX_OUTPUT_BYTES, max(start, size - _MAX_OUTPUT_BYTES))
    return text.decode(errors="replace")
