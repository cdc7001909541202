"""Folders that appear under their name only when complete, one process at a time.

`.NAME.lock` beside the folder is the lock, `.NAME.previous` the earlier folder during the two
renames of `replace`. A process killed between these leaves it there; `put_back` undoes that. Paths
are given without links: a link would be renamed, not the folder.
"""

import contextlib
import fcntl
import pathlib
import shutil
from collections.abc import Iterator

from lra.files import sync_folder
from lra.stderr import say


@contextlib.contextmanager
def locked(target: pathlib.Path) -> Iterator[None]:
    """Holds the lock of `target`, waiting for whoever has it; released when the process exits."""
    with open(target.with_name(f".{target.name}.lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is writing {target}")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a network file system without locks: one process at a time is up to the user
        yield


def interrupted(target: pathlib.Path) -> bool:
    """Whether `replace` has moved the earlier folder aside and not yet put the new one there."""
    return not target.exists() and _previous(target).exists()


def put_back(target: pathlib.Path) -> None:
    """Gives the earlier folder its name again where `replace` was interrupted; needs the lock."""
    if interrupted(target):
        _previous(target).rename(target)


def replace(target: pathlib.Path, new: pathlib.Path) -> None:
    """Renames the folder `new` to `target` and removes what stood there; needs the lock."""
    remove_previous(target)
    if target.exists():
        target.rename(_previous(target))
    new.rename(target)
    remove_previous(target)
    sync_folder(target.parent)


def tidy(target: pathlib.Path) -> None:
    """Removes the earlier folder that a killed `replace` left beside the new one."""
    if target.exists() and _previous(target).exists():
        with locked(target):
            remove_previous(target)


def remove_previous(target: pathlib.Path) -> None:
    """Removes the earlier folder, which a killed process may have left; needs the lock."""
    shutil.rmtree(_previous(target), ignore_errors=True)


def _previous(target: pathlib.Path) -> pathlib.Path:
    return target.with_name(f".{target.name}.previous")
