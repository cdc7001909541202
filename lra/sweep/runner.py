"""Execute the runs of a sweep in turn, waiting for those that another sweep executes.

The results file alone says what is done, so a sweep can be killed at any moment and restarted.
Several sweeps may share a results file and a folder: whoever holds the lock in a run's folder owns
the run. If some seeds of a run already have rows, only the others are trained, unless an
interrupted start began with all of them; then that start is resumed. Rows are copied from the run's
folder, where `train.py` has written them all at once. A failure is recorded with its reason and
retried by the next sweep, but not by a concurrent sweep that was waiting for the run.
"""

import contextlib
import enum
import pathlib
import shutil
import signal
import time
from collections.abc import Iterable, Iterator

import filelock

from lra.disk_space import is_full
from lra.errors import NO_JAX, UserError, of_system
from lra.row import key, latest
from lra.stderr import say
from lra.stopping import STATUS_STOPPED
from lra.sweep import child, under_way
from lra.sweep.budget import Budget
from lra.sweep.estimate import duration
from lra.sweep.failures import Failures, note
from lra.sweep.place import PlacedRun
from lra.sweep.runs import count
from lra.workdir import Workdir

_WAIT_SECONDS = 1.0
_USED_UP = "stopped: the time budget is used up"
# With less free space than this, a child that failed is assumed to have found the disk full.
_FULL_BYTES = 1e6
_UNKNOWN_XLA_FLAG = "Unknown flag in XLA_FLAGS"  # XLA's message, before it ends the process


class Outcome(enum.Enum):
    """Outcome of an attempt to execute a run."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped before its end"
    CANCELLED = "told to stop"
    TOO_SHORT = "stopped before its first step"
    BUSY = "executed by another sweep"

    @property
    def ends_the_sweep(self) -> bool:
        """Whether the sweep starts no further runs after this outcome."""
        return self in (Outcome.STOPPED, Outcome.CANCELLED, Outcome.TOO_SHORT)


# Outcome of a run by the signal that stopped it.
_OUTCOME_OF_SIGNAL = {
    signal.SIGTERM: Outcome.CANCELLED,
    signal.SIGINT: Outcome.CANCELLED,
    child.WARNING: Outcome.STOPPED,
}


def execute(runs: Iterable[PlacedRun], workdir: pathlib.Path, budget: Budget) -> tuple[int, bool]:
    """Execute runs in order.

    Args:
        runs: Runs to execute, consumed lazily.
        workdir: Folder of the sweep.
        budget: Time budget of the sweep.

    Returns:
        Number of failed runs, and whether budget or signal ended the sweep before all were done.

    Raises:
        UserError: The budget was too short for the first step of the first run, the disk is full,
            or JAX cannot be used (`environment.check_jax`).
    """
    failed, announced, first = 0, False, True
    failures = Failures(workdir)
    while True:
        attempted, busy = 0, []
        for run in runs:
            attempted += 1
            outcome = attempt(run, budget, failures)
            if outcome is Outcome.TOO_SHORT:
                _say_too_short(run, first)
            if outcome.ends_the_sweep:
                return failed, True
            first = first and outcome is Outcome.BUSY
            failed += outcome is Outcome.FAILED
            if outcome is Outcome.BUSY:
                busy.append(run)
        if not busy:
            return failed, False
        if len(busy) == attempted:
            if not budget.allows_a_start():
                say(_USED_UP)
                return failed, True
            if not announced:
                say(f"waiting for {count(len(busy))} executed elsewhere")
                announced = True
            time.sleep(_WAIT_SECONDS)
        runs = busy


def _say_too_short(run: PlacedRun, first: bool) -> None:
    """Report that the budget ended before the first step; raise UserError for the `first` run.

    In that case the next start with the same budget would end in the same way.
    """
    line = (
        f"{run.title()}: the budget was over before the first step: loading and compiling take "
        "longer; give it more minutes"
    )
    if first:
        raise UserError(line)
    say(line)


def attempt(run: PlacedRun, budget: Budget, failures: Failures) -> Outcome:
    """Train the rest of `run` unless another sweep is executing it or has just seen it fail."""
    left = run.left()
    if left is None:
        return Outcome.DONE
    try:
        return _attempt(left, budget, failures)
    except OSError as error:
        # Other errors may be specific to this run's folder; a full disk affects all runs.
        if is_full(error):
            raise
        return _report_failed(left, of_system(error))


def _attempt(run: PlacedRun, budget: Budget, failures: Failures) -> Outcome:
    with _lock_run(run.folder, budget) as locked:
        if not locked:
            return Outcome.BUSY
        # Another sweep may have finished it before the lock was acquired.
        sha256 = run.place.data.sha256(run.task)
        damage = run.copy_rows(sha256)
        if not run.left():
            return Outcome.DONE
        if damage:
            note(run.folder)
            return _report_failed(run, damage)
        if failures.new(run.folder):
            say(f"{run.title()}: failed in another sweep")
            return Outcome.FAILED
        if not budget.allows_a_start():
            say(_USED_UP)
            return Outcome.STOPPED
        if (problem := _other_data(run)) is not None:
            say(f"{run.title()}: {problem}")
            return Outcome.FAILED
        return _train(run, sha256, budget.start())


def _other_data(run: PlacedRun) -> str | None:
    """Return why `run` cannot be trained on the data that are there now, or None if it can."""
    try:
        if run.place.data.mark(run.task) == run.mark:
            return None
    except UserError as error:
        return str(error)
    return "its data were replaced meanwhile; the same command tries again"


@contextlib.contextmanager
def _lock_run(folder: Workdir, budget: Budget) -> Iterator[bool]:
    """Lock the run in `folder` for the duration of the block; yield whether it succeeded."""
    folder.root.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(filelock.FileLock(folder.root / ".sweep.lock", timeout=0))
        except filelock.Timeout:
            yield False
        else:
            yield _wait_until_free(folder, budget)


def _wait_until_free(folder: Workdir, budget: Budget) -> bool:
    """Return whether `folder` has no training; wait for one whose sweep was killed."""
    free = _is_free(folder)
    if not free and (seconds := budget.patience()) > 0:
        say(f"{folder.root}: waiting up to {duration(seconds)} for another train.py to end")
        free = _is_free(folder, seconds)
    return free


def _is_free(folder: Workdir, seconds: float = 0.0) -> bool:
    """Return whether `folder` has no training, now or within `seconds`."""
    try:
        with filelock.FileLock(folder.lock, timeout=seconds):
            return True
    except filelock.Timeout:
        return False


def _train(run: PlacedRun, sha256: str | None, minutes: float | None) -> Outcome:
    folder, workdir = run.folder, run.place.workdir
    log = folder.root / "log.txt"
    say(f"{run.title()}: running; its progress is in {log}")
    started = time.monotonic()
    before = under_way.fingerprint(folder)
    ended = child.run(run.command(minutes), log, child.environment(workdir))
    child.forget_unreadable(workdir, ended.output)
    damage = run.copy_rows(sha256)
    left = run.left()
    if left is None:
        seconds = time.monotonic() - started
        say(f"{run.title()}: {_format_results(run)} ({seconds / 60:.1f} min)")
        return _OUTCOME_OF_SIGNAL.get(ended.stop_signal, Outcome.DONE)
    if ended.stop_signal or ended.status == STATUS_STOPPED:
        made_progress = under_way.fingerprint(folder) != before
        return _report_stopped(
            run, ended.stop_signal, by_budget=minutes is not None, made_progress=made_progress
        )
    reason = ended.reason() if ended.status else "train.py ended without writing rows"
    if ended.tells_of_a_full_disk or shutil.disk_usage(workdir).free < _FULL_BYTES:
        raise UserError(
            f"no space left in {folder.root}: free some, then the same command goes on from here"
        )
    if reason.startswith(NO_JAX) or _UNKNOWN_XLA_FLAG in reason:  # every other run would fail too
        raise UserError(reason)
    if not _is_free(folder):  # a train.py started by hand holds the lock
        return Outcome.BUSY
    note(folder)
    return _report_failed(left, damage or reason, f" (log: {log})")


def _report_failed(run: PlacedRun, reason: str, suffix: str = "") -> Outcome:
    run.record_failure(reason)
    say(f"{run.title()}: failed: {reason}{suffix}")
    return Outcome.FAILED


def _report_stopped(
    run: PlacedRun, stop_signal: int | None, *, by_budget: bool, made_progress: bool
) -> Outcome:
    """Return the outcome of a run that was stopped, and report it.

    Args:
        run: The run.
        stop_signal: Signal that stopped it, or None if its budget is used up.
        by_budget: Whether the run had a time budget.
        made_progress: Whether it has completed at least a step or a part of an evaluation.
    """
    if stop_signal is None and by_budget and not made_progress:
        return Outcome.TOO_SHORT
    say(f"{run.title()}: stopped before its end; the same command goes on from there")
    return _OUTCOME_OF_SIGNAL.get(stop_signal, Outcome.STOPPED)


def _format_results(run: PlacedRun) -> str:
    """Format the test accuracies of `run`, with the status of seeds without one."""
    by_key = {key(row): row for row in latest(run.place.rows())}
    names = [run.run.key(seed, run.mark) for seed in run.run.seeds]
    rows = [by_key[name] for name in names if name in by_key]
    results = " ".join(
        row.status if row.test_accuracy is None else f"{row.test_accuracy:.2%}" for row in rows
    )
    has_accuracy = any(row.test_accuracy is not None for row in rows)
    return f"test accuracy {results}" if has_accuracy else results
