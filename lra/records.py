"""Append-only files of rows, one line of JSON each.

Such a file survives a kill at any instant: rows are appended under a lock and synced, a row that
exists is not written again, and a truncated last line is set aside when the file is next read or
appended to. Each line ends with the sha256 of the rest of it, so that a flipped bit does not become
a result; lines without it (written by hand) are read as well.
"""

import codecs
import contextlib
import functools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import filelock

from lra.disk_space import cure, is_full
from lra.errors import UserError
from lra.files import sync, sync_folder, write_atomically
from lra.row import Row, from_json, key, to_json
from lra.seals import seal, unseal
from lra.stderr import say


class _CannotWriteError(UserError):
    """No space, no permission, or a read-only file system."""


def append(path: str | os.PathLike, rows: Iterable[Row]) -> int:
    """Append the rows that are new, durably, and return their number.

    A key has at most one result; a failure is new if its key has no result and has not failed
    for the same reason before.

    Raises:
        UserError: If the file is damaged or cannot be written, or a row is not valid.
    """

    def new_lines(present: list[Row]) -> list[str]:
        # A result has no error, so (key, None) means that a key has its result.
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
    """Append the lines that `choose` returns for the rows in the file, durably and under its lock.

    Args:
        path: Path of the file.
        choose: Function from the rows in the file to new lines of JSON, without line breaks.
        parse: Function from a line to its row, which raises ValueError if the line is not JSON and
            UserError if it is not a row.

    Raises:
        UserError: If the file is damaged or cannot be written.
    """
    path = pathlib.Path(path)
    with _locked(path):
        lines = choose(_read_and_repair(path, parse))
        if lines:
            is_new = not path.exists()
            with open(path, "ab") as file:
                file.write("".join(seal(line) + "\n" for line in lines).encode())
                sync(file)
            if is_new:
                sync_folder(path.parent)
    return len(lines)


def write_once(path: pathlib.Path, rows: Iterable[Row]) -> None:
    """Write the rows of a finished run to a new file; a file that exists stays as it is."""
    if not path.exists():
        write_atomically(path, "".join(seal(to_json(row)) + "\n" for row in rows))


def read(
    path: str | os.PathLike, parse: Callable[[bytes], Any] = from_json, *, repair: bool = True
) -> list:
    """Read all rows of a file in order, superseded failures included (see `latest`).

    A truncated last line (its writer was killed) is reported on stderr and moved to
    `<path>.broken`; without `repair`, or if the file cannot be written, it stays in the file.

    Raises:
        UserError: If there is no such file, or any other line is not a row (the message names file
            and line).
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise UserError(f"no rows in {path}: it is a folder, not a file{_files_in(path)}")
    if not path.is_file():
        reason = "it is no regular file" if path.exists() else "no such file"
        raise UserError(f"no rows in {path}: {reason}")
    rows, _, broken = _parse(path, path.read_bytes(), parse)
    if not broken:
        return rows
    if repair and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        # The line may be being written right now: read again under the lock.
        with contextlib.suppress(_CannotWriteError), _locked(path):
            return _read_and_repair(path, parse)
    _say_once(f"{path}: its last line is cut short and not used")
    return rows


def _files_in(folder: pathlib.Path) -> str:
    """Hint which files have the rows of a folder: that of a run, or of runs such as a sweep's."""
    for pattern in ("rows.jsonl", "*/rows.jsonl"):
        if any(folder.glob(pattern)):
            return f"; name {folder / pattern}"
    return ""


@functools.cache
def _say_once(line: str) -> None:
    """Print a line once, however often its file is read."""
    say(line)


def check_writable(path: str | os.PathLike) -> None:
    """Raise UserError if rows cannot be appended to `path`; create its folder if necessary."""
    target = pathlib.Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Checked before locking, since filelock may wait forever if it cannot create a file.
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
        # Symbolic links to the same file share one lock.
        with filelock.FileLock(f"{os.path.realpath(path)}.lock"):
            yield
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: pathlib.Path, error: OSError) -> UserError:
    reason = error.strerror or error
    if str(error.filename).endswith(".lock"):
        reason = f"{reason}: {error.filename}"
    advice = cure(error) if is_full(error) else "choose a file that can be written"
    return _CannotWriteError(f"cannot write rows to {path}: {reason}; {advice}")


def _read_and_repair(path: pathlib.Path, parse: Callable[[bytes], Any]) -> list:
    """Read the rows of a locked file and make it end with a complete line."""
    if not path.exists():
        return []
    content = path.read_bytes()
    rows, end, broken = _parse(path, content, parse)
    if broken:
        broken_path = f"{path}.broken"
        with open(broken_path, "ab") as file:
            file.write(broken + b"\n")
            sync(file)
        with open(path, "r+b") as file:
            file.truncate(end)
            sync(file)
        say(f"{path}: its last line is cut short, moved to {broken_path}")
    elif content and not content.endswith(b"\n"):
        with open(path, "ab") as file:
            file.write(b"\n")
            sync(file)
    return rows


def _parse(
    path: pathlib.Path, content: bytes, parse: Callable[[bytes], Any]
) -> tuple[list, int, bytes]:
    """Rows, the position after them, and a truncated last line (or b"")."""
    rows, position = [], 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        # Windows editors write a byte-order mark at the start of a file.
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        try:
            if text.strip():
                rows.append(parse(unseal(text)))
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
        except (ValueError, RecursionError) as error:  # RecursionError: thousands of brackets
            is_last = not content[position + len(line) :].strip()
            if is_last and _may_be_truncated(text, rows) and "Extra data" not in str(error):
                return rows, position, text.strip()
            raise UserError(f"{path}, line {number}: not JSON; repair or remove the line") from None
        position += len(line)
    return rows, position, b""


def _may_be_truncated(line: bytes, rows_before: list) -> bool:
    """Whether the line may be the beginning of a row; other files must not be changed."""
    return bool(rows_before) or line.lstrip().startswith(b"{")
