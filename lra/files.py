"""Atomic, durable writes of small files, and hashes of files.

A process killed at any instant leaves either the old or the new file, complete.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
from collections.abc import Iterator
from typing import IO


def write_atomically(path: str | os.PathLike, content: str | bytes) -> None:
    """Write text or bytes to a file beside `path`, sync it, and rename it into place.

    If `path` is a symbolic link, its target is replaced, not the link.
    """
    given_path, path = path, pathlib.Path(os.path.realpath(path))
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(given_path, instead_of=scratch):
            with open(scratch, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                sync(file)
            os.replace(scratch, path)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def naming(path: str | os.PathLike, *, instead_of: str | os.PathLike = "") -> Iterator[None]:
    """Make `path` the file name of an OSError raised in the block.

    Only of one that names no file, such as that of a write, or that names `instead_of`.
    """
    try:
        yield
    except OSError as error:
        # With a name, an error without a number would lose its text.
        if error.errno is not None and error.filename in (None, os.fspath(instead_of)):
            error.filename = os.fspath(path)
        raise


def sync(file: IO) -> None:
    """Flush an open file to the disk, so that its content survives a power failure."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: str | os.PathLike) -> None:
    """Flush a folder to the disk, so that renames in it survive a power failure.

    Some network file systems cannot flush a folder; there nothing is done.
    """
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(folder)


def file_sha256(path: str | os.PathLike) -> str:
    """SHA-256 of the content of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
