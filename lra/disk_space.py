"""One-line errors for a full disk, if possible before something large is written."""

import contextlib
import errno
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator

from lra.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: a limit (ulimit -f)
_TEXTS = [os.strerror(code) for code in _FULL]
_OURS = "no space left"  # how messages of this project begin


def is_full(error: BaseException) -> bool:
    """Whether an error reports a full disk, quota or limit, also one of a library's own type."""
    return getattr(error, "errno", None) in _FULL or any(text in str(error) for text in _TEXTS)


def is_told_in(line: str) -> bool:
    """Whether a line of a process's output tells of that, in the system's words or in ours."""
    return any(text.lower() in line.lower() for text in (*_TEXTS, _OURS))


@contextlib.contextmanager
def room_for(what: str, folder: pathlib.Path, size: int) -> Iterator[None]:
    """Raise UserError if `folder` lacks room for `size` bytes, or the disk is full in the block.

    Args:
        what: Name of what is written in the block, for the message.
        folder: Folder that it is written to.
        size: Estimated size in bytes.
    """
    advice = "free some space, then the same command goes on from what was saved before"
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(
            f"no space left for {what}: {folder} has {free / 1e6:,.1f} MB, {size / 1e6:,.1f} MB "
            f"are needed; {advice}"
        )
    try:
        yield
    except Exception as error:
        if is_full(error):
            # Futures that Orbax has left behind would print their tracebacks around our line.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise UserError(f"no space left for {what} in {folder}; {advice}") from error
        raise
