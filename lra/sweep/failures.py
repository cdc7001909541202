"""Which runs have failed since a sweep began, in this sweep or in a concurrent one.

Each failure appends its time to `failures.txt` in the folder of its run. The rows do not suffice: a
run that fails again for the same reason adds none.
"""

import contextlib
import pathlib

from lra.row import now
from lra.workdir import Workdir

_NAME = "failures.txt"


class Failures:
    """Runs that have failed since this object was created.

    Args:
        workdir: Folder that contains one folder per run.
    """

    def __init__(self, workdir: pathlib.Path):
        self._before = {path: _size(path) for path in workdir.glob(f"*/{_NAME}")}

    def new(self, folder: Workdir) -> bool:
        """Return whether the run in `folder` has failed since; requires the run's lock."""
        return _size(_file(folder)) > self._before.get(_file(folder), 0)


def note(folder: Workdir) -> None:
    """Record that the run in `folder` has failed; requires the run's lock."""
    # If this fails, as on a full disk, a concurrent sweep merely tries the run once more.
    with contextlib.suppress(OSError), open(_file(folder), "a") as file:
        file.write(f"{now()}\n")


def _file(folder: Workdir) -> pathlib.Path:
    return folder.root / _NAME


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0
