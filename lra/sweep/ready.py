"""What has to be there before the runs of a sweep are executed."""

from lra import records
from lra.errors import UserError
from lra.sweep.listing import older_text
from lra.sweep.place import Place, gather, record_failure, say, unfinished
from lra.sweep.plan import Done, Run, Sweep, count


def remaining(sweep: Sweep, place: Place) -> tuple[list[tuple[Run, str]], int]:
    """Gets everything ready, and says what is to be done.

    Takes in rows that runs have written without us (`--launcher=print`, a killed sweep) and
    generates data that are missing.

    Returns:
        The runs to execute, with the seeds that have no row and the marks of their data, and the
        number of those that cannot be: their data are neither prepared nor can be generated, the
        rows in their folder are damaged, or rows of older defaults are in their way.

    Raises:
        UserError: the results file is damaged or cannot be written.
    """
    records.check_writable(place.results)
    todo, cannot = [], 0
    for task in dict.fromkeys(run.task for run in sweep.runs):
        runs = [run for run in sweep.runs if run.task == task]
        try:
            mark = place.mark(task)
            if mark is None and unfinished(runs, place, mark):
                mark = place.generate(task)
        except UserError as error:
            without_data = len(unfinished(runs, place, None))
            say(f"{task}: {count(without_data)} cannot start: {error}")
            cannot += without_data
            continue
        if mark is not None:
            ready, damaged = _with_rows_taken_in(runs, place, mark)
            todo += [(run, mark) for run in ready]
            cannot += damaged
        cannot += _of_older_defaults(runs, place, mark)
    return todo, cannot


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
