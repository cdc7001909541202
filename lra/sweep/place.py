"""Files of a sweep: its results, the folders of its runs and its data."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable

from lra import records
from lra.errors import UserError
from lra.row import Row, key
from lra.sweep import under_way
from lra.sweep.data import Data
from lra.sweep.runs import Done, Run, older_defaults
from lra.workdir import Workdir

_HINT = "move that file away, then the same command makes its rows anew"


@dataclasses.dataclass(frozen=True)
class Place:
    """Files of a sweep and the command that trains.

    Attributes:
        train: Training command without its flags.
        results: File of rows.
        workdir: Folder that contains one folder per run.
        data: Prepared data.
        known: Other files of rows, read only, whose results count as done.
        repairs: Whether to set aside a truncated last line of `results`.
    """

    train: tuple[str, ...]
    results: pathlib.Path
    workdir: pathlib.Path
    data: Data
    known: tuple[pathlib.Path, ...] = ()
    repairs: bool = True

    def rows(self) -> list[Row]:
        """Return the results under today's defaults in `known`, then all rows of `results`."""
        known = [row for path in self.known for row in records.read(path, repair=False)]
        known = [row for row in known if row.final and not older_defaults(row)]
        if not self.results.exists():
            return known
        return known + records.read(self.results, repair=self.repairs)

    def folder(self, run: Run, mark: str) -> Workdir:
        """Return the folder in which `run` is trained on data marked `mark`."""
        return Workdir(self.workdir / run.folder(mark))

    def present(self, run: Run, mark: str | None) -> list[str]:
        """Return the names of the folders of `run`, or of consecutive seeds of it, that exist.

        Seeds that were added to the sweep later were trained in a folder of their own.
        """
        ends = range(len(run.seeds) + 1)
        parts = [run.with_seeds(run.seeds[i:j]) for i, j in itertools.combinations(ends, 2)]
        folders = [self.folder(part, mark).root for part in parts if mark is not None]
        return [folder.name for folder in folders if folder.is_dir()]

    def row_files(self, runs: list[Run]) -> list[pathlib.Path]:
        """Return every `rows.jsonl` written by `runs`, on any data and with any seeds."""
        return sorted(
            {path for run in runs for path in self.workdir.glob(f"{run.folders()}/rows.jsonl")}
        )

    def command(self, run: Run, mark: str, minutes: float | None) -> list[str]:
        """Return the command that trains `run`, for at most `minutes` unless None."""
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


def of_sweep(data: Data) -> Callable[[Row], bool]:
    """Return a predicate of rows of the sweep's tasks: whether they are of its data."""
    takes, sha256 = functools.cache(data.takes), functools.cache(data.sha256)
    # Data of the same mark may be others, say of another seed.
    return lambda row: takes(row.task)(row.data) and _may_equal(row.data_sha256, sha256(row.task))


def of_data(mark: str, sha256: str | None) -> Callable[[Row], bool]:
    """Return a predicate of rows: whether they are of data with this mark and hash (None: any)."""
    return lambda row: row.data == mark and _may_equal(row.data_sha256, sha256)


def _may_equal(sha256: str | None, other: str | None) -> bool:
    return sha256 == other or None in (sha256, other)


def find(
    runs: list[Run], files: Iterable[pathlib.Path], takes: Callable[[Row], bool]
) -> tuple[list[Row], dict[pathlib.Path, str]]:
    """Find the rows of `runs` in files written by `train.py`.

    Args:
        runs: Runs of the sweep.
        files: Files of rows.
        takes: Predicate of the rows of these runs, `of_sweep` or `of_data`.

    Returns:
        The rows; and a dictionary from files that cannot be read, of which no rows are returned,
        to the reason.
    """
    wanted = {run.key(seed, "")[:-1] for run in runs for seed in run.seeds}
    matches, unreadable = [], {}
    for path in filter(os.path.exists, files):
        try:
            matches += [row for row in records.read(path, repair=False) if key(row)[:-1] in wanted]
        except UserError as error:
            unreadable[path] = f"{error}; {_HINT}"
        except OSError as error:
            unreadable[path] = f"cannot read {path}: {error.strerror}"
    # Rows of older defaults are dropped: copied to the results, they would block new rows.
    return [row for row in matches if takes(row) and not older_defaults(row)], unreadable


def gather(
    runs: list[Run], place: Place, files: Iterable[pathlib.Path], takes: Callable[[Row], bool]
) -> dict[pathlib.Path, str]:
    """Copy the rows that `find` finds to the results; return the files that cannot be read.

    Raises:
        UserError: The results file is damaged or cannot be written.
    """
    rows, unreadable = find(runs, files, takes)
    if rows:
        records.append(place.results, rows)
    return unreadable


def unfinished(runs: list[Run], place: Place, mark: str | None) -> list[Run]:
    """Return the runs that still lack results, each restricted to the seeds of `to_train`."""
    done = Done(place.rows(), place.data)
    restricted = [to_train(run, done, mark, place) for run in runs]
    return [run for run in restricted if run.seeds]


def to_train(run: Run, done: Done, mark: str | None, place: Place) -> Run:
    """Return `run` restricted to the seeds still to train: those without a result.

    As an exception, seeds that were started together and interrupted resume together from their
    checkpoint. If one of them has received its row elsewhere since, it is trained to the end again,
    but its row is not duplicated.
    """
    missing = done.missing(run, mark)
    if missing and mark is not None:
        finished = done.finished(run, mark)
        # The interrupted start excluded the seeds that had rows by then, the first `number`.
        for number in range(len(finished)):
            started = run.with_seeds(seed for seed in run.seeds if seed not in finished[:number])
            if under_way.read(place.folder(started, mark).metrics).step:
                return started
    return run.with_seeds(missing)


@dataclasses.dataclass(frozen=True)
class PlacedRun:
    """A run of a sweep that is to be trained at its place, on data with a mark."""

    run: Run
    place: Place
    mark: str

    @property
    def task(self) -> str:
        """Task of the run."""
        return self.run.task

    @property
    def folder(self) -> Workdir:
        """Folder in which it is trained."""
        return self.place.folder(self.run, self.mark)

    def title(self) -> str:
        """Return what messages call it."""
        return self.run.title()

    def command(self, minutes: float | None) -> list[str]:
        """Return the command that trains it, for at most `minutes` unless None."""
        return self.place.command(self.run, self.mark, minutes)

    def left(self) -> "PlacedRun | None":
        """Return it restricted to the seeds of `to_train`; None if there are none."""
        left = unfinished([self.run], self.place, self.mark)
        return dataclasses.replace(self, run=left[0]) if left else None

    def copy_rows(self, sha256: str | None) -> str | None:
        """Copy its rows from its folder; return the reason if they cannot be read, else None.

        These are its rows on data with this mark and hash, even if others have replaced them since.
        """
        path = self.folder.rows
        return gather([self.run], self.place, [path], of_data(self.mark, sha256)).get(path)

    def record_failure(self, reason: str) -> None:
        """Append a failed row for each seed, with `reason` as its error."""
        rows = [_failed_row(self.run, seed, self.mark, reason) for seed in self.run.seeds]
        records.append(self.place.results, rows)


def _failed_row(run: Run, seed: int, mark: str, reason: str) -> Row:
    return Row(
        task=run.task,
        attention=run.attention,
        seed=seed,
        protocol=run.protocol,
        data=mark,
        status="failed",
        # The reason may name a path, which need not be valid Unicode, as rows must be.
        error=reason.encode(errors="backslashreplace").decode(),
        steps=run.config["train.steps"],
        dtype=run.config["dtype"],
        matmul_precision=run.config["matmul_precision"],
        config=run.config,
        config_overrides=run.changed,
    )
