"""What has to be there before the runs of a sweep are executed."""

from typing import NamedTuple

from lra import records
from lra.errors import UserError
from lra.sweep.budget import Budget
from lra.sweep.listing import duration, older_text
from lra.sweep.place import Place, gather, record_failure, say, unfinished
from lra.sweep.plan import Done, Run, Sweep, count


class Ready(NamedTuple):
    """What is to be done.

    Attributes:
        runs: those to execute, with the seeds to train (`place.to_train`), and the marks of their
            data.
        cannot: how many cannot be: their data are neither prepared nor can be generated, or the
            rows in their folder are damaged.
        older: how many have rows of older defaults in their way.
        postponed: whether others wait for data that the budget has no time to generate.
    """

    runs: list[tuple[Run, str]]
    cannot: int
    older: int
    postponed: bool


def make_ready(sweep: Sweep, place: Place, budget: Budget) -> Ready:
    """Takes in rows that runs have written without us, and generates data that are missing.

    Such rows are those of `--launcher=print` and of a killed sweep.

    Raises:
        UserError: the results file is damaged or cannot be written.
    """
    records.check_writable(place.results)
    todo, cannot, older, postponed = [], 0, 0, False
    for task in dict.fromkeys(run.task for run in sweep.runs):
        runs = [run for run in sweep.runs if run.task == task]
        try:
            mark = place.mark(task)
            if mark is None and unfinished(runs, place, mark):
                if not _fits(task, place, budget):
                    postponed = True
                    continue
                mark = place.generate(task)
        except UserError as error:
            without_data = len(unfinished(runs, place, None))
            if without_data:  # else damaged data are nothing to this sweep
                say(f"{task}: {count(without_data)} cannot start: {error}")
            cannot += without_data
            continue
        if mark is not None:
            ready, damaged = _with_rows_taken_in(runs, place, mark)
            todo += [(run, mark) for run in ready]
            cannot += damaged
        older += _of_older_defaults(runs, place, mark)
    return Ready(todo, cannot, older, postponed)


def marks(sweep: Sweep, place: Place) -> dict[str, str | None]:
    """Of the data of each task; None where there are none, or damaged ones, which is said."""
    found = {}
    for task in dict.fromkeys(run.task for run in sweep.runs):
        try:
            found[task] = place.mark(task)
        except UserError as error:
            found[task] = None
            left = unfinished([run for run in sweep.runs if run.task == task], place, None)
            if left:
                say(f"{task}: {count(len(left))} cannot start: {error}")
    return found


def _fits(task: str, place: Place, budget: Budget) -> bool:
    """Whether the budget has time to generate the data of `task`; says so where it has not."""
    seconds, left = place.seconds_to_generate(task), budget.left()
    if left is None or seconds <= 60 * left:
        return True
    say(
        f"{task}: generating its data takes about {duration(seconds)}, more than the "
        f"{duration(60 * left)} left of the budget; give it more"
    )
    return False


def _with_rows_taken_in(runs: list[Run], place: Place, mark: str) -> tuple[list[Run], int]:
    """What is left of `runs` with the rows in their folders, and how many have damaged ones."""
    unreadable = gather(runs, place, mark, place.row_files(runs))
    ready, damaged = [], 0
    for run in unfinished(runs, place, mark):
        reason = unreadable.pop(place.folder(run, mark).rows, None)
        if reason is None:
            ready.append(run)
        else:
            say(f"{run.title()}: failed: {reason}")
            record_failure(run, place, mark, reason)
            damaged += 1
    for reason in unreadable.values():
        say(f"not read: {reason}")
    return ready, damaged


def _of_older_defaults(runs: list[Run], place: Place, mark: str | None) -> int:
    """Says which rows are in the way of new ones; returns of how many runs."""
    done = Done(place.rows())
    found = [(run, outdated) for run in runs if (outdated := done.older(run, mark))]
    for run, outdated in found:
        say(f"{older_text(run, outdated)} ({place.results})")
    return len(found)
