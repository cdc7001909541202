"""Writing small files so that a kill at any instant leaves the old or the new one, whole.

And what else whole files need: their bytes on the disk, and their hash.
"""

import contextlib
import hashlib
import os
import pathlib


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes text or bytes beside `path`, syncs them and renames them into place.

    What a link points to is replaced, not the link.
    """
    named, path = path, pathlib.Path(os.path.realpath(path))
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            sync(file)
        os.replace(scratch, path)
    except OSError as error:
        if error.filename == os.fspath(scratch):
            error.filename = os.fspath(named)
        raise
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync(file) -> None:
    """Makes what was written to an open file outlive a loss of power."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: str | os.PathLike) -> None:
    """Makes what was renamed in a folder outlive a loss of power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def file_sha256(path: str | os.PathLike) -> str:
    """The sha256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
