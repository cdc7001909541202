"""Read LRA's released ListOps files `basic_{train,val,test}.tsv` with columns Source and Target.

A source is written in binary form, where operators are applied to their arguments one by one, so
that `[MAX 4 3 ]` reads `( ( ( [MAX 4 ) 3 ) ] )`. The parentheses are redundant and dropped,
brackets are kept (early versions of LRA's own reader drop them, and with them the meaning of the
task). The files, 0.7 GB with 6 bytes per token, are streamed.
"""

import codecs
import itertools
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from lra.data.listops_language import VOCABULARY, evaluate
from lra.errors import UserError

FILES = {
    "train": "basic_train.tsv",
    "validation": "basic_val.tsv",
    "test": "basic_test.tsv",
}

# Limit of the line length. A token takes up to 4 characters, a pair of parentheses and the spaces
# between them.
_LINE_BYTES_PER_TOKEN = 32

_IDS = {symbol.encode(): index for index, symbol in enumerate(VOCABULARY, start=1)}
_LABELS = {b"%d" % digit: digit for digit in range(10)}


class Columns(NamedTuple):
    """Indices, from 0, of the source and target columns, and the number of columns."""

    source: int
    target: int
    count: int


def locate(folder: str | pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the file of each split in `folder`; raise UserError if one is missing."""
    folder = pathlib.Path(folder).expanduser()
    paths = {split: folder / name for split, name in FILES.items()}
    for path in paths.values():
        if not path.is_file():
            raise UserError(
                f"{path} is missing; --source is the folder of {', '.join(FILES.values())}"
            )
    return paths


def read(path: pathlib.Path, max_length: int) -> Iterator[tuple[bytes, int]]:
    """Stream the ids (one byte each) and label of every line of `path`.

    Raises:
        UserError: A line is invalid (see `parse_line`). The message has its number.
    """
    limit = _LINE_BYTES_PER_TOKEN * (max_length + 10)
    number = 1
    with open(path, "rb") as file:
        try:
            columns = parse_header(_read_line(file, limit))
            for number in itertools.count(2):  # noqa: B007 - the number is for the error
                line = _read_line(file, limit)
                if not line:
                    break
                yield parse_line(line, columns, max_length)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: {error}") from None
    if number == 2:
        raise UserError(f"{path} has no expressions")


def parse_header(line: bytes) -> Columns:
    """Locate the columns; raise ValueError if Source or Target is missing."""
    names = line.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n").split(b"\t")
    for name in (b"Source", b"Target"):
        if name not in names:
            raise ValueError(f"missing column '{name.decode()}' (the first line names the columns)")
    return Columns(names.index(b"Source"), names.index(b"Target"), len(names))


def parse_line(line: bytes, columns: Columns, max_length: int) -> tuple[bytes, int]:
    """Return the ids (one byte each) and the label of a line.

    Raises:
        ValueError: The number of columns is wrong, there is an unknown symbol or more than
            `max_length` tokens, the expression is malformed, or the label is not a digit or not
            the value of the expression.
    """
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != columns.count:
        raise ValueError(f"{len(fields)} of {columns.count} columns")
    symbols = fields[columns.source].translate(None, b"()").split()
    if len(symbols) > max_length:
        raise ValueError(f"{len(symbols):,} tokens, at most {max_length:,} are allowed")
    try:
        tokens = bytes([_IDS[symbol] for symbol in symbols])
    except KeyError as error:
        raise ValueError(f"foreign symbol {_quoted(error.args[0])}") from None
    label = _LABELS.get(fields[columns.target].strip())
    if label is None:
        raise ValueError(f"label {_quoted(fields[columns.target])} is not one of 0 to 9")
    value = evaluate(tokens)
    if label != value:
        raise ValueError(f"label {label}, but the value of the expression is {value}")
    return tokens, label


def _read_line(file, limit: int) -> bytes:
    line = file.readline(limit + 1)
    if len(line) > limit:
        raise ValueError(f"longer than {limit:,} bytes")
    return line


def _quoted(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"{content[:20]!r} (not UTF-8)"
    return repr(text if len(text) <= 20 else text[:20] + "...")
