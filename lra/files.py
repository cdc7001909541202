"""Writing small files so that a kill at any instant leaves the old or the new one, whole."""

import os
import pathlib


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes text or bytes beside `path`, syncs them and renames them into place."""
    path = pathlib.Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: str | os.PathLike) -> None:
    """Makes what was renamed in a folder outlive a loss of power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
