"""Executes the runs of a sweep one after the other, each when nobody else does.

What is done is known from the results file alone, so a sweep can be killed at any moment and
started again, and several may work on one results file: a run belongs to whoever holds the lock in
its folder. A run of which some seeds have rows trains the others, or goes on with all where it was
begun with them. Rows are taken from a run's folder, where `train.py` has written them all at once;
a failure is recorded with its reason and tried again by the next sweep, but not by one that was
waiting for its end.
"""

import contextlib
import enum
import shutil
import signal
import time
from collections.abc import Iterable, Iterator

import filelock

from lra import records
from lra.disk_space import is_full
from lra.errors import NO_JAX, UserError, of_system
from lra.stderr import say
from lra.stopping import STATUS_STOPPED
from lra.sweep import child, under_way
from lra.sweep.budget import Budget
from lra.sweep.estimate import duration
from lra.sweep.failures import Failures, note
from lra.sweep.place import Place, gather, record_failure, unfinished
from lra.sweep.plan import Run, count
from lra.workdir import Workdir

_WAIT_SECONDS = 1.0
_USED_UP = "stopped: the time budget is used up"
# With less space free than this, a child that says nothing had no room for it.
_FULL_BYTES = 1e6


class Outcome(enum.Enum):
    """What became of a run."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped before its end"
    CANCELLED = "told to stop"
    TOO_SHORT = "stopped before its first step"
    BUSY = "executed by another sweep"

    @property
    def ends_the_sweep(self) -> bool:
        """Whether nothing else is started after it."""
        return self in (Outcome.STOPPED, Outcome.CANCELLED, Outcome.TOO_SHORT)


# The outcome of a run, by the signal that stopped it.
_TOLD = {
    signal.SIGTERM: Outcome.CANCELLED,
    signal.SIGINT: Outcome.CANCELLED,
    child.WARNING: Outcome.STOPPED,
}


def execute(runs: Iterable[tuple[Run, str]], place: Place, budget: Budget) -> tuple[int, bool]:
    """Runs what is to be done, in order.

    Args:
        runs: what is to be done, with the marks of its data; asked for the next when it comes up.
        place: of the sweep.
        budget: of the sweep.

    Returns:
        How many runs failed, and whether budget or signal ended it before all were done.

    Raises:
        UserError: a budget of which nothing came, or no space left.
    """
    failed, told, first = 0, False, True
    failures = Failures(place.workdir)
    while True:
        tried, busy = 0, []
        for run, mark in runs:
            tried += 1
            outcome = attempt(run, place, mark, budget, failures)
            if outcome is Outcome.TOO_SHORT:
                _say_too_short(run, first)
            if outcome.ends_the_sweep:
                return failed, True
            first = first and outcome is Outcome.BUSY
            failed += outcome is Outcome.FAILED
            if outcome is Outcome.BUSY:
                busy.append((run, mark))
        if not busy:
            return failed, False
        if len(busy) == tried:
            if not budget.allows_a_start():
                say(_USED_UP)
                return failed, True
            if not told:
                say(f"waiting for {count(len(busy))} executed elsewhere")
                told = True
            time.sleep(_WAIT_SECONDS)
        runs = busy


def _say_too_short(run: Run, first: bool) -> None:
    """Says that a budget was over before the first step; raises UserError if the `first` run's was.

    Then the next start with such a budget would end in the same way.
    """
    line = (
        f"{run.title()}: the budget was over before the first step: loading and compiling take "
        "longer; give it more minutes"
    )
    if first:
        raise UserError(line)
    say(line)


def attempt(run: Run, place: Place, mark: str, budget: Budget, failures: Failures) -> Outcome:
    """Trains what is left of `run`, unless another sweep is at it or has just seen it fail."""
    left = unfinished([run], place, mark)
    if not left:
        return Outcome.DONE
    (run,) = left
    try:
        return _attempt(run, place, mark, budget, failures)
    except OSError as error:
        # The next run has another folder; a full disk or unwritable results concern all of them.
        if is_full(error):
            raise
        return _failed(run, place, mark, of_system(error))


def _attempt(run: Run, place: Place, mark: str, budget: Budget, failures: Failures) -> Outcome:
    folder = place.folder(run, mark)
    with _claimed(folder, budget) as ours:
        if not ours:
            return Outcome.BUSY
        # Someone may have finished it before we had the lock.
        damage = _take_in(run, place, folder, mark)
        if not unfinished([run], place, mark):
            return Outcome.DONE
        if damage:
            note(folder)
            return _failed(run, place, mark, damage)
        if failures.new(folder):
            say(f"{run.title()}: failed in another sweep")
            return Outcome.FAILED
        if not budget.allows_a_start():
            say(_USED_UP)
            return Outcome.STOPPED
        if (why := _other_data(run, place, mark)) is not None:
            say(f"{run.title()}: {why}")
            return Outcome.FAILED
        return _train(run, place, folder, mark, budget.start())


def _other_data(run: Run, place: Place, mark: str) -> str | None:
    """Why `run` cannot be trained on the data that it was planned for, if it cannot."""
    try:
        if place.data.mark(run.task) == mark:
            return None
    except UserError as error:
        return str(error)
    return "its data were replaced meanwhile; the same command tries again"


@contextlib.contextmanager
def _claimed(folder: Workdir, budget: Budget) -> Iterator[bool]:
    """Whether the run in `folder` is ours for as long as the block lasts."""
    folder.root.mkdir(parents=True, exist_ok=True)
    sweeps = filelock.FileLock(folder.root / ".sweep.lock")
    if not _acquired(sweeps):
        yield False
        return
    try:
        yield _has_no_training(folder, budget)
    finally:
        sweeps.release()


def _has_no_training(folder: Workdir, budget: Budget) -> bool:
    """Whether nobody trains in `folder`; a train.py whose sweep was killed is waited for."""
    free = _is_free(folder)
    if not free and (seconds := budget.patience()) > 0:
        say(f"{folder.root}: waiting up to {duration(seconds)} for another train.py to end")
        free = _is_free(folder, seconds)
    return free


def _is_free(folder: Workdir, seconds: float = 0.0) -> bool:
    """Whether nobody trains in `folder`, now or after so many seconds."""
    trains = filelock.FileLock(folder.lock)
    free = _acquired(trains, seconds)
    trains.release()
    return free


def _acquired(lock: filelock.BaseFileLock, seconds: float = 0.0) -> bool:
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout:
        return False
    return True


def _train(run: Run, place: Place, folder: Workdir, mark: str, minutes: float | None) -> Outcome:
    log = folder.root / "log.txt"
    say(f"{run.title()}: running, how far it is stands in {log}")
    started = time.monotonic()
    before = under_way.progress(folder)
    ended = child.run(place.command(run, mark, minutes), log, child.environment(place.workdir))
    child.forget_unreadable(place.workdir, ended.output)
    damage = _take_in(run, place, folder, mark)
    left = unfinished([run], place, mark)
    if not left:
        seconds = time.monotonic() - started
        say(f"{run.title()}: {_results(run, place, mark)} ({seconds / 60:.1f} min)")
        return _TOLD.get(ended.told, Outcome.DONE)
    if ended.told or ended.status == STATUS_STOPPED:
        made_some = under_way.progress(folder) != before
        return _stopped(run, ended.told, by_budget=minutes is not None, made_some=made_some)
    reason = ended.reason() if ended.status else "train.py ended without writing rows"
    silent = not ended.output.strip() and shutil.disk_usage(place.workdir).free < _FULL_BYTES
    if silent or "no space left" in reason.lower():
        raise UserError(
            f"no space left in {folder.root}: free some, then the same command goes on from here"
        )
    if reason.startswith(NO_JAX):  # so would all others
        raise UserError(reason)
    if not _is_free(folder):  # one that was started by hand has come first
        return Outcome.BUSY
    note(folder)
    return _failed(left[0], place, mark, damage or reason, f" (log: {log})")


def _take_in(run: Run, place: Place, folder: Workdir, mark: str) -> str | None:
    """Copies the rows of `run` from its folder; returns why not, where they cannot be read.

    Those on the data that it was started with, whatever data there are by now.
    """
    return gather([run], place, [folder.rows], mark).get(folder.rows)


def _failed(run: Run, place: Place, mark: str, reason: str, more: str = "") -> Outcome:
    record_failure(run, place, mark, reason)
    say(f"{run.title()}: failed: {reason}{more}")
    return Outcome.FAILED


def _stopped(run: Run, told: int | None, *, by_budget: bool, made_some: bool) -> Outcome:
    """What it means that `run` was stopped: by signal `told`, or since its budget is used up.

    `made_some`: a step, or a part of an evaluation.
    """
    if told is None and by_budget and not made_some:
        return Outcome.TOO_SHORT
    say(f"{run.title()}: stopped before its end; the same command goes on from there")
    return _TOLD.get(told, Outcome.STOPPED)


def _results(run: Run, place: Place, mark: str) -> str:
    of_key = {records.key(row): row for row in records.latest(place.rows())}
    keys = [run.key(seed, mark) for seed in run.seeds]
    rows = [of_key[key] for key in keys if key in of_key]
    results = " ".join(
        row.status if row.test_accuracy is None else f"{row.test_accuracy:.2%}" for row in rows
    )
    has_accuracy = any(row.test_accuracy is not None for row in rows)
    return f"test accuracy {results}" if has_accuracy else results
