"""Executes the runs of a sweep one after the other, each when nobody else does.

What is done is known from the results file alone, so a sweep can be killed at any moment and
started again, and several may work on one results file: a run belongs to whom holds the lock in
its folder. A run of which some seeds have rows trains the others. Rows are taken from a run's
folder, where `train.py` has written them all at once; a failure is recorded with its reason and
tried again by the next sweep.
"""

import contextlib
import dataclasses
import enum
import pathlib
import signal
import sys
import time
from collections.abc import Iterable, Iterator

import filelock

from lra import records
from lra.errors import UserError
from lra.records import Row
from lra.stopping import STATUS_STOPPED
from lra.sweep import child, data, under_way
from lra.sweep.budget import Budget
from lra.sweep.listing import duration
from lra.sweep.plan import Done, Run, Sweep, count
from lra.workdir import Workdir

_WAIT_SECONDS = 1.0
_ORPHAN_SECONDS = 30.0


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


_TOLD = {
    signal.SIGTERM: Outcome.CANCELLED,
    signal.SIGINT: Outcome.CANCELLED,
    child.WARNING: Outcome.STOPPED,
}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a sweep takes place.

    Attributes:
        train: the command that trains, without its flags.
        results: the file of rows.
        workdir: folder with one folder for each run.
        data_dir: folder of the prepared data.
        wanted: by task, flags of `lra.data.prepare` that the sweep asks for.
    """

    train: tuple[str, ...]
    results: pathlib.Path
    workdir: pathlib.Path
    data_dir: str
    wanted: dict

    def mark(self, task: str) -> str | None:
        """How the prepared data of `task` are marked; None if there are none."""
        return data.mark(self.data_dir, task, self.wanted.get(task, {}))

    def generate(self, task: str) -> str:
        """Generates the data of `task`, which are not there; returns their mark."""
        return data.generate(self.data_dir, task, self.wanted.get(task, {}))

    def rows(self) -> list[Row]:
        """The rows so far."""
        return records.read(self.results) if self.results.exists() else []

    def command(self, run: Run, mark: str, minutes: float | None) -> list[str]:
        """The child that trains `run`."""
        # Never 0.000, which is no budget.
        limit = [] if minutes is None else [f"--budget_minutes={max(minutes, 0.001):.3f}"]
        seeds = ", ".join(map(str, run.seeds)) + ("," if len(run.seeds) == 1 else "")
        return [
            *self.train,
            f"--config={run.spec}",
            f"--workdir={self.workdir / run.folder(mark)}",
            f"--data_dir={self.data_dir}",
            *limit,
            *(f"--config.{override}" for override in run.overrides),
            f"--config.seeds=({seeds})",
        ]


def remaining(sweep: Sweep, place: Place) -> tuple[list[tuple[Run, str]], int]:
    """Gets everything ready, and says what is to be done.

    Takes in rows that runs have written without us (`--launcher=print`, a killed sweep) and
    generates data that are missing.

    Returns:
        The runs to execute with the marks of their data, and the number of those that cannot be
        because their data are neither prepared nor can be generated.

    Raises:
        UserError: the results file cannot be written.
    """
    records.check_writable(place.results)
    todo, without_data = [], 0
    for task in dict.fromkeys(run.task for run in sweep.runs):
        runs = [run for run in sweep.runs if run.task == task]
        try:
            mark = place.mark(task)
            gather(runs, place, mark, sorted(place.workdir.glob("*/rows.jsonl")))
            if mark is None and _without_rows(runs, place, mark):
                mark = place.generate(task)
        except UserError as error:
            unfinished = len(_without_rows(runs, place, None))
            say(f"{task}: {count(unfinished)} cannot start: {error}")
            without_data += unfinished
            continue
        todo += [(run, mark) for run in _without_rows(runs, place, mark)]
    return todo, without_data


def execute(runs: list[tuple[Run, str]], place: Place, budget: Budget) -> tuple[int, bool]:
    """Runs what is to be done, in order.

    Returns:
        How many runs failed, and whether budget or signal ended it before all were done.
    """
    failed, told = 0, False
    while runs:
        busy = []
        for run, mark in runs:
            outcome = attempt(run, place, mark, budget)
            if outcome.ends_the_sweep:
                return failed, True
            failed += outcome is Outcome.FAILED
            if outcome is Outcome.BUSY:
                busy.append((run, mark))
        if busy == runs:
            if not budget.allows_a_start():
                return failed, True
            if not told:
                say(f"waiting for {count(len(busy))} executed elsewhere")
                told = True
            time.sleep(_WAIT_SECONDS)
        runs = busy
    return failed, False


def attempt(run: Run, place: Place, mark: str, budget: Budget) -> Outcome:
    """Trains the seeds of `run` that have no row yet, unless someone else is at it."""
    run = dataclasses.replace(run, seeds=Done(place.rows()).missing(run, mark))
    if not run.seeds:
        return Outcome.DONE
    folder = Workdir(place.workdir / run.folder(mark))
    with _claimed(folder) as ours:
        if not ours:
            return Outcome.BUSY
        # Someone may have finished it before we had the lock.
        gather([run], place, mark, [folder.rows])
        if not _without_rows([run], place, mark):
            return Outcome.DONE
        if not budget.allows_a_start():
            say("stopped: the time budget is used up")
            return Outcome.STOPPED
        return _train(run, place, folder, mark, budget.start())


def gather(runs: list[Run], place: Place, mark: str | None, files: Iterable[pathlib.Path]) -> None:
    """Copies the rows of `runs` from files that `train.py` has written to the results."""
    wanted = {run.key(seed, mark or "") for run in runs for seed in run.seeds}
    rows = [row for path in files if path.exists() for row in records.read(path)]
    found = [row for row in rows if records.key(row) in wanted]
    if found:
        records.append(place.results, found)


def _without_rows(runs: list[Run], place: Place, mark: str | None) -> list[Run]:
    done = Done(place.rows())
    return [run for run in runs if done.missing(run, mark)]


def say(text: str) -> None:
    """Tells what the sweep does; stdout is for what was asked for."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _claimed(folder: Workdir) -> Iterator[bool]:
    """Whether the run in `folder` is ours for as long as the block lasts."""
    folder.root.mkdir(parents=True, exist_ok=True)
    sweeps = filelock.FileLock(folder.root / ".sweep.lock", blocking=False)
    # Held by a train.py whose sweep was killed until it has saved its state: worth waiting for.
    trains = filelock.FileLock(folder.lock, timeout=_ORPHAN_SECONDS)
    try:
        sweeps.acquire()
    except filelock.Timeout:
        yield False
        return
    with sweeps:
        try:
            trains.acquire()
            trains.release()
        except filelock.Timeout:
            yield False
            return
        yield True


def _train(run: Run, place: Place, folder: Workdir, mark: str, minutes: float | None) -> Outcome:
    say(f"{run.title()}: running in {folder.root}")
    started = time.monotonic()
    before = under_way.read(folder.metrics)
    log = folder.root / "log.txt"
    ended = child.run(place.command(run, mark, minutes), log, child.environment(place.workdir))
    gather([run], place, mark, [folder.rows])
    missing = Done(place.rows()).missing(run, mark)
    if not missing:
        seconds = time.monotonic() - started
        say(f"{run.title()}: {_results(run, place, mark)} ({seconds / 60:.1f} min)")
        return _TOLD.get(ended.told, Outcome.DONE)
    if ended.told or ended.status == STATUS_STOPPED:
        made_some = under_way.read(folder.metrics) != before
        return _stopped(run, ended.told, minutes, made_some)
    reason = ended.reason() if ended.status else "train.py ended without writing rows"
    records.append(place.results, [_failure(run, seed, mark, reason) for seed in missing])
    say(f"{run.title()}: failed: {reason} (log: {log})")
    return Outcome.FAILED


def _stopped(run: Run, told: int | None, minutes: float | None, made_some: bool) -> Outcome:
    """Says that `run` was stopped: by signal `told`, or since its `minutes` are over.

    Without a step or an evaluation made (`made_some`) the next start would end in the same way.
    """
    by_budget = told is None and minutes is not None
    if by_budget and not made_some:
        say(
            f"{run.title()}: the {duration(60 * minutes)} left of the budget were over before the "
            "first step: loading and compiling take longer; give it more (what was compiled is "
            "kept, the next start is quicker)"
        )
        return Outcome.TOO_SHORT
    say(f"{run.title()}: stopped before its end; the same command goes on from there")
    return _TOLD.get(told, Outcome.STOPPED)


def _results(run: Run, place: Place, mark: str) -> str:
    wanted = {run.key(seed, mark) for seed in run.seeds}
    rows = [row for row in records.latest(place.rows()) if records.key(row) in wanted]
    accuracies = " ".join(
        row.status if row.test_accuracy is None else f"{row.test_accuracy:.2%}" for row in rows
    )
    return f"test accuracy {accuracies}"


def _failure(run: Run, seed: int, mark: str, reason: str) -> Row:
    return Row(
        task=run.task,
        attention=run.attention,
        seed=seed,
        protocol=run.protocol,
        data=mark,
        status="failed",
        error=reason,
        steps=run.config["train.steps"],
        dtype=run.config["dtype"],
        matmul_precision=run.config["matmul_precision"],
        config=run.config,
        config_overrides=run.changed,
    )
