"""Which runs have failed since a sweep began, in it or in another one at the same work.

Each failure adds its time to `failures.txt` in the folder of its run. The results cannot tell: they
hold a reason once, however often a run fails for it.
"""

import contextlib
import pathlib
from collections.abc import Iterable

from lra.row import now
from lra.workdir import Workdir


class Failures:
    """What has failed since this was made.

    Args:
        folders: of the runs of the sweep.
    """

    def __init__(self, folders: Iterable[Workdir]):
        self._before = {folder.root: _size(_file(folder)) for folder in folders}

    def new(self, folder: Workdir) -> bool:
        """Whether the run in `folder` has failed since; only its owner asks, so it stays true."""
        return _size(_file(folder)) > self._before.get(folder.root, 0)


def note(folder: Workdir) -> None:
    """Notes that the run in `folder`, which is ours, has failed."""
    # On a full disk others try it once more, no worse.
    with contextlib.suppress(OSError), open(_file(folder), "a") as file:
        file.write(f"{now()}\n")


def _file(folder: Workdir) -> pathlib.Path:
    return folder.root / "failures.txt"


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0
