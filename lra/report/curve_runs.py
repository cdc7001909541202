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


def merge_seeds(runs: list[Run]) -> list[Run]:
    """Unite runs of other seeds that were evaluated at the same steps, all with losses or none."""
    alike: dict[Hashable, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.config.seeds):
        settings = to_json(_with_seeds(run.config, ()))
        key = settings, run.data, _steps(run.accuracy), bool(run.loss)
        parts = alike.setdefault(key, [])
        seen = {seed for part in parts for seed in part.config.seeds}
        together = _together(parts[0], run) if parts and seen.isdisjoint(run.config.seeds) else None
        if together:
            parts[0] = together
        else:
            parts.append(run)
    return [run for parts in alike.values() for run in parts]


def _steps(entries: list[Entry]) -> tuple[int, ...]:
    return tuple(step for step, _ in entries)


def _with_seeds(config: Any, seeds: tuple[int, ...]) -> Any:
    config = config.copy_and_resolve_references()
    config.seeds = seeds
    return config


def _together(one: Run, other: Run) -> Run | None:
    """Unite two runs; None if their losses cannot be brought to the same steps."""
    losses = [one.loss, other.loss]
    if _steps(one.loss) != _steps(other.loss):
        losses = [_losses_between_evaluations(run) for run in (one, other)]
        if _steps(losses[0]) != _steps(losses[1]):
            return None
    loss, accuracy = (
        [(step, [*a, *b]) for (step, a), (_, b) in zip(*entries, strict=True)]
        for entries in (losses, [one.accuracy, other.accuracy])
    )
    config = _with_seeds(one.config, (*one.config.seeds, *other.config.seeds))
    return Run(one.root, config, one.data, loss, accuracy)


def _losses_between_evaluations(run: Run) -> list[Entry]:
    """Return mean losses since the evaluation before: how long calls are depends on their speed."""
    result, left, before = [], list(run.loss), 0
    for step, _ in run.accuracy:
        parts = []
        while left and left[0][0] <= step:
            end, values = left.pop(0)
            parts.append((end - before, values))
            before = end
        # Of seeds that diverge between two evaluations nothing is left but those before.
        parts = [(steps, values) for steps, values in parts if len(values) == len(parts[-1][1])]
        if total := sum(steps for steps, _ in parts):
            weighted = ([steps * value for value in values] for steps, values in parts)
            result.append((step, [sum(column) / total for column in zip(*weighted, strict=True)]))
    return result


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
