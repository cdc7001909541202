"""Files of rows, one line of JSON each, only ever appended to.

Such a file survives a kill at any instant: appending happens under a lock and is synced, a row
that is there is not written again, and a last line that was cut short is set aside at the next
reading or appending. Each line ends with the sha256 of the rest of it, so that a flipped bit does
not become a result; a line without one (written by hand) is read as well.
"""

import contextlib
import functools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import filelock

from lra.errors import UserError
from lra.files import sync, write_atomically
from lra.row import Key, Row, from_json, key, latest, make_key, to_json
from lra.seals import seal, unseal
from lra.stderr import say

__all__ = [
    "Key",
    "Row",
    "append",
    "append_new",
    "check_writable",
    "key",
    "latest",
    "make_key",
    "read",
    "write_once",
]


class _CannotWriteError(UserError):
    """No space, no right, or a file system that is only read."""


def append(path: str | os.PathLike, rows: Iterable[Row]) -> int:
    """Appends the rows that are new, durably, and returns how many these are.

    A key has at most one result; a failure is new if its key has no result and has not failed
    for the same reason before.

    Raises:
        UserError: a damaged file, a row that is not valid, or a path that cannot be written.
    """

    def new_lines(present: list[Row]) -> list[str]:
        # A result has no error, so (key, None) says that a key has its result.
        known = {(key(row), row.error) for row in present}
        lines = []
        for row in rows:
            line = to_json(row)
            if not known.intersection({(key(row), None), (key(row), row.error)}):
                known.add((key(row), row.error))
                lines.append(line)
        return lines

    return append_new(path, new_lines)


def append_new(
    path: str | os.PathLike,
    choose: Callable[[list], list[str]],
    parse: Callable[[bytes], Any] = from_json,
) -> int:
    """Appends the lines that `choose(rows present)` returns, durably and under the lock.

    Args:
        path: of the file.
        choose: from the rows present to lines of JSON without line breaks.
        parse: one line to its row; ValueError for what is not JSON, UserError for what is no row.

    Raises:
        UserError: a damaged file, or a path that cannot be written.
    """
    path = pathlib.Path(path)
    with _locked(path):
        lines = choose(_read_and_repair(path, parse))
        if lines:
            with open(path, "ab") as file:
                file.write("".join(seal(line) + "\n" for line in lines).encode())
                sync(file)
    return len(lines)


def write_once(path: str | os.PathLike, rows: Iterable[Row]) -> bool:
    """Writes the rows of a finished run as a whole file; returns False if it is there already."""
    path = pathlib.Path(path)
    if path.exists():
        return False
    write_atomically(path, "".join(seal(to_json(row)) + "\n" for row in rows))
    return True


def read(
    path: str | os.PathLike, parse: Callable[[bytes], Any] = from_json, *, repair: bool = True
) -> list:
    """All rows of a file in order, superseded failures included (see `latest`).

    A last line that was cut short (its writer was killed) is said on stderr and moved to
    `<path>.broken`; it stays where it is if the file cannot be written, or without `repair`.

    Raises:
        UserError: no such file; any other line that is not a row (file and line are named).
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise UserError(f"no rows in {path}: it is a folder, not a file")
    if not path.is_file():
        told = "it is no regular file" if path.exists() else "no such file"
        raise UserError(f"no rows in {path}: {told}")
    rows, _, broken = _parse(path, path.read_bytes(), parse)
    if not broken:
        return rows
    if repair and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        # Perhaps the line is being written just now: looks again when nobody else can write.
        with contextlib.suppress(_CannotWriteError), _locked(path):
            return _read_and_repair(path, parse)
    _say_once(f"{path}: its last line is cut short and not used")
    return rows


@functools.cache
def _say_once(line: str) -> None:
    """Says a line once, however often its file is read."""
    say(line)


def check_writable(path: str | os.PathLike) -> None:
    """Raises UserError if rows cannot be appended to `path`; makes its folder if need be."""
    target = pathlib.Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Checked before locking: the library of the lock may wait forever if no file can be made.
        if target.exists() and not (target.is_file() or target.is_dir()):
            raise UserError(f"cannot write rows to {path}: it is no file; choose another name")
        if target.exists():
            open(target, "ab").close()
        else:
            tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise _cannot_write(path, error) from None
    with _locked(pathlib.Path(path)):
        pass


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is that of the file itself, whatever links lead to it.
        with filelock.FileLock(f"{os.path.realpath(path)}.lock"):
            yield
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: pathlib.Path, error: OSError) -> UserError:
    reason = error.strerror or error
    if str(error.filename).endswith(".lock"):
        reason = f"{reason}: {error.filename}"
    return _CannotWriteError(
        f"cannot write rows to {path}: {reason}; choose a file that can be written"
    )


def _read_and_repair(path: pathlib.Path, parse: Callable[[bytes], Any]) -> list:
    """The rows of a file that we have locked; afterwards it ends with a whole line."""
    if not path.exists():
        return []
    content = path.read_bytes()
    rows, end, broken = _parse(path, content, parse)
    if broken:
        aside = f"{path}.broken"
        with open(aside, "ab") as file:
            file.write(broken + b"\n")
            sync(file)
        with open(path, "r+b") as file:
            file.truncate(end)
            sync(file)
        say(f"{path}: its last line is cut short, moved to {aside}")
    elif content and not content.endswith(b"\n"):
        with open(path, "ab") as file:
            file.write(b"\n")
            sync(file)
    return rows


def _parse(
    path: pathlib.Path, content: bytes, parse: Callable[[bytes], Any]
) -> tuple[list, int, bytes]:
    """The rows, the position behind them, and a last line that was cut short (or nothing)."""
    rows, position = [], 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            if line.strip():
                rows.append(parse(unseal(line)))
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
            last = not content[position + len(line) :].strip()
            if last and _may_be_cut_short(line, rows) and "Extra data" not in str(error):
                return rows, position, line.strip()
            raise UserError(f"{path}, line {number}: not JSON; repair or remove it") from None
        position += len(line)
    return rows, position, b""


def _may_be_cut_short(line: bytes, before: list) -> bool:
    """Whether the line is the beginning of a row; a file of anything else must not be changed."""
    return bool(before) or line.lstrip().startswith(b"{")
