"""What has to be there before the runs of a sweep are executed."""

from collections.abc import Iterator

from lra import records
from lra.errors import UserError, of_system
from lra.stderr import say
from lra.sweep.budget import Budget
from lra.sweep.estimate import duration
from lra.sweep.listing import older_text
from lra.sweep.place import Place, gather, unfinished
from lra.sweep.plan import Done, Run, Sweep, by_task, count, in_order


class Ready:
    """The runs to execute, with the seeds to train (`place.to_train`) and the marks of their data.

    Once made it has taken in the rows that runs have written without us: those of
    `--launcher=print`, of a killed sweep, of another machine. Data that are missing are generated
    when the first run of their task comes up.

    Attributes:
        cannot: how many runs cannot start: their data are not prepared and cannot be generated.
        older: how many runs are blocked by rows of older defaults.
        postponed: whether runs were left out since generating their data would take longer than
            the budget allows.

    Raises:
        UserError: the results file is damaged or cannot be written; runs are left, and none of
            them can start.
    """

    def __init__(self, sweep: Sweep, place: Place, budget: Budget):
        records.check_writable(place.results)
        unreadable = gather(sweep.runs, place, place.row_files(sweep.runs))
        self._place, self._budget, self.postponed = place, budget, False
        self._tasks = by_task(in_order(sweep.runs, place.rows()))
        self._marks, cannot = marks(sweep, place)
        self.cannot = sum(cannot.values())
        self.older = sum(
            _of_older_defaults(runs, place, self._marks.get(task))
            for task, runs in self._tasks.items()
        )
        self._say_what_is_not_read(unreadable)
        if cannot and not len(self):
            raise UserError("; ".join(cannot))
        for line in cannot:
            say(line)

    def __len__(self) -> int:
        """How many there are, by what is known before data are generated."""
        return sum(len(self._left(task)) for task in self._marks)

    def __iter__(self) -> Iterator[tuple[Run, str]]:
        for task in self._tasks:
            if task in self._marks and self._has_data(task):
                yield from [(run, self._marks[task]) for run in self._left(task)]

    def _left(self, task: str) -> list[Run]:
        return unfinished(self._tasks[task], self._place, self._marks[task])

    def _has_data(self, task: str) -> bool:
        """Whether the task's data exist; generates them now if a run that is left needs them.

        Since the sweep began they may have been prepared, or prepared anew.
        """
        try:
            self._marks[task] = self._place.data.mark(task)
            if self._marks[task] is None and self._left(task):
                if not self._fits(task):
                    self.postponed = True
                    return False
                self._marks[task] = self._place.data.generate(task)
        except (UserError, OSError) as error:
            reason = of_system(error) if isinstance(error, OSError) else str(error)
            for line, number in _cannot_start(task, self._tasks[task], self._place, reason).items():
                self.cannot += number
                say(line)
            return False
        return self._marks[task] is not None

    def _fits(self, task: str) -> bool:
        """Whether the budget has time to generate the data of `task`; says so where it has not."""
        seconds, spare = self._place.data.seconds_to_generate(task), self._budget.to_spare()
        if spare is None or seconds <= 60 * spare:
            return True
        say(
            f"{task}: generating its data takes about {duration(seconds)}, more than the "
            f"{duration(60 * spare)} that the budget leaves for it; give it more"
        )
        return False

    def _say_what_is_not_read(self, unreadable: dict) -> None:
        """Names the files of rows that cannot be read.

        Not those in the folder of a run that is left: it will fail with that as its reason.
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
    """How the data of each task are marked.

    Returns:
        The marks by task, None for data that can be generated, nothing for those that cannot be
        had; and lines that say why runs cannot start, with the number of these.
    """
    found, cannot = {}, {}
    for task, runs in by_task(sweep.runs).items():
        try:
            mark = place.data.mark(task)
            if mark is None:
                place.data.seconds_to_generate(task)
            found[task] = mark
        except UserError as error:
            cannot |= _cannot_start(task, runs, place, str(error))
    return found, cannot


def _cannot_start(task: str, runs: list[Run], place: Place, reason: str) -> dict[str, int]:
    """Says that what is left of `runs` cannot start, and why, with the number of these."""
    left = len(unfinished(runs, place, None))
    # Where all runs are done, nobody needs the data.
    return {f"{task}: {count(left)} cannot start: {reason}": left} if left else {}


def _of_older_defaults(runs: list[Run], place: Place, mark: str | None) -> int:
    """Says which rows are in the way of new ones; returns of how many runs."""
    done = Done(place.rows(), place.data)
    found = [(run, outdated) for run in runs if (outdated := done.older(run, mark))]
    for run, outdated in found:
        say(f"{older_text(run, outdated)} ({place.results})")
    return len(found)
