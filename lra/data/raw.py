"""Where the raw data of a task lies before it is prepared."""

import argparse
import pathlib
from collections.abc import Sequence

from lra.errors import UserError


class NoRawFiles(UserError):
    """Of a task whose raw files are not in the raw folder.

    Attributes:
        cure: what to put where, or which command to give.
    """

    def __init__(self, task: str, cure: str):
        super().__init__(f"no raw data for {task}: {cure}")
        self.cure = cure


def folder(options: argparse.Namespace) -> pathlib.Path:
    """Where downloads go and raw data is looked for: `raw_dir`, or `<data_dir>/raw` without one."""
    return pathlib.Path(options.raw_dir or pathlib.Path(options.data_dir) / "raw")


def locate(
    options: argparse.Namespace, names: Sequence[str], sources: Sequence[str]
) -> pathlib.Path:
    """The raw data of a task.

    Args:
        options: of the command: `task`, `data_dir`, `raw_dir`, and `source`, which is None, the
            path of the raw data, or that of a folder which contains them under one of `names`.
        names: the official names of the task's folders and archives; without `source` they are
            looked for in the raw folder.
        sources: what else `--source` may be; named in the error.

    Raises:
        NoRawFiles: nothing in the raw folder.
        UserError: the path does not exist.
    """
    parent = folder(options) if options.source is None else pathlib.Path(options.source)
    parent = parent.expanduser()
    for name in names:
        if (parent / name).exists():
            return parent / name
    if options.source is None:
        command = f"python -m lra.data.prepare {options.task} --data_dir={options.data_dir}"
        others = f"{', '.join(sources)} or a path" if sources else "a path"
        raise NoRawFiles(
            options.task,
            f"put {' or '.join(names)} into {parent}, or: {command} --source=SOURCE, which is "
            f"{others}",
        )
    if not parent.exists():
        others = f", nor one of {', '.join(sources)}" if sources else ""
        raise UserError(f"--source={options.source} is not a file or a folder{others}")
    return parent
