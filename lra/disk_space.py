"""A full disk, told in one line: before something large is written if possible, else after."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

from lra.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: a limit (ulimit -f)


def is_full(error: BaseException) -> bool:
    """Whether an error is about a full disk, quota or limit; libraries have kinds of their own."""
    texts = [os.strerror(code) for code in _FULL]
    return getattr(error, "errno", None) in _FULL or any(text in str(error) for text in texts)


@contextlib.contextmanager
def room_for(what: str, folder: pathlib.Path, size: int) -> Iterator[None]:
    """Raises UserError if `folder` has no room for `size` bytes, or turns out to have none.

    Args:
        what: is written inside the block, for the message.
        folder: where.
        size: estimated.
    """
    cure = "free some space, then the same command goes on from what was saved before"
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(
            f"no space left for {what}: {folder} has {free / 1e6:,.1f} MB, {size / 1e6:,.1f} MB "
            f"are needed; {cure}"
        )
    try:
        yield
    except Exception as error:
        if is_full(error):
            raise UserError(f"no space left for {what} in {folder}; {cure}") from error
        raise
