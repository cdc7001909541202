"""Collect the runs that are ready to execute, generating missing data on the way."""

from collections.abc import Iterator

from lra import records
from lra.errors import UserError, of_system
from lra.stderr import say
from lra.sweep.budget import Budget
from lra.sweep.estimate import duration
from lra.sweep.listing import ABOUT_OLDER, older_text
from lra.sweep.place import Place, PlacedRun, gather, of_sweep, unfinished
from lra.sweep.runs import Done, Run, Sweep, by_task, count, in_order


class Ready:
    """Iterable of the runs to execute, each with its seeds to train.

    The constructor first collects rows that the runs have written outside this sweep: through
    `--launcher=print`, in a killed sweep, or on another machine. Missing data are generated when
    the iteration reaches the first run of their task.

    Attributes:
        cannot: Number of runs that cannot start, since their data are neither prepared nor can be
            generated.
        older: Number of runs blocked by rows of older defaults.
        started: Whether any run has been handed out.
        postponed: Lines that say which data would take longer to generate than the budget lasts.

    Raises:
        UserError: The results file is damaged or cannot be written, or runs are left but none of
            them can start.
    """

    def __init__(self, sweep: Sweep, place: Place, budget: Budget):
        records.check_writable(place.results)
        files = place.row_files(sweep.runs)
        unreadable = gather(sweep.runs, place, files, of_sweep(place.data))
        self._place, self._budget, self.started, self.postponed = place, budget, False, []
        self._tasks = by_task(in_order(sweep.runs, Done(place.rows(), place.data)))
        self._marks, cannot = marks(sweep, place)
        self.cannot = sum(cannot.values())
        self.older = sum(
            _report_older_defaults(runs, place, self._marks.get(task))
            for task, runs in self._tasks.items()
        )
        if self.older:
            say(f"{place.results}: {ABOUT_OLDER}")
        self._report_unreadable(unreadable)
        if cannot and not len(self):
            raise UserError("; ".join(cannot))
        for line in (*cannot, *notes_on_data(place, self._marks)):
            say(line)

    def __len__(self) -> int:
        """Return the number of runs, as far as known before data are generated."""
        return sum(len(self._left(task)) for task in self._marks)

    def __iter__(self) -> Iterator[PlacedRun]:
        for task in self._tasks:
            if task in self._marks and self._has_data(task):
                for run in self._left(task):
                    self.started = True
                    yield PlacedRun(run, self._place, self._marks[task])

    def _left(self, task: str) -> list[Run]:
        return unfinished(self._tasks[task], self._place, self._marks[task])

    def _has_data(self, task: str) -> bool:
        """Return whether the task's data exist, after generating them if a run needs them.

        The mark is read again, since the data may have been prepared or replaced in the meantime.
        """
        try:
            self._marks[task] = self._place.data.mark(task)
            if self._marks[task] is None and self._left(task):
                if not self._fits_budget(task):
                    return False
                self._marks[task] = self._place.data.generate(task)
        except (UserError, OSError) as error:
            reason = of_system(error) if isinstance(error, OSError) else str(error)
            for line, number in _cannot_start(task, self._tasks[task], self._place, reason).items():
                self.cannot += number
                say(line)
            return False
        return self._marks[task] is not None

    def _fits_budget(self, task: str) -> bool:
        """Return whether the budget suffices to generate the data of `task`; note if not."""
        seconds, spare = self._place.data.seconds_to_generate(task), self._budget.to_spare()
        if spare is None or seconds <= 60 * spare:
            return True
        self.postponed.append(
            f"{task}: generating its data takes about {duration(seconds)}, more than the "
            f"{duration(60 * spare)} that the budget leaves for it; give it more"
        )
        return False

    def _report_unreadable(self, unreadable: dict) -> None:
        """Report the files of rows that cannot be read.

        Files in the folder of a remaining run are skipped: that run will fail with this reason.
        """
        own = {
            self._place.folder(run, mark).rows
            for task, mark in self._marks.items()
            if mark is not None
            for run in self._left(task)
        }
        for path, reason in unreadable.items():
            if path not in own:
                say(f"not read: {reason}")


def marks(sweep: Sweep, place: Place) -> tuple[dict[str, str | None], dict[str, int]]:
    """Return the data marks of all tasks, and the runs that cannot start.

    Returns:
        Marks by task, None for data still to be generated and no entry for unavailable data; and
        a dictionary from lines that say why runs cannot start to the number of these runs.
    """
    data_marks, cannot = {}, {}
    for task, runs in by_task(sweep.runs).items():
        try:
            mark = place.data.mark(task)
            if mark is None:
                place.data.seconds_to_generate(task)
            data_marks[task] = mark
        except UserError as error:
            cannot |= _cannot_start(task, runs, place, str(error))
    return data_marks, cannot


def notes_on_data(place: Place, data_marks: dict[str, str | None]) -> list[str]:
    """Return a line for each task whose data are neither LRA's nor asked for by the sweep."""
    notes = (place.data.note(task, mark) for task, mark in data_marks.items())
    return [note for note in notes if note]


def _cannot_start(task: str, runs: list[Run], place: Place, reason: str) -> dict[str, int]:
    """Map a line that says why the remaining `runs` cannot start to their number."""
    left = len(unfinished(runs, place, None))
    # Where all runs are done, nobody needs the data.
    return {f"{task}: {count(left)} cannot start: {reason}": left} if left else {}


def _report_older_defaults(runs: list[Run], place: Place, mark: str | None) -> int:
    """Report rows of older defaults that block new ones; return the number of runs affected."""
    done = Done(place.rows(), place.data)
    blocked = [(run, outdated) for run in runs if (outdated := done.older(run, mark))]
    for run, outdated in blocked:
        say(older_text(run, outdated))
    return len(blocked)
