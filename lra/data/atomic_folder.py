"""Atomic replacement of folders, by one process at a time.

Next to folder NAME, `.NAME.lock` is its lock, and `.NAME.previous` is the earlier folder between
the two renames of `replace`. `put_back` restores it if the process was killed in between. Paths
must not be symlinks: `replace` would rename the link, not the folder.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator

from lra.errors import UserError
from lra.files import sync_folder
from lra.stderr import say


@contextlib.contextmanager
def locked(target: pathlib.Path) -> Iterator[None]:
    """Hold the lock of `target`, waiting for its current owner; released on process exit."""
    with open(target.with_name(f".{target.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is writing {target}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a network file system without locks: exclusive access is up to the user
        yield


def interrupted(target: pathlib.Path) -> bool:
    """Return whether `replace` is between its two renames, still at work or killed there."""
    return not target.exists() and _previous(target).exists()


def put_back(target: pathlib.Path) -> None:
    """Restore the earlier folder if `replace` was interrupted; requires the lock."""
    if interrupted(target):
        _previous(target).rename(target)


def replace(target: pathlib.Path, new: pathlib.Path) -> None:
    """Replace the folder `target` by the folder `new`; requires the lock."""
    remove_previous(target)
    if target.exists():
        target.rename(_previous(target))
    new.rename(target)
    remove_previous(target)
    sync_folder(target.parent)


def tidy(target: pathlib.Path) -> None:
    """Remove the earlier folder if a killed `replace` left it next to the new one."""
    if target.exists() and _previous(target).exists():
        with locked(target):
            remove_previous(target)


def remove_previous(target: pathlib.Path) -> None:
    """Remove the earlier folder that a killed process may have left; requires the lock."""
    shutil.rmtree(_previous(target), ignore_errors=True)


def check_replaceable(target: pathlib.Path) -> None:
    """Raise UserError if `replace` would fail or remove a write-protected folder."""
    if target.exists() and not os.access(target, os.W_OK):
        raise UserError(
            f"{target} is write-protected and would be replaced; allow writing or choose another "
            "folder"
        )
    if _previous(target).exists():
        raise UserError(f"{_previous(target)}, of earlier data, cannot be removed; remove it")


def _previous(target: pathlib.Path) -> pathlib.Path:
    return target.with_name(f".{target.name}.previous")
