"""One-line errors for a full disk, if possible before something large is written."""

import contextlib
import errno
import functools
import logging
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

from lra.errors import UserError

_LIMIT = errno.EFBIG  # of `ulimit -f`
_FULL = (errno.ENOSPC, errno.EDQUOT, _LIMIT)
_TEXTS = [os.strerror(code) for code in _FULL]
# Orbax's threads and futures also log, with tracebacks, errors that it raises: these loggers.
_LOGGERS = ("absl", "asyncio")
_OURS = "no space left"  # how messages of this project begin
_THEN = "then the same command goes on from what was saved before"  # and how they end


def is_full(error: BaseException) -> bool:
    """Whether an error reports a full disk, quota or limit, also one of a library's own type."""
    return getattr(error, "errno", None) in _FULL or any(text in str(error) for text in _TEXTS)


def cure(error: BaseException, full: str = "free some space") -> str:
    """Return the advice for a full disk: `full`, or, for a file-size limit, to raise that limit."""
    if getattr(error, "errno", None) == _LIMIT or os.strerror(_LIMIT) in str(error):
        return "raise the limit on the size of a file (ulimit -f)"
    return full


def is_told_in(line: str) -> bool:
    """Whether a line of output reports a full disk, quota or limit."""
    return any(text.lower() in line.lower() for text in (*_TEXTS, _OURS))


def check_room(what: str, folder: pathlib.Path, size: int) -> None:
    """Raise UserError if `folder` lacks room for `size` bytes; arguments as of `room_for`."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(
            f"no space left for {what}: {folder} has {free / 1e6:,.1f} MB, {size / 1e6:,.1f} MB "
            f"are needed; free some space, {_THEN}"
        )


@contextlib.contextmanager
def room_for(what: str, folder: pathlib.Path, size: int) -> Iterator[None]:
    """Raise UserError if `folder` lacks room for `size` bytes, or the disk is full in the block.

    Args:
        what: Name of what is written in the block, for the message.
        folder: Folder that it is written to.
        size: Estimated size in bytes.
    """
    check_room(what, folder, size)
    with _silent_writes() as silence:
        try:
            yield
        except Exception as error:
            if is_full(error):
                silence.pop_all()  # also while what Orbax has left behind ends
                raise UserError(
                    f"no space left for {what} in {folder}; {cure(error)}, {_THEN}"
                ) from error
            raise


def _unless_left_behind(report: Callable[[Any], None], unraisable: Any) -> None:
    """Report an error that could not be raised, except that of a write begun by Orbax."""
    if not str(unraisable.exc_value).startswith("Event loop is closed"):
        report(unraisable)


@contextlib.contextmanager
def _silent_writes() -> Iterator[contextlib.ExitStack]:
    """Let Orbax print no errors up to the end of the block, or for good if the stack is emptied."""
    with contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        stack.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = functools.partial(_unless_left_behind, sys.unraisablehook)
        yield stack
