"""Runs with curves, read from workdirs and from files (`lra.report.curve_files`)."""

import pathlib
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from lra import records
from lra.errors import UserError
from lra.metrics import read_metrics
from lra.report import curve_files
from lra.report.curve_points import Entry
from lra.settings import to_json
from lra.workdir import Workdir


class Run(NamedTuple):
    """A run, or several together: folder, config, mark of the data, losses and accuracies."""

    root: str
    config: Any
    data: str | None
    loss: list[Entry]
    accuracy: list[Entry]

    @property
    def attention(self) -> str:
        return self.config.model.attention.name


def read(place: str) -> Iterator[Run]:
    """Yield the evaluated runs of a workdir, of which there is one at most, or of a file."""
    folder = Workdir(place)
    if not folder.root.exists():
        raise UserError(f"--curves names {place}, which is not there")
    if folder.root.is_file():
        for line in curve_files.read(folder.root) if folder.root.suffix == ".jsonl" else ():
            loss, accuracy = (
                [(step, [value]) for step, value in zip(line.step, values, strict=bool(values))]
                for values in (line.train_loss, line.val_accuracy)
            )
            yield Run(place, line.config, line.data, loss, accuracy)
    elif folder.config.exists() and folder.metrics.exists():
        config, (loss, accuracy) = folder.load_config(), _read_metrics(folder.metrics)
        if accuracy:
            yield Run(str(place), config, _data_of(folder), loss, accuracy)


def _data_of(folder: Workdir) -> str | None:
    """Return the mark of a run's data; None for a run of older code that has not ended."""
    rows = records.read(folder.rows, repair=False) if folder.rows.exists() else []
    if rows:
        return rows[0].data
    return folder.load_facts()["data"] if folder.facts.exists() else None


def united(runs: list[Run]) -> list[Run]:
    """Unite runs of other seeds whose entries are of the same steps."""
    alike: dict[Hashable, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.config.seeds):
        steps = [tuple(step for step, _ in entries) for entries in (run.loss, run.accuracy)]
        settings = to_json(_with_seeds(run.config, ()))
        parts = alike.setdefault((settings, run.data, *steps), [])
        seen = {seed for part in parts for seed in part.config.seeds}
        if parts and seen.isdisjoint(run.config.seeds):
            parts[0] = _together(parts[0], run)
        else:
            parts.append(run)
    return [run for parts in alike.values() for run in parts]


def _with_seeds(config: Any, seeds: tuple[int, ...]) -> Any:
    config = config.copy_and_resolve_references()
    config.seeds = seeds
    return config


def _together(one: Run, other: Run) -> Run:
    loss, accuracy = (
        [(step, [*a, *b]) for (step, a), (_, b) in zip(*entries, strict=True)]
        for entries in ((one.loss, other.loss), (one.accuracy, other.accuracy))
    )
    config = _with_seeds(one.config, (*one.config.seeds, *other.config.seeds))
    return Run(one.root, config, one.data, loss, accuracy)


def _read_metrics(path: pathlib.Path) -> tuple[list, list]:
    """Read training losses and validation accuracies, each as a list of (step, seeds' values)."""
    loss, accuracy = [], []
    for entry in read_metrics(path):
        if entry["kind"] == "train":
            loss.append((entry["step"], _known(entry["loss"])))
        elif entry.get("split") == "validation":
            accuracy.append((entry["step"], _known(entry["accuracy"])))
    return loss, accuracy


def _known(values: list[float | None]) -> list[float]:
    """Return the values of the seeds that have not diverged."""
    return [value for value in values if value is not None]
