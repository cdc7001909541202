"""Runs of a sweep, and which of them have no rows yet."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.protocol import departures, identity
from lra.records import Key, Row, key, latest, make_key
from lra.sweep.data import Data

OPTIONS = "model.attention."
_DIGITS = 8  # of the hash in the name of a workdir
_LONGEST_NAME = 150  # of a folder, of the 255 bytes that file systems allow


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: some seeds of one configuration.

    Attributes:
        spec: config file and attention.
        overrides: `KEY=VALUE` each, seeds not among them.
        seeds: to train in one program.
        task, attention, protocol: as its rows will have them.
        changed: what differs from the task's defaults, as its rows will have it.
        config: the whole configuration, flat.
        varied: keys in which the sweep's runs of this task and attention differ, the options of
            the attention aside.
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
        """The key of the row of `seed` on data marked `data`."""
        return make_key(self.task, self.attention, self.changed, seed, self.protocol, data)

    def folder(self, data: str) -> str:
        """The name of its workdir: readable words and a hash.

        The hash is another one wherever the rows would be others: by overrides, seeds, data, or
        defaults that have changed since.
        """
        facts = json.dumps([self.key(0, data), self.seeds, identity(self.config)])
        return f"{self._name()}-{hashlib.sha256(facts.encode()).hexdigest()[:_DIGITS]}"

    def folders(self) -> str:
        """A glob pattern of its workdirs, on whatever data and with whatever seeds."""
        return f"{self._name()}-{'?' * _DIGITS}"

    def _name(self) -> str:
        words = [self.task, self.attention, *self._options()]
        return re.sub(r"[^\w.=-]+", "_", "-".join(words))[:_LONGEST_NAME]

    def _options(self) -> list[str]:
        """`num_landmarks=32`: what it changes of its attention."""
        return [
            f"{name.removeprefix(OPTIONS)}={value}"
            for name, value in self.changed.items()
            if name.startswith(OPTIONS)
        ]

    def title(self) -> str:
        """What to call it in a line of text: no other run of the sweep is called the same."""
        varied = [f"{name.rpartition('.')[2]}={self.config[name]}" for name in self.varied]
        words = " ".join([self.task, self.attention, *self._options(), *varied])
        return f"{words}, seeds {' '.join(map(str, self.seeds))}"

    def with_seeds(self, seeds: Iterable[int]) -> "Run":
        """The same with other seeds, as if the sweep file had listed it with them."""
        seeds = tuple(seeds)
        return dataclasses.replace(self, seeds=seeds, config=self.config | {"seeds": seeds})


class Sweep(NamedTuple):
    """A sweep file: its runs, and the flags by which it wants the data of a task generated."""

    runs: list[Run]
    data: dict[str, dict[str, Any]]


class Done:
    """Which seeds of which runs have a result already.

    A row that was trained when `configs` had other defaults is no result of today's run:
    `lra.report` keeps it out of the tables of today's protocol. It still blocks a new row, since a
    file of rows holds one result for each key.

    Args:
        rows: all there are.
        data: of the sweep; where they are not prepared yet, a result counts if they may get the
            mark of its data.
    """

    def __init__(self, rows: Iterable[Row], data: Data):
        self._departures = {key(row): older_defaults(row) for row in latest(rows) if row.final}
        self._marks: dict[tuple, list[str]] = {}
        for name in self._departures:
            self._marks.setdefault(name[:-1], []).append(name[-1])
        self._takes = functools.cache(data.takes)

    def missing(self, run: Run, data: str | None) -> tuple[int, ...]:
        """Seeds without a result on data marked `data`; None: they are not prepared yet."""
        return tuple(seed for seed in run.seeds if self._found(run, seed, data) is None)

    def finished(self, run: Run, data: str) -> list[int]:
        """The other seeds, in the order of their rows."""
        seeds = {run.key(seed, data): seed for seed in run.seeds}
        return [seeds[name] for name in self._departures if name in seeds]

    def older(self, run: Run, data: str | None) -> dict[int, dict[str, Any]]:
        """Seeds whose row was trained with older defaults, each with these defaults."""
        found = {seed: self._found(run, seed, data) for seed in run.seeds}
        return {seed: older for seed, older in found.items() if older}

    def _found(self, run: Run, seed: int, data: str | None) -> dict[str, Any] | None:
        if data is not None:
            return self._departures.get(run.key(seed, data))
        marks = filter(self._takes(run.task), self._marks.get(run.key(seed, "")[:-1], ()))
        found = [self._departures[run.key(seed, mark)] for mark in marks]
        return min(found, key=bool, default=None)  # one of today's defaults, if there is one


def older_defaults(row: Row) -> dict[str, Any]:
    """The values of a row that were defaults when it was trained and no longer are."""
    found = departures(row.task, row.attention, row.config)
    return {name: value for name, value in found.items() if name not in row.config_overrides}


def by_task(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each task, the tasks as they first appear."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.task, []).append(run)
    return found


def in_order(runs: Iterable[Run], rows: Iterable[Row]) -> list[Run]:
    """The runs as they are executed: task by task, those that failed before at the end of theirs.

    Args:
        runs: in the order of the sweep file.
        rows: all there are.
    """
    failed = {key(row)[:-1] for row in latest(rows) if not row.final}

    def has_failed(run: Run) -> bool:
        return any(run.key(seed, "")[:-1] in failed for seed in run.seeds)

    return [run for of_task in by_task(runs).values() for run in sorted(of_task, key=has_failed)]


def count(number: int, noun: str = "run") -> str:
    """`1 run` or `3 runs`."""
    return f"{number} {noun}{'s' * (number != 1)}"
