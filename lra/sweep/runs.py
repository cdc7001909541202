"""Runs of a sweep, and which of them already have results."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.protocol import ATTENTION_KEYS, departures, without_execution
from lra.row import Key, Row, key, latest, make_key
from lra.sweep.data import Data

_HASH_DIGITS = 8  # in the name of a workdir
_MAX_NAME_CHARS = 150  # file systems allow 255 bytes for the name of a folder


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: some seeds of one config.

    Attributes:
        spec: Config file and attention, such as `configs/listops.py:nystrom`.
        overrides: Overrides of the form `KEY=VALUE`, without the seeds.
        seeds: Seeds to train together in one program.
        task, attention, protocol: Fields of its rows.
        changed: Differences from the task's defaults, the `config_overrides` of its rows.
        config: Complete config, flattened.
        varied: Config keys, other than attention options, in which the sweep's runs of this task
            and attention differ.
    """

    spec: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    task: str
    attention: str
    protocol: str
    changed: dict[str, Any]
    config: dict[str, Any]
    varied: tuple[str, ...] = ()

    def key(self, seed: int, data: str) -> Key:
        """Return the key of the row of `seed` on data marked `data`."""
        return make_key(self.task, self.attention, self.changed, seed, self.protocol, data)

    def folder(self, data: str) -> str:
        """Return the name of its workdir: readable words and a hash.

        The hash covers everything that its rows depend on: overrides, seeds, data and the current
        defaults.
        """
        facts = json.dumps([self.key(0, data), self.seeds, without_execution(self.config)])
        return f"{self._name()}-{hashlib.sha256(facts.encode()).hexdigest()[:_HASH_DIGITS]}"

    def folders(self) -> str:
        """Return a glob pattern for its workdirs on any data and with any seeds."""
        return f"{self._name()}-{'?' * _HASH_DIGITS}"

    def _name(self) -> str:
        words = [self.task, self.attention, *self._options()]
        return re.sub(r"[^\w.=-]+", "_", "-".join(words))[:_MAX_NAME_CHARS]

    def _options(self) -> list[str]:
        """Return its overrides of attention options, such as `num_landmarks=32`."""
        return [
            f"{name.removeprefix(ATTENTION_KEYS)}={value}"
            for name, value in self.changed.items()
            if name.startswith(ATTENTION_KEYS)
        ]

    def title(self) -> str:
        """Return a readable title that is unique within the sweep."""
        varied = [f"{name.rpartition('.')[2]}={self.config[name]}" for name in self.varied]
        words = " ".join([self.task, self.attention, *self._options(), *varied])
        return f"{words}, seeds {' '.join(map(str, self.seeds))}"

    def with_seeds(self, seeds: Iterable[int]) -> "Run":
        """Return a copy with other seeds, as if the sweep file had listed those."""
        seeds = tuple(seeds)
        return dataclasses.replace(self, seeds=seeds, config=self.config | {"seeds": seeds})


class Sweep(NamedTuple):
    """Contents of a sweep file: runs, and flags for generating data, by task."""

    runs: list[Run]
    data: dict[str, dict[str, Any]]


class Done:
    """Index of the results that runs already have, and of their failures.

    A row trained under older defaults of `configs` is not a result of today's run: `lra.report`
    keeps it out of the tables of today's protocol. It still blocks a new row, since a file of rows
    holds one result per key.

    Args:
        rows: All existing rows.
        data: Data of the sweep. For data not yet prepared, a result counts if its mark is one that
            they may get.
    """

    def __init__(self, rows: Iterable[Row], data: Data):
        unique = latest(rows)
        self._departures = {key(row): older_defaults(row) for row in unique if row.final}
        self._marks: dict[tuple, list[str]] = {}
        for name in self._departures:
            self._marks.setdefault(name[:-1], []).append(name[-1])
        self._errors: dict[tuple, dict[str, str | None]] = {}  # by key without mark, by mark
        for row in unique:
            if not row.final:
                *name, mark = key(row)
                self._errors.setdefault(tuple(name), {})[mark] = row.error
        self._takes = functools.cache(data.takes)

    def missing(self, run: Run, data: str | None) -> tuple[int, ...]:
        """Return the seeds without a result on data marked `data` (None if not yet prepared)."""
        return tuple(seed for seed in run.seeds if self._older_defaults_of(run, seed, data) is None)

    def finished(self, run: Run, data: str) -> list[int]:
        """Return the seeds that have a result, in the order of their rows."""
        seeds = {run.key(seed, data): seed for seed in run.seeds}
        return [seeds[name] for name in self._departures if name in seeds]

    def older(self, run: Run, data: str | None) -> dict[int, dict[str, Any]]:
        """Return the older defaults, by seed, of seeds whose rows were trained under them."""
        by_seed = {seed: self._older_defaults_of(run, seed, data) for seed in run.seeds}
        return {seed: older for seed, older in by_seed.items() if older}

    def failures(self, run: Run) -> list[str | None]:
        """Return the errors of the seeds that failed last on the sweep's data, as far as known."""
        takes = self._takes(run.task)
        by_mark = [self._errors.get(run.key(seed, "")[:-1], {}) for seed in run.seeds]
        return [error for marks in by_mark for mark, error in marks.items() if takes(mark)]

    def _older_defaults_of(self, run: Run, seed: int, data: str | None) -> dict[str, Any] | None:
        """Return the older defaults of the result of `seed`, empty if none; None if no result."""
        if data is not None:
            return self._departures.get(run.key(seed, data))
        marks = filter(self._takes(run.task), self._marks.get(run.key(seed, "")[:-1], ()))
        candidates = [self._departures[run.key(seed, mark)] for mark in marks]
        return min(candidates, key=bool, default=None)  # preferably a row of today's defaults


def older_defaults(row: Row) -> dict[str, Any]:
    """Return config values of a row that were defaults when it was trained but no longer are."""
    changed = departures(row.task, row.attention, row.config)
    return {name: value for name, value in changed.items() if name not in row.config_overrides}


def by_task(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group the runs by task, in order of first appearance."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.task, []).append(run)
    return groups


def in_order(runs: Iterable[Run], done: Done) -> list[Run]:
    """Sort the runs for execution: task by task, within a task those that failed before last.

    Args:
        runs: Runs in the order of the sweep file.
        done: Index of all existing rows.
    """

    def has_failed(run: Run) -> bool:
        return bool(done.failures(run))

    return [
        run for task_runs in by_task(runs).values() for run in sorted(task_runs, key=has_failed)
    ]


def count(number: int, noun: str = "run") -> str:
    """Format a count with its noun: `1 run` or `3 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
