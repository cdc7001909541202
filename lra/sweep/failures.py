"""Which runs have failed since a sweep began, in it or in another one at the same work.

Each failure adds its time to `failures.txt` in the folder of its run. The rows do not tell: a run
that fails again for the same reason adds none.
"""

import contextlib
import pathlib

from lra.row import now
from lra.workdir import Workdir

_NAME = "failures.txt"


class Failures:
    """What has failed since this was made.

    Args:
        workdir: folder with one folder for each run.
    """

    def __init__(self, workdir: pathlib.Path):
        self._before = {path: _size(path) for path in workdir.glob(f"*/{_NAME}")}

    def new(self, folder: Workdir) -> bool:
        """Whether the run in `folder` has failed since; call it with the run's lock held."""
        return _size(_file(folder)) > self._before.get(_file(folder), 0)


def note(folder: Workdir) -> None:
    """Notes that the run in `folder`, which is ours, has failed."""
    # Where this fails, on a full disk, another sweep merely tries the run once more.
    with contextlib.suppress(OSError), open(_file(folder), "a") as file:
        file.write(f"{now()}\n")


def _file(folder: Workdir) -> pathlib.Path:
    return folder.root / _NAME


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0
