"""Prepare the data of a task: generated, read from files, or downloaded.

    python -m lra.data.prepare TASK --data_dir=data [--source=generate | PATH | tfds | download]
    python -m lra.data.prepare TASK --help          the flags of that task
    python -m lra.data.prepare all [--source=FOLDER] [--dry_run]

TASK is listops, text, retrieval, image, pathfinder or pathx; `all` means the first five: it keeps
what is prepared, generates what can be generated and looks for the raw files of the others in
FOLDER (default: data/raw).

A repeated request reuses the prepared data, but files named with --source are always read again,
since they may have changed. Any other request replaces earlier data atomically once it is complete:
a run that fails or is killed leaves them unchanged. The exit status of `all` is 2 if one of the
five can neither be kept nor prepared; --dry_run only reports what that task needs.
"""

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import shlex
import shutil
import sys
import time
from types import ModuleType
from typing import Any, NamedTuple

from lra.command_line import (
    STATUS_BAD_INPUT,
    ArgumentParser,
    folder,
    integer_from_0,
    near_match,
    run,
    worker_count,
)
from lra.data import atomic_folder, prepared, raw
from lra.data.summary import counts, estimate_line, megabytes, summary
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.process import cores
from lra.published import TABLE_TASKS
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
# Values of --source that some task accepts; anything else is a path.
_SOURCES = ("generate", "tfds", "download")


def main(argv: list[str]) -> int:
    """Parse the flags and prepare the data; return the exit status."""
    task = _task_argument(argv)
    options = _parser(task).parse_args(argv)
    if options.task != task:
        raise UserError(f"name the task first: {options.task} --FLAG=VALUE ...")
    if task == ALL:
        return _prepare_all(options)
    if options.dry_run:
        _request(options)  # raises if flags conflict
        print(_estimate_line(options))
        return 0
    start = time.monotonic()
    outcome = _prepare(options)
    seconds = None if outcome.kept else time.monotonic() - start
    print(summary(task, _folder(options), outcome.manifest, seconds, outcome.replaced))
    return 0


def prepare_task(
    task: str, data_dir: str | os.PathLike, *, replace: bool = True, **flags: Any
) -> dict[str, Any]:
    """Prepare `task` as the command does, unless already prepared, and return its manifest.

    Args:
        task: One of `MODULES`.
        data_dir: Folder that contains one folder per task.
        replace: Whether to replace data prepared with other flags rather than keep them.
        **flags: Flags of the command without dashes (`source="generate", seed=0, train=8000`).

    Raises:
        UserError: The task or a flag is unknown, or the command would fail.
    """
    return _prepare(_options(task, data_dir, flags), replace=replace).manifest


def estimate_task(task: str, data_dir: str | os.PathLike, **flags: Any) -> prepared.Estimate:
    """Estimate the cost of `prepare_task`, with the same arguments and errors."""
    options = _options(task, data_dir, flags)
    return _module(task).estimate(options)


def generated_mark(task: str, flags: dict[str, Any]) -> str:
    """Return the mark of the data that `task` generates with these flags.

    Raises:
        UserError: A flag is unknown or invalid.
    """
    return _module(task).generated_mark(_options(task, "data", flags))


def check_request(task: str, flags: dict[str, Any]) -> None:
    """Raise UserError for flags whose name or value is invalid for generated data.

    Args:
        task: One of `MODULES`.
        flags: Flags of the command without dashes, with values of the right type.
    """
    parser = _parser(task)
    known = set(vars(parser.parse_args([task]))) - {*_NOT_IN_REQUEST, "source"}
    for name, value in flags.items():
        if name not in known:
            raise UserError(f"unknown flag {name!r}{near_match(str(name), known)}")
        try:
            parsed = getattr(parser.parse_args([task, f"--{name}={value}"]), name)
        except UserError as error:
            raise UserError(str(error).removesuffix("; see --help")) from None
        if (type(parsed), parsed) != (type(value), value):
            raise UserError(f"{name} is {parsed!r}, not {value!r} ({type(value).__name__})")


def _task_argument(argv: list[str]) -> str | None:
    """Return the task among the arguments; None if there is none, as with --help."""
    words = [word for word in argv if not word.startswith("-")]
    known = (*MODULES, ALL)
    task = next((word for word in words if word in known), None)
    if task is None and words:
        raise UserError(f"unknown task '{words[0]}'{near_match(words[0], known)}")
    return task


def _parser(task: str | None) -> ArgumentParser:
    parser = ArgumentParser(prog="python -m lra.data.prepare", description=__doc__)
    parser.add_argument("task", metavar="TASK", choices=(*MODULES, ALL))
    parser.add_argument(
        "--data_dir", type=folder, default="data", metavar="DIR", help="(%(default)s)"
    )
    module = _module(task) if task in MODULES else None
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


def _options(task: str, data_dir: str | os.PathLike, flags: dict[str, Any]) -> argparse.Namespace:
    if task not in MODULES:
        raise UserError(f"unknown task '{task}'{near_match(task, MODULES)}")
    options = _parser(task).parse_args([task, f"--data_dir={data_dir}"])
    for name, value in flags.items():
        if name not in vars(options):
            raise UserError(f"unknown flag --{name} of {task}{near_match(name, vars(options))}")
        setattr(options, name, value)
    return options


class _Outcome(NamedTuple):
    """Manifest of prepared data, whether they had been prepared before, and what they replace."""

    manifest: dict[str, Any]
    kept: bool = False
    replaced: dict[str, Any] | None = None  # its manifest


def _prepare(options: argparse.Namespace, *, replace: bool = True) -> _Outcome:
    request = _request(options)
    manifest = _existing_manifest(options, request, replace)
    if manifest is not None:
        atomic_folder.tidy(_folder(options).resolve())
        return _Outcome(manifest, kept=True)
    module = _module(options.task)
    _check_space(options, module.estimate(options))
    with TaskWriter(options.data_dir, options.task, request, _flags(options)) as writer:
        # Another process may have prepared the data while this one waited for the lock.
        manifest = _existing_manifest(options, request, replace)
        if manifest is not None:
            return _Outcome(manifest, kept=True)
        replaced = _manifest(options)
        return _Outcome(module.prepare(options, writer), replaced=replaced)


def _prepare_all(options: argparse.Namespace) -> int:
    if options.source is not None and not pathlib.Path(options.source).expanduser().is_dir():
        raise UserError(f"--source={options.source}: `{ALL}` takes a folder of raw files")
    status = 0
    for task in TABLE_TASKS:
        try:
            message = _prepare_one(task, options)
        except (UserError, OSError) as error:
            status = STATUS_BAD_INPUT
            print(f"{task}: not prepared: {error}", file=sys.stderr)
        else:
            print(message, flush=True)
    return status


def _prepare_one(task: str, common: argparse.Namespace) -> str:
    """Prepare or estimate one task of `all`; return the message to print."""
    with contextlib.suppress(UserError):
        manifest = prepared.load(common.data_dir, task).manifest
        return f"{task}: kept, {counts(manifest)}, {manifest['data']}"
    options = _parser(task).parse_args([task])
    names = ("data_dir", "workers", *(("seed",) if _is_generated(options) else ()))
    for name in names:
        setattr(options, name, getattr(common, name))
    options.raw_dir = common.source
    if common.dry_run:
        try:
            return _estimate_line(options)
        except raw.NoRawFiles as error:
            return f"{task:<10}  needs raw files: {error.cure}"
    start = time.monotonic()
    manifest = _prepare(options).manifest
    return summary(task, _folder(options), manifest, time.monotonic() - start)


def _request(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the flags of the request including defaults; None if files are to be read."""
    sources = _module(options.task).SOURCES
    if options.seed and not _is_generated(options):
        raise UserError(f"--seed={options.seed} is of generated data; leave it out")
    if getattr(options, "tfds_dir", None) and options.source != "tfds":
        raise UserError(f"--tfds_dir={options.tfds_dir} goes with --source=tfds")
    source = "generate" if _is_generated(options) else options.source
    if source not in sources:
        if source in _SOURCES and not os.path.exists(source):
            takes = " | ".join(["PATH", *sources])
            raise UserError(f"{options.task} has no --source={source}; it takes {takes}")
        return None
    flags = {name: value for name, value in vars(options).items() if name not in _NOT_IN_REQUEST}
    # Through JSON, for comparison with the request in a manifest.
    return json.loads(json.dumps(flags | {"source": source}, default=str))


def _is_generated(options: argparse.Namespace) -> bool:
    return options.source in (None, "generate") and "generate" in _module(options.task).SOURCES


def _flags(options: argparse.Namespace) -> list[str]:
    """Return the flags that differ from their defaults, with paths of raw files as PATH."""
    parser, sources = _parser(options.task), (None, *_module(options.task).SOURCES)
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


def _existing_manifest(
    options: argparse.Namespace, request: dict[str, Any] | None, replace: bool
) -> dict[str, Any] | None:
    """Return the manifest of existing data to keep; None if the data must be prepared.

    Data are kept if they satisfy the request or, without `replace`, whatever it is. Data from files
    (`request` is None) are always prepared again.
    """
    manifest = None if request is None else _manifest(options)
    if manifest is None or not replace:
        return manifest
    return manifest if manifest.get("request") == request else None


def _manifest(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the manifest of prepared data; None if there are none or they are damaged."""
    try:
        return prepared.load(options.data_dir, options.task).manifest
    except UserError:
        return None


def _check_space(options: argparse.Namespace, estimate: prepared.Estimate) -> None:
    folder = _folder(options).resolve()  # may be a symlink to another disk
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < estimate.bytes:
        raise UserError(
            f"{options.task} needs {megabytes(estimate.bytes)} in {options.data_dir}, where "
            f"{megabytes(free)} are free; free some space or choose another --data_dir"
        )


def _estimate_line(options: argparse.Namespace) -> str:
    return estimate_line(options.task, _folder(options), _module(options.task).estimate(options))


def _folder(options: argparse.Namespace) -> pathlib.Path:
    return pathlib.Path(options.data_dir) / options.task


def _module(task: str) -> ModuleType:
    return importlib.import_module(MODULES[task])


def _label(text: str) -> str:
    name = text.strip()
    if not name or not text.isprintable():
        raise argparse.ArgumentTypeError("the name is one line that is not empty")
    if name in LRA_DATA or name.startswith("differs ("):
        raise argparse.ArgumentTypeError(f"'{name}' is what a comparison with LRA's data finds")
    return name


if __name__ == "__main__":
    run(main)
