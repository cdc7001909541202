"""Load sweep files and resolve them to runs.

A sweep file is plain Python and need not import this project. It defines a list of runs, or a
function that returns one for given tasks. A run is a config file with overrides:

    RUNS = [
        {"config": "configs/listops.py:nystrom", "seeds": (0, 1), "train.weight_decay": decay}
        for decay in (0.0, 0.01, 0.1)
    ]

    def runs(tasks=("listops", "image")):
        return [{"config": f"configs/{task}.py:{name}"} for task in tasks for name in ...]

`DATA = {task: flags}` asks for data generated for the sweep, with flags of `lra.data.prepare`.
"""

import contextlib
import dataclasses
import pathlib
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from lra.errors import UserError
from lra.near_names import near_file
from lra.protocol import ATTENTION_KEYS, overrides_of, protocol_of
from lra.row import Key
from lra.settings import flatten, last_of_each_key, load_config, text_of
from lra.stderr import say
from lra.sweep import data
from lra.sweep.runs import Run, Sweep
from lra.tasks import get_task

_FORM = "{'config': 'configs/TASK.py:ATTENTION', 'KEY': value, ...}"


def load_sweep(path: str, tasks: tuple[str, ...] = (), overrides: Iterable[str] = ()) -> Sweep:
    """Load a sweep file and resolve its runs, each seed of each config once.

    Args:
        path: Path of the sweep file.
        tasks: Tasks to restrict the sweep to (a function `runs` is called with them); if empty,
            those the file chooses.
        overrides: `KEY=VALUE` overrides for all runs, applied after the file's own.

    Raises:
        UserError: The file does not exist, it has no list of runs or an empty one, a run has an
            unknown config, key or value, one of `tasks` has no runs, or `DATA` has an unknown
            task, flag or value.
    """
    for task in tasks:
        get_task(task)
    listed, wanted = _execute(path, tasks)
    runs = [_resolve(path, i, item, tuple(overrides)) for i, item in enumerate(listed, start=1)]
    if not runs:
        raise UserError(f"{path} lists no runs")
    chosen = [run for run in runs if not tasks or run.task in tasks]
    present = {run.task for run in chosen}
    if missing := [task for task in dict.fromkeys(tasks) if task not in present]:
        raise UserError(f"{path} lists no runs of {', '.join(missing)}")
    return Sweep(_each_seed_once(path, _with_varied_keys(chosen)), wanted)


def _execute(path: str, tasks: tuple[str, ...]) -> tuple[list, dict[str, dict[str, Any]]]:
    """Execute a sweep file; return its unresolved list of runs and its `DATA`."""
    file = pathlib.Path(path)
    if file.is_dir():
        raise UserError(f"{path} is a folder: name a sweep file, {file / 'SWEEP.py'}")
    if not file.is_file():
        raise UserError(f"no sweep file {path}{near_file(file, file.parent.glob('*.py'))}")
    try:
        # Output of the file would be taken for commands of --launcher=print.
        with contextlib.redirect_stdout(sys.stderr):
            names = runpy.run_path(path)
            runs = names.get("RUNS")
            if "runs" in names:
                runs = names["runs"](tasks) if tasks else names["runs"]()
            if isinstance(runs, Iterator):
                runs = list(runs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # including SystemExit and GeneratorExit
        raise UserError(f"{_location(path, error)}: {type(error).__name__}: {error}") from error
    if not isinstance(runs, list | tuple):
        raise UserError(
            f"{path} has no list RUNS and no function `runs` that returns one, as in "
            "def runs(tasks=('listops', 'image'))"
        )
    wanted = names.get("DATA", {})
    try:
        data.check(wanted)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return list(runs), wanted


def _location(path: str, error: BaseException) -> str:
    """Return the last line of `path` in the traceback of `error`, as `mine.py, line 3`."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return f"{path}, line {lines[-1]}" if lines else path


def _resolve(path: str, number: int, item: Any, common: tuple[str, ...]) -> Run:
    where = f"{path}, run {number}"
    if not isinstance(item, dict) or not isinstance(item.get("config"), str):
        raise UserError(f"{where}: not of the form {_FORM}: {item!r}")
    try:
        given = tuple(
            f"{name}={text_of(value)}" for name, value in item.items() if name != "config"
        )
    except (ValueError, RecursionError) as error:  # too many digits, a list that contains itself
        raise UserError(f"{where}: a value that cannot be written out ({error})") from None
    overrides = last_of_each_key(given + common)
    try:
        config = load_config(item["config"], given + common)
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


def _with_varied_keys(runs: list[Run]) -> list[Run]:
    """Set `varied` of each run: the keys in which runs of its task and attention differ."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.task, run.attention), []).append(run)
    varied = {name: _varied_keys(members) for name, members in groups.items()}
    return [dataclasses.replace(run, varied=varied[run.task, run.attention]) for run in runs]


def _varied_keys(runs: list[Run]) -> tuple[str, ...]:
    names = dict.fromkeys(name for run in runs for name in run.changed)
    return tuple(
        name
        for name in names
        if not name.startswith(ATTENTION_KEYS) and len({str(run.config[name]) for run in runs}) > 1
    )


def _each_seed_once(path: str, runs: list[Run]) -> list[Run]:
    """Drop seeds that an earlier run already lists, and report them."""
    listed: set[Key] = set()
    unique = []
    for run in runs:
        new_seeds = tuple(seed for seed in run.seeds if run.key(seed, "") not in listed)
        listed.update(run.key(seed, "") for seed in run.seeds)
        if new_seeds != run.seeds:
            repeated = run.with_seeds(seed for seed in run.seeds if seed not in new_seeds)
            say(f"{path} lists {repeated.title()} twice: run once")
        if new_seeds:
            unique.append(run.with_seeds(new_seeds))
    return unique
