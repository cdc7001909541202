"""What a sweep file asks for, and which of it has no rows yet.

A sweep file is Python and names nothing of ours. It holds a list of runs, or a function that
returns one for some tasks; a run is a config and what it overrides:

    RUNS = [
        {"config": "configs/listops.py:nystrom", "seeds": (0, 1), "train.weight_decay": decay}
        for decay in (0.0, 0.01, 0.1)
    ]

    def runs(tasks=("listops", "image")):
        return [{"config": f"configs/{task}.py:{name}"} for task in tasks for name in ...]

`DATA = {task: flags}` asks for generated data of its own: the flags of `lra.data.prepare`.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
import runpy
import sys
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

from lra.command_line import near_match
from lra.errors import UserError
from lra.protocol import departures, identity, overrides_of, protocol_of
from lra.records import Key, Row, key, latest, make_key
from lra.settings import flatten, last_of_each_key, load_config
from lra.sweep import data
from lra.tasks import get_task

_OPTIONS = "model.attention."
_DIGITS = 8  # of the hash in the name of a workdir
_LONGEST_NAME = 150  # of a folder, of the 255 bytes that file systems allow
_FORM = "{'config': 'configs/TASK.py:ATTENTION', 'KEY': value, ...}"


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
        """The name of its workdir: readable, and another one for all that makes other rows.

        Other defaults make other rows as well.
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
            f"{name.removeprefix(_OPTIONS)}={value}"
            for name, value in self.changed.items()
            if name.startswith(_OPTIONS)
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
    """Which seeds of which runs have their result.

    A result of older defaults is none of the run: `lra.report` keeps it out of the tables of
    today's defaults. Yet it blocks a new one, since a file of rows holds one result for each key.

    Args:
        rows: all there are.
    """

    def __init__(self, rows: Iterable[Row]):
        self._departures = {key(row): older_defaults(row) for row in latest(rows) if row.final}
        self._on_any_data: dict[tuple, dict[str, Any]] = {}
        for name, older in self._departures.items():
            if not older or name[:-1] not in self._on_any_data:
                self._on_any_data[name[:-1]] = older

    def missing(self, run: Run, data: str | None) -> tuple[int, ...]:
        """Seeds without a result on data marked `data`; None: on any data (not prepared yet)."""
        return tuple(seed for seed in run.seeds if self._found(run, seed, data) is None)

    def finished(self, run: Run, data: str) -> list[int]:
        """The other seeds, in the order of their rows."""
        seeds = {run.key(seed, data): seed for seed in run.seeds}
        return [seeds[name] for name in self._departures if name in seeds]

    def older(self, run: Run, data: str | None) -> dict[int, dict[str, Any]]:
        """Seeds with a result of older defaults, and these defaults."""
        found = {seed: self._found(run, seed, data) for seed in run.seeds}
        return {seed: older for seed, older in found.items() if older}

    def _found(self, run: Run, seed: int, data: str | None) -> dict[str, Any] | None:
        if data is None:
            return self._on_any_data.get(run.key(seed, "")[:-1])
        return self._departures.get(run.key(seed, data))


def older_defaults(row: Row) -> dict[str, Any]:
    """What a row does not say to have changed, and yet is not as `configs` has it now."""
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


def load_sweep(path: str, tasks: tuple[str, ...] = (), overrides: Iterable[str] = ()) -> Sweep:
    """Reads a sweep file and resolves its runs, each seed of each configuration once.

    Args:
        path: the file.
        tasks: only these (a function `runs` is called with them); none: the file's own choice.
        overrides: `KEY=VALUE` for all runs, after the file's own.

    Raises:
        UserError: no such file, no list of runs in it, nothing in the list, a run with an
            unknown config, key or value, `DATA` with an unknown task, flag or value.
    """
    for task in tasks:
        get_task(task)
    listed, wanted = _execute(path, tasks)
    runs = [_resolve(path, i, item, tuple(overrides)) for i, item in enumerate(listed, start=1)]
    if not runs:
        raise UserError(f"{path} lists no runs")
    chosen = [run for run in runs if not tasks or run.task in tasks]
    if not chosen:
        raise UserError(f"{path} lists no runs of {', '.join(tasks)}")
    return Sweep(_each_seed_once(path, _told_apart(chosen)), wanted)


def _execute(path: str, tasks: tuple[str, ...]) -> tuple[list, dict[str, dict[str, Any]]]:
    """The list of runs as it stands in the file, and `DATA`."""
    file = pathlib.Path(path)
    if file.is_dir():
        raise UserError(f"{path} is a folder: name a sweep file, {file / 'SWEEP.py'}")
    if not file.is_file():
        there = [str(other) for other in file.parent.glob("*.py") if other.name != "__init__.py"]
        raise UserError(f"no sweep file {path}{near_match(path, there)}")
    try:
        names = runpy.run_path(path)
        runs = names.get("RUNS")
        if "runs" in names:
            runs = names["runs"](tasks) if tasks else names["runs"]()
    except (Exception, SystemExit) as error:
        raise UserError(f"{_line_of(path, error)}: {type(error).__name__}: {error}") from error
    if not isinstance(runs, list):
        raise UserError(f"{path} has no list RUNS and no function runs(tasks) that returns one")
    wanted = names.get("DATA", {})
    try:
        data.check(wanted)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return runs, wanted


def _line_of(path: str, error: BaseException) -> str:
    """`mine.py, line 3`: where in the file at `path` an exception was raised, or what called it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return f"{path}, line {lines[-1]}" if lines else path


def _text(value: Any) -> str:
    """A value of a sweep file as on the command line, where sequences are tuples."""
    return value if isinstance(value, str) else repr(_plain(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy, also a scalar
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple | range) else value


def _resolve(path: str, number: int, item: Any, more: tuple[str, ...]) -> Run:
    where = f"{path}, run {number}"
    if not isinstance(item, dict) or not isinstance(item.get("config"), str):
        raise UserError(f"{where}: not of the form {_FORM}: {item!r}")
    own = tuple(f"{name}={_text(value)}" for name, value in item.items() if name != "config")
    overrides = last_of_each_key(own + more)
    try:
        config = load_config(item["config"], own + more)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return Run(
        spec=item["config"],
        overrides=tuple(o for o in overrides if not o.startswith("seeds=")),
        seeds=tuple(config.seeds),
        task=config.task,
        attention=config.model.attention.name,
        protocol=protocol_of(config),
        changed=overrides_of(config),
        config=flatten(config),
    )


def _told_apart(runs: list[Run]) -> list[Run]:
    """The runs with the keys in which those of a task and attention differ."""
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.task, run.attention), []).append(run)
    varied = {model: _varied(members) for model, members in alike.items()}
    return [dataclasses.replace(run, varied=varied[run.task, run.attention]) for run in runs]


def _varied(runs: list[Run]) -> tuple[str, ...]:
    names = dict.fromkeys(name for run in runs for name in run.changed)
    return tuple(
        name
        for name in names
        if not name.startswith(_OPTIONS) and len({str(run.config[name]) for run in runs}) > 1
    )


def _each_seed_once(path: str, runs: list[Run]) -> list[Run]:
    """The runs without what an earlier one lists already, which is said."""
    listed: set[Key] = set()
    kept = []
    for run in runs:
        seeds = tuple(seed for seed in run.seeds if run.key(seed, "") not in listed)
        listed.update(run.key(seed, "") for seed in run.seeds)
        if seeds != run.seeds:
            twice = run.with_seeds(seed for seed in run.seeds if seed not in seeds)
            print(f"{path} lists {twice.title()} twice: run once", file=sys.stderr)
        if seeds:
            kept.append(run.with_seeds(seeds))
    return kept
