"""Locate the raw data of a task."""

import argparse
import pathlib
import shlex
from collections.abc import Sequence

from lra.errors import UserError


class NoRawFiles(UserError):
    """Raised for a task whose raw files are not in the raw folder.

    Attributes:
        cure: Instructions: which files to put where, or which command to run.
    """

    def __init__(self, task: str, cure: str):
        super().__init__(f"no raw data for {task}: {cure}")
        self.cure = cure


def folder(options: argparse.Namespace) -> pathlib.Path:
    """Return the folder of downloads and raw data: `raw_dir`, by default `<data_dir>/raw`."""
    return pathlib.Path(options.raw_dir or pathlib.Path(options.data_dir) / "raw")


def locate(
    options: argparse.Namespace, names: Sequence[str], sources: Sequence[str]
) -> pathlib.Path:
    """Return the path of the raw data of a task.

    Args:
        options: Options of the command: `task`, `data_dir`, `raw_dir`, and `source`, which is None,
            the path of the raw data, or the path of a folder that contains one of `names`.
        names: Official names of the task's folders and archives; if `source` is None, they are
            looked up in the raw folder.
        sources: Other valid values of `--source`, for the error message.

    Raises:
        NoRawFiles: The raw folder has none of `names`.
        UserError: The path is neither a file nor a folder.
    """
    parent = folder(options) if options.source is None else pathlib.Path(options.source)
    parent = parent.expanduser()
    for name in names:
        if (parent / name).exists():
            return parent / name
    if options.source is None:
        place = shlex.quote(str(options.data_dir))
        command = f"python -m lra.data.prepare {options.task} --data_dir={place}"
        alternatives = f"{', '.join(sources)} or a path" if sources else "a path"
        raise NoRawFiles(
            options.task,
            f"put {' or '.join(names)} into {parent}, or: {command} --source=SOURCE, which is "
            f"{alternatives}",
        )
    if not (parent.is_file() or parent.is_dir()):  # a named pipe would block
        alternatives = f", nor one of {', '.join(sources)}" if sources else ""
        raise UserError(f"--source={options.source} is not a file or a folder{alternatives}")
    return parent
