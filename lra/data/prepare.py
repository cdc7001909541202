"""Prepare the data of a task: generated, read from files, or downloaded.

    python -m lra.data.prepare TASK --data_dir=data [--source=generate | PATH | tfds | download]
    python -m lra.data.prepare TASK --help          the flags of that task
    python -m lra.data.prepare all [--source=FOLDER] [--dry_run]

TASK is one of those below; `all` means the five of the table, without Path-X: it keeps what is
prepared, generates what can be generated and looks for the raw files of the others in FOLDER
(default: data/raw).

A repeated request reuses the prepared data, but files named with --source are always read again,
since they may have changed. Any other request replaces earlier data atomically once it is complete:
a run that fails or is killed leaves them unchanged. The exit status of `all` is 2 if one of the
five can neither be kept nor prepared; --dry_run only reports what that task needs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import sys
import time
from typing import Any, NamedTuple

from lra.command_line import run
from lra.data import atomic_folder, prepared, raw
from lra.data.request import (
    ALL,
    flags_of,
    is_generated,
    module_of,
    options_of,
    parser_of,
    request_of,
    task_argument,
)
from lra.data.summary import counts, estimate_line, megabytes, summary
from lra.data.task_writer import TaskWriter
from lra.errors import STATUS_BAD_INPUT, UserError, of_system
from lra.published import TABLE_TASKS


def main(argv: list[str]) -> int:
    """Parse the flags and prepare the data; return the exit status."""
    task = task_argument(argv)
    options = parser_of(task, __doc__).parse_args(argv)
    if options.task != task:
        raise UserError(f"name the task first: {options.task} --FLAG=VALUE ...")
    if task == ALL:
        return _prepare_all(options)
    if options.dry_run:
        request_of(options)  # raises if flags conflict
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
        task: One of `lra.data.request.MODULES`.
        data_dir: Folder that contains one folder per task.
        replace: Whether to replace data prepared with other flags rather than keep them.
        **flags: Flags of the command without dashes (`source="generate", seed=0, train=8000`).

    Raises:
        UserError: The task or a flag is unknown, or the command would fail.
    """
    return _prepare(options_of(task, data_dir, flags), replace=replace).manifest


def estimate_task(task: str, data_dir: str | os.PathLike, **flags: Any) -> prepared.Estimate:
    """Estimate the cost of `prepare_task`, with the same arguments and errors."""
    options = options_of(task, data_dir, flags)
    return module_of(task).estimate(options)


def generated_mark(task: str, flags: dict[str, Any]) -> str:
    """Return the mark of the data that `task` generates with these flags.

    It is the flag `data_label`, or else `generated`, unless the module of the task has a function
    `generated_mark`.

    Raises:
        UserError: A flag is unknown or invalid.
    """
    options, module = options_of(task, "data", flags), module_of(task)
    mark = module.generated_mark(options) if hasattr(module, "generated_mark") else "generated"
    return options.data_label or mark


class _Outcome(NamedTuple):
    """Manifest of prepared data, whether they had been prepared before, and what they replace."""

    manifest: dict[str, Any]
    kept: bool = False
    replaced: dict[str, Any] | None = None  # its manifest


def _prepare(options: argparse.Namespace, *, replace: bool = True) -> _Outcome:
    request = request_of(options)
    manifest = _existing_manifest(options, request, replace)
    if manifest is not None:
        atomic_folder.tidy(_folder(options).resolve())
        return _Outcome(manifest, kept=True)
    module = module_of(options.task)
    _check_space(options, module.estimate(options))
    with TaskWriter(
        options.data_dir, options.task, request, flags_of(options), options.data_label
    ) as writer:
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
            reason = of_system(error) if isinstance(error, OSError) else error
            print(f"{task}: not prepared: {reason}", file=sys.stderr)
        else:
            print(message, flush=True)
    return status


def _prepare_one(task: str, common: argparse.Namespace) -> str:
    """Prepare or estimate one task of `all`; return the message to print."""
    with contextlib.suppress(UserError):
        manifest = prepared.load(common.data_dir, task).manifest
        return f"{task}: kept, {counts(manifest)}, {manifest['data']}"
    options = parser_of(task).parse_args([task])
    names = ("data_dir", "workers", *(("seed",) if is_generated(options) else ()))
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


def _existing_manifest(
    options: argparse.Namespace, request: dict[str, Any] | None, replace: bool
) -> dict[str, Any] | None:
    """Return the manifest of existing data to keep; None if the data must be prepared.

    Data are kept if they satisfy the request, and the parameters of generated data are those of
    the generator now, or, without `replace`, whatever they are. Data from files (`request` is None)
    are always prepared again.
    """
    manifest = None if request is None else _manifest(options)
    if manifest is None or not replace:
        return manifest
    if manifest.get("request") != request:
        return None
    module = module_of(options.task)
    if not (is_generated(options) and hasattr(module, "generated_parameters")):
        return manifest
    now = json.loads(json.dumps(module.generated_parameters(options)))
    return manifest if manifest["parameters"] == now else None


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
    return estimate_line(options.task, _folder(options), module_of(options.task).estimate(options))


def _folder(options: argparse.Namespace) -> pathlib.Path:
    return pathlib.Path(options.data_dir) / options.task


if __name__ == "__main__":
    run(main)
