"""What is asked of `lra.data.prepare`: its tasks, their flags, and what is written of them."""

import argparse
import importlib
import json
import os
import shlex
from types import ModuleType
from typing import Any

from lra.command_line import ArgumentParser, folder, integer_from_0, worker_count
from lra.errors import UserError
from lra.near_names import near_match
from lra.process import cores
from lra.row import LRA_DATA

MODULES = {
    "listops": "lra.data.listops",
    "text": "lra.data.text",
    "retrieval": "lra.data.retrieval",
    "image": "lra.data.image",
    "pathfinder": "lra.data.pathfinder",
    "pathx": "lra.data.pathfinder",
}
ALL = "all"  # tasks of the table; Path-X has 3.3 GB and is prepared only when named

# Flags that affect neither the prepared data nor their name.
_NOT_IN_REQUEST = ("task", "data_dir", "raw_dir", "workers", "dry_run")
_NOT_VALUES = ("task", "raw_dir", "dry_run")  # options that no flag sets to a value
# Values of --source that some task accepts; anything else is a path.
_SOURCES = ("generate", "tfds", "download")


def module_of(task: str) -> ModuleType:
    """Return the module that prepares a task of `MODULES`; UserError if there is no such file."""
    try:
        return importlib.import_module(MODULES[task])
    except ModuleNotFoundError as error:
        if error.name != MODULES[task]:
            raise
        raise UserError(
            f"MODULES in lra/data/request.py names {error.name} for {task}, but there is no file "
            f"{error.name.replace('.', '/')}.py"
        ) from None


def task_argument(argv: list[str]) -> str | None:
    """Return the task among the arguments; None if there is none, as with --help."""
    words = [word for word in argv if not word.startswith("-")]
    known = (*MODULES, ALL)
    task = next((word for word in words if word in known), None)
    if task is None and words:
        raise UserError(f"unknown task '{words[0]}'{near_match(words[0], known)}")
    return task


def parser_of(task: str | None, description: str | None = None) -> ArgumentParser:
    """Return the parser of the command for a task of `MODULES`, or without a task's own flags."""
    parser = ArgumentParser(prog="python -m lra.data.prepare", description=description)
    tasks = (*MODULES, ALL)
    parser.add_argument("task", metavar="TASK", choices=tasks, help=", ".join(tasks))
    parser.add_argument(
        "--data_dir", type=folder, default="data", metavar="DIR", help="(%(default)s)"
    )
    module = module_of(task) if task in MODULES else None
    sources = " | ".join(["PATH", *(module.SOURCES if module else ())])
    parser.add_argument("--source", metavar="SOURCE", help=sources if module else "raw files")
    parser.add_argument("--seed", type=integer_from_0, default=0, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--workers", type=worker_count, default=cores(), metavar="N", help="(%(default)s)"
    )
    parser.add_argument("--dry_run", action="store_true", help="say size and time, write nothing")
    parser.set_defaults(raw_dir=None, data_label=None)
    if module:
        parser.add_argument(
            "--data_label",
            type=_label,
            metavar="NAME",
            help="what tables call it; no run goes on with data under another name",
        )
        module.add_arguments(parser.add_argument_group(task))
    return parser


def options_of(task: str, data_dir: str | os.PathLike, flags: dict[str, Any]) -> argparse.Namespace:
    """Return the options of the command with these flags, named without dashes.

    Raises:
        UserError: The task or a flag is unknown, or a value invalid.
    """
    if task not in MODULES:
        raise UserError(f"unknown task '{task}'{near_match(task, MODULES)}")
    parser = parser_of(task)
    options = parser.parse_args([task, f"--data_dir={data_dir}"])
    for name, value in flags.items():
        if name not in vars(options):
            raise UserError(f"unknown flag --{name} of {task}{near_match(name, vars(options))}")
        as_given = value is None or name in _NOT_VALUES
        setattr(options, name, value if as_given else _parsed(parser, task, name, value))
    return options


def _parsed(parser: ArgumentParser, task: str, name: str, value: Any) -> Any:
    """Return what the command makes of a flag with this value."""
    try:
        return getattr(parser.parse_args([task, f"--{name}={value}"]), name)
    except UserError as error:
        raise UserError(str(error).removesuffix("; see --help")) from None


def check_request(task: str, flags: dict[str, Any]) -> None:
    """Raise UserError for flags whose name or value is invalid for generated data.

    Args:
        task: One of `MODULES`.
        flags: Flags of the command without dashes, with values of the right type.
    """
    parser = parser_of(task)
    known = set(vars(parser.parse_args([task]))) - {*_NOT_IN_REQUEST, "source"}
    for name, value in flags.items():
        if name not in known:
            raise UserError(f"unknown flag {name!r}{near_match(str(name), known)}")
        parsed = _parsed(parser, task, name, value)
        if (type(parsed), parsed) != (type(value), value):
            raise UserError(f"{name} is {parsed!r}, not {value!r} ({type(value).__name__})")


def is_generated(options: argparse.Namespace) -> bool:
    """Return whether data are asked for that this project generates."""
    return options.source in (None, "generate") and "generate" in module_of(options.task).SOURCES


def request_of(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the flags of the request including defaults; None if files are to be read.

    Raises:
        UserError: Flags conflict, or the task has no such source.
    """
    sources = module_of(options.task).SOURCES
    if options.seed and not is_generated(options):
        raise UserError(f"--seed={options.seed} is of generated data; leave it out")
    if getattr(options, "tfds_dir", None) and options.source != "tfds":
        raise UserError(f"--tfds_dir={options.tfds_dir} goes with --source=tfds")
    source = "generate" if is_generated(options) else options.source
    if source not in sources:
        if source in _SOURCES and not os.path.exists(source):
            takes = " | ".join(["PATH", *sources])
            raise UserError(f"{options.task} has no --source={source}; it takes {takes}")
        return None
    flags = {name: value for name, value in vars(options).items() if name not in _NOT_IN_REQUEST}
    # Through JSON, for comparison with the request in a manifest.
    return json.loads(json.dumps(flags | {"source": source}, default=str))


def flags_of(options: argparse.Namespace) -> list[str]:
    """Return the flags that differ from their defaults, with paths of raw files as PATH."""
    parser, sources = parser_of(options.task), (None, *module_of(options.task).SOURCES)
    flags = {
        name: value
        for name, value in vars(options).items()
        if name not in _NOT_IN_REQUEST and value != parser.get_default(name)
    }
    if options.source not in sources:
        flags["source"] = "PATH"
    elif options.source == "generate":  # the default
        del flags["source"]
    return [shlex.quote(f"--{name}={value}") for name, value in flags.items()]


def _label(text: str) -> str:
    name = text.strip()
    if not name or not text.isprintable():
        raise argparse.ArgumentTypeError("the name is one line that is not empty")
    if name in LRA_DATA or name.startswith("differs ("):
        raise argparse.ArgumentTypeError(f"'{name}' is what a comparison with LRA's data finds")
    return name
