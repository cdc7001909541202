"""Where a sweep takes place: its results, the folders of its runs, its data."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from lra import records
from lra.errors import UserError
from lra.records import Row
from lra.sweep import under_way
from lra.sweep.data import Data
from lra.sweep.plan import Done, Run, older_defaults
from lra.workdir import Workdir

_CURE = "move that file away, then the same command makes its rows anew"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a sweep takes place.

    Attributes:
        train: the command that trains, without its flags.
        results: the file of rows.
        known: other files of rows, which are only read: their results count as done.
        repairs: whether a last line of `results` that was cut short is set aside.
        workdir: folder with one folder for each run.
        data: the prepared data.
    """

    train: tuple[str, ...]
    results: pathlib.Path
    workdir: pathlib.Path
    data: Data
    known: tuple[pathlib.Path, ...] = ()
    repairs: bool = True

    def rows(self) -> list[Row]:
        """All rows so far: of `known` the results by today's defaults, then those of `results`."""
        known = [row for path in self.known for row in records.read(path, repair=False)]
        known = [row for row in known if row.final and not older_defaults(row)]
        if not self.results.exists():
            return known
        return known + records.read(self.results, repair=self.repairs)

    def folder(self, run: Run, mark: str) -> Workdir:
        """The folder in which `run` is trained on data marked `mark`."""
        return Workdir(self.workdir / run.folder(mark))

    def row_files(self, runs: list[Run]) -> list[pathlib.Path]:
        """Each `rows.jsonl` that `runs` have written, on any data and with any of their seeds."""
        return sorted(
            {path for run in runs for path in self.workdir.glob(f"{run.folders()}/rows.jsonl")}
        )

    def command(self, run: Run, mark: str, minutes: float | None) -> list[str]:
        """The child that trains `run`."""
        # At least 0.001: train.py refuses a budget of 0.
        limit = [] if minutes is None else [f"--budget_minutes={max(minutes, 0.001):.3f}"]
        seeds = ", ".join(map(str, run.seeds)) + ("," if len(run.seeds) == 1 else "")
        return [
            *self.train,
            f"--config={run.spec}",
            f"--workdir={self.folder(run, mark).root}",
            f"--data_dir={self.data.folder}",
            *limit,
            *(f"--config.{override}" for override in run.overrides),
            f"--config.seeds=({seeds})",
        ]


def find(
    runs: list[Run], data: Data, files: Iterable[pathlib.Path], mark: str | None = None
) -> tuple[list[Row], dict[pathlib.Path, str]]:
    """The rows of `runs` in files that `train.py` has written.

    Args:
        runs: of the sweep.
        data: of the sweep.
        files: with rows.
        mark: only rows on data marked so; None for those of the sweep.

    Returns:
        The rows, and the files that cannot be read, of which nothing is taken, with the reason.
    """
    tasks = {run.task for run in runs}
    takes = {task: data.takes(task) if mark is None else mark.__eq__ for task in tasks}
    wanted = {run.key(seed, "")[:-1] for run in runs for seed in run.seeds}
    found, unreadable = [], {}
    for path in filter(os.path.exists, files):
        try:
            rows = records.read(path, repair=False)
            rows = [row for row in rows if records.key(row)[:-1] in wanted]
            found += [row for row in rows if takes[row.task](row.data)]
        except UserError as error:
            unreadable[path] = f"{error}; {_CURE}"
        except OSError as error:
            unreadable[path] = f"cannot read {path}: {error.strerror}"
    # Copied to the results, rows of older defaults would block those that the runs are to make.
    return [row for row in found if not older_defaults(row)], unreadable


def gather(
    runs: list[Run], place: Place, files: Iterable[pathlib.Path], mark: str | None = None
) -> dict[pathlib.Path, str]:
    """Copies what `find` finds to the results; returns what cannot be read.

    Raises:
        UserError: the results file is damaged or cannot be written.
    """
    found, unreadable = find(runs, place.data, files, mark)
    if found:
        records.append(place.results, found)
    return unreadable


def unfinished(runs: list[Run], place: Place, mark: str | None) -> list[Run]:
    """The runs with seeds that still lack a result, each restricted to those by `to_train`."""
    done = Done(place.rows(), place.data)
    left = [to_train(run, done, mark, place) for run in runs]
    return [run for run in left if run.seeds]


def to_train(run: Run, done: Done, mark: str | None, place: Place) -> Run:
    """`run` with the seeds still to train: those without a result, but for one exception.

    Seeds that an interrupted start began together go on together from its checkpoint. If one of
    them has got its row elsewhere since then, it is trained to its end once more; its row is not
    doubled.
    """
    missing = done.missing(run, mark)
    if missing and mark is not None:
        finished = done.finished(run, mark)
        # That start left out the seeds that had rows by then: the first `number` of them.
        for number in range(len(finished)):
            begun = run.with_seeds(seed for seed in run.seeds if seed not in finished[:number])
            if under_way.read(place.folder(begun, mark).metrics).step:
                return begun
    return run.with_seeds(missing)


def record_failure(run: Run, place: Place, mark: str, reason: str) -> None:
    """Adds a row for each seed of `run`, whose `reason` says why it has no result."""
    records.append(place.results, [_failure(run, seed, mark, reason) for seed in run.seeds])


def _failure(run: Run, seed: int, mark: str, reason: str) -> Row:
    """The reason may name a path, which need not be text, as rows must be."""
    return Row(
        task=run.task,
        attention=run.attention,
        seed=seed,
        protocol=run.protocol,
        data=mark,
        status="failed",
        error=reason.encode(errors="backslashreplace").decode(),
        steps=run.config["train.steps"],
        dtype=run.config["dtype"],
        matmul_precision=run.config["matmul_precision"],
        config=run.config,
        config_overrides=run.changed,
    )
