"""Where a sweep takes place: its results, the folders of its runs, its data."""

import dataclasses
import pathlib
import sys
from collections.abc import Iterable

from lra import records
from lra.records import Row
from lra.sweep import data
from lra.sweep.plan import Done, Run


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


def gather(runs: list[Run], place: Place, mark: str | None, files: Iterable[pathlib.Path]) -> None:
    """Copies the rows of `runs` from files that `train.py` has written to the results."""
    wanted = {run.key(seed, mark or "") for run in runs for seed in run.seeds}
    rows = [row for path in files if path.exists() for row in records.read(path)]
    found = [row for row in rows if records.key(row) in wanted]
    if found:
        records.append(place.results, found)


def without_rows(runs: list[Run], place: Place, mark: str | None) -> list[Run]:
    """Those of `runs` of which a seed has no result."""
    done = Done(place.rows())
    return [run for run in runs if done.missing(run, mark)]


def failure(run: Run, seed: int, mark: str, reason: str) -> Row:
    """The row of a seed whose run ended without a result."""
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


def say(text: str) -> None:
    """Tells what the sweep does; stdout is for what was asked for."""
    print(text, file=sys.stderr, flush=True)
