"""Writing small files so that a kill at any instant leaves the old or the new one, whole."""

import os
import pathlib


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes `text` beside `path`, syncs it and renames it into place."""
    path = pathlib.Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
