"""One training as a child process: its command, its log, signals passed on, how it ended."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from typing import BinaryIO, NamedTuple

from lra.sweep import leash

# Seconds between two looks at whether the child has ended and at the last line of its log.
_POLL_SECONDS = 0.2
# The signal by which submitit announces that the time of a job is nearly over.
WARNING = signal.SIGUSR2
_LONGEST_REASON = 500
_LONGEST_TEXT = 100_000

_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*")
# A warning of JAX.
_UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '(\w+)'")


class Ended(NamedTuple):
    """How a child ended: exit status (-n: killed by signal n), log text, by what told to stop."""

    status: int
    output: str
    told: int | None

    def reason(self) -> str:
        """One line for why it failed."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        # What follows an exception in the log (notes, warnings at exit) is not the reason.
        named = [line for line in lines if line.startswith("error: ") or _EXCEPTION.match(line)]
        last = (named or lines or ["no output"])[-1].removeprefix("error: ")
        if self.status < 0:
            last = f"killed by {_name_of(-self.status)} after: {last}"
        elif not named:
            last = f"exit status {self.status} after: {last}"
        return last[:_LONGEST_REASON]


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones between the first and the last have none
        return f"signal {number}"


def environment(workdir: pathlib.Path) -> dict[str, str]:
    """The variables of a child: those of the user and what these leave open."""
    return additions(workdir) | dict(os.environ)


def additions(workdir: pathlib.Path) -> dict[str, str]:
    """What a child has beside the user's variables: one compile cache for all in `workdir`."""
    defaults = {
        "JAX_COMPILATION_CACHE_DIR": str(_cache(workdir)),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # glibc: huge pages for the large buffers of each call, which a CPU else faults in anew.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }
    return {name: value for name, value in defaults.items() if name not in os.environ}


def _cache(workdir: pathlib.Path) -> pathlib.Path:
    return workdir.resolve() / "compile_cache"


def forget_unreadable(workdir: pathlib.Path, output: str) -> None:
    """Removes from the compile cache what a child said that JAX could not read.

    A program that was cut short while it was written (a kill, a full disk) is never written again:
    each start would compile it anew.
    """
    for name in set(_UNREADABLE.findall(output)):
        for path in _cache(workdir).glob(f"{name}-*"):
            path.unlink(missing_ok=True)


def run(command: list[str], log: pathlib.Path, variables: dict[str, str]) -> Ended:
    """Runs a command to its end; its output goes to the end of `log`.

    SIGTERM and SIGINT are passed on to it instead of ending us, `WARNING` as SIGTERM; should we be
    killed, it is sent SIGTERM (on Linux; elsewhere it goes on alone).
    """
    with open(log, "a+b") as output:
        start = output.seek(0, os.SEEK_END)
        with _PassOn() as signals:
            child = subprocess.Popen(
                [*_leash(), *command],
                stdin=subprocess.DEVNULL,
                # A file, not a pipe: it must be able to write when we are gone.
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                # Ctrl-C in a terminal would reach it twice otherwise: a second one is an abort.
                start_new_session=True,
            )
            signals.to(child)
            status = _wait(child, output, start)
        return Ended(status, _text_behind(output, start), signals.told)


class _PassOn:
    """While it lasts, signals that ask for a stop go to a child, also those before it starts."""

    def __init__(self):
        self.told: int | None = None
        self._child: subprocess.Popen | None = None
        self._early: int | None = None

    def __enter__(self) -> "_PassOn":
        numbers = (signal.SIGTERM, signal.SIGINT, WARNING)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def to(self, child: subprocess.Popen) -> None:
        self._child = child
        if self._early is not None:
            child.send_signal(self._early)

    def _handle(self, number: int, _frame: object) -> None:
        before, self.told = self.told, number
        if before is None:
            self._send(signal.SIGTERM if number == WARNING else number)
        elif WARNING in (before, number):
            # Slurm sends both on preemption; a second signal would end the child at once.
            self.told = WARNING
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        if self._child is None:
            self._early = number
        else:
            self._child.send_signal(number)


def _leash() -> list[str]:
    """What to put before a command so that it ends with us; nothing where that is not possible."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-S", leash.__file__, str(os.getpid())]


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
    """Shows the log's last line in place; returns it."""
    lines = _text_behind(log, start)[-2000:].splitlines()
    last = lines[-1] if lines else ""
    if last != shown:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{'  ' + last:.{width}}", end="", file=sys.stderr, flush=True)
    return last


def _text_behind(log: BinaryIO, start: int) -> str:
    """The end of what was written from `start` on, even if someone has removed the file."""
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), _LONGEST_TEXT, max(start, size - _LONGEST_TEXT))
    return text.decode(errors="replace")
