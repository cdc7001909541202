"""Sweep files: read, and resolved to runs.

A sweep file is Python and needs nothing of ours. It holds a list of runs, or a function that
returns one for some tasks; a run is a config and what it overrides:

    RUNS = [
        {"config": "configs/listops.py:nystrom", "seeds": (0, 1), "train.weight_decay": decay}
        for decay in (0.0, 0.01, 0.1)
    ]

    def runs(tasks=("listops", "image")):
        return [{"config": f"configs/{task}.py:{name}"} for task in tasks for name in ...]

`DATA = {task: flags}` asks for generated data of its own: the flags of `lra.data.prepare`.
"""

import contextlib
import dataclasses
import os
import pathlib
import runpy
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from lra.command_line import near_file
from lra.errors import UserError
from lra.protocol import overrides_of, protocol_of
from lra.records import Key
from lra.settings import flatten, last_of_each_key, load_config
from lra.stderr import say
from lra.sweep import data
from lra.sweep.plan import OPTIONS, Run, Sweep
from lra.tasks import get_task

_FORM = "{'config': 'configs/TASK.py:ATTENTION', 'KEY': value, ...}"


def load_sweep(path: str, tasks: tuple[str, ...] = (), overrides: Iterable[str] = ()) -> Sweep:
    """Reads a sweep file and resolves its runs, each seed of each configuration once.

    Args:
        path: the file.
        tasks: only these (a function `runs` is called with them); none: the file's own choice.
        overrides: `KEY=VALUE` for all runs, after the file's own.

    Raises:
        UserError: no such file, no list of runs in it, nothing in the list, a run with an
            unknown config, key or value, one of `tasks` without runs, `DATA` with an unknown task,
            flag or value.
    """
    for task in tasks:
        get_task(task)
    listed, wanted = _execute(path, tasks)
    runs = [_resolve(path, i, item, tuple(overrides)) for i, item in enumerate(listed, start=1)]
    if not runs:
        raise UserError(f"{path} lists no runs")
    chosen = [run for run in runs if not tasks or run.task in tasks]
    there = {run.task for run in chosen}
    if absent := [task for task in dict.fromkeys(tasks) if task not in there]:
        raise UserError(f"{path} lists no runs of {', '.join(absent)}")
    return Sweep(_each_seed_once(path, _told_apart(chosen)), wanted)


def _execute(path: str, tasks: tuple[str, ...]) -> tuple[list, dict[str, dict[str, Any]]]:
    """The list of runs as it stands in the file, and `DATA`."""
    file = pathlib.Path(path)
    if file.is_dir():
        raise UserError(f"{path} is a folder: name a sweep file, {file / 'SWEEP.py'}")
    if not file.is_file():
        raise UserError(f"no sweep file {path}{near_file(file, file.parent.glob('*.py'))}")
    try:
        # What the file prints would be commands of --launcher=print.
        with contextlib.redirect_stdout(sys.stderr):
            names = runpy.run_path(path)
            runs = names.get("RUNS")
            if "runs" in names:
                runs = names["runs"](tasks) if tasks else names["runs"]()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a file may raise: SystemExit, GeneratorExit
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
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return value if isinstance(value, str) else repr(_plain(value))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy, also a scalar
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple | range) else value


def _resolve(path: str, number: int, item: Any, more: tuple[str, ...]) -> Run:
    where = f"{path}, run {number}"
    if not isinstance(item, dict) or not isinstance(item.get("config"), str):
        raise UserError(f"{where}: not of the form {_FORM}: {item!r}")
    try:
        own = tuple(f"{name}={_text(value)}" for name, value in item.items() if name != "config")
    except (ValueError, RecursionError) as error:  # too many digits, a list within itself
        raise UserError(f"{where}: a value that cannot be written out ({error})") from None
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
        if not name.startswith(OPTIONS) and len({str(run.config[name]) for run in runs}) > 1
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
            say(f"{path} lists {twice.title()} twice: run once")
        if seeds:
            kept.append(run.with_seeds(seeds))
    return kept
