"""Retrieval: does one paper cite the other? (AAN, Radev et al., 2013; LRA, arXiv 2011.04006).

Pairs of documents of the ACL Anthology Network with labels 1 (citation) and 0, and the first 4,000
bytes of each document. Official: 147,086 / 18,090 / 17,437 pairs. They are read from either

- LRA's `new_aan_pairs.{train,eval,test}.tsv`: no header, one pair per line, five columns separated
  by tabs (label, two ids, two texts), no quoting. Labels are `0.0` and `1.0`.
- or a folder with `docs/<id>.txt` and `pairs.{train,eval,test}.tsv` (label and two ids).

Documents are identified by their text, not their id: each distinct text is stored once, and an id
with two texts gives two documents. Pairs keep the order of their file. No hash of the official
files is published, so `official` in the manifest is based on the numbers of pairs alone.
"""

import argparse
import hashlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from lra.data import official, prepared, raw
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.tasks import TASKS

SOURCES = ()  # only a path: the texts are in LRA's archive of 7.7 GB or the user's own
MAX_LENGTH = 4000  # LRA: the first 4,000 bytes
RAW_NAMES = ("tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data", "aan")
OFFICIAL_COUNTS = TASKS["retrieval"].counts

_FILE_SPLITS = {"train": "train", "validation": "eval", "test": "test"}
_LABELS = {b"0.0": 0, b"1.0": 1, b"0": 0, b"1": 1}
_MAX_LINE_BYTES = 1 << 26  # so that a file without newlines cannot fill the memory


class Row(NamedTuple):
    """A pair: its label (0 or 1) and the first `MAX_LENGTH` bytes of both documents."""

    label: int
    texts: tuple[bytes, bytes]


class _Files(NamedTuple):
    source: str
    pairs: dict[str, pathlib.Path]  # by split
    docs: pathlib.Path | None  # None if the files of pairs contain the texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no flags: this task has none of its own."""


def estimate(options: argparse.Namespace) -> prepared.Estimate:
    """Estimate time, and an upper bound of disk space (25,000 documents and the official pairs).

    AAN has fewer than 25,000 documents.

    Raises:
        UserError: There are no raw data.
    """
    files = _find_files(options)
    total = sum(path.stat().st_size for path in files.pairs.values())
    return prepared.Estimate(103_000_000, 5.0 + total / 200e6)


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Write the task's folder and return its manifest.

    The files are streamed: memory holds only a hash of each distinct text, and the pairs.

    Args:
        options: Options of the command. `source` is None (one of `RAW_NAMES` in the raw folder) or
            the path of a folder as in the module docstring.
        writer: Writer of the task's folder.

    Raises:
        UserError: Nothing is found, a file is missing, a line has other columns, a label is
            invalid, all labels to train on are the same, or a document is empty.
    """
    files = _find_files(options)
    labels: dict[str, list[int]] = {split: [] for split in prepared.SPLITS}
    pairs: dict[str, list[tuple[int, int]]] = {split: [] for split in prepared.SPLITS}
    numbers: dict[bytes, int] = {}

    def new_texts() -> Iterator[bytes]:
        for split, path in files.pairs.items():
            for row in read_rows(path, files.docs):
                pair = []
                for text in row.texts:
                    number = len(numbers)
                    key = hashlib.blake2b(text, digest_size=16).digest()
                    pair.append(numbers.setdefault(key, number))
                    if pair[-1] == number:
                        yield text
                pairs[split].append(tuple(pair))
                labels[split].append(row.label)

    writer.sequences("docs", new_texts())
    for split, path in files.pairs.items():
        if not pairs[split]:
            raise UserError(f"{path}: no pairs in it")
        if split == "train" and len(set(labels[split])) == 1:
            raise UserError(f"{path}: all its pairs have the label {labels[split][0]}")
        writer.array(f"{split}/pairs.npy", np.array(pairs[split], np.int32))
        writer.array(f"{split}/labels.npy", np.array(labels[split], np.int32))
    counts = {split: len(values) for split, values in labels.items()}
    return writer.finish(
        data=official.compare(counts, OFFICIAL_COUNTS, "pairs"),
        source=files.source,
        counts=counts,
        max_length=MAX_LENGTH,
    )


def read_rows(path: pathlib.Path, docs: pathlib.Path | None = None) -> Iterator[Row]:
    """Stream the pairs of one file.

    The last line need not end with a newline, so truncation within the last document is not
    detected.

    Args:
        path: LRA's file with five columns or, with `docs`, a file with three: label and ids.
        docs: Folder of the files `<id>.txt`.

    Raises:
        UserError: The number of columns is wrong, a label is invalid, a document is empty or
            missing, or a line has `_MAX_LINE_BYTES`. The message names the file and the line.
    """
    columns = 5 if docs is None else 3
    for place, line in _lines(path):
        fields = line.split(b"\t")
        if len(fields) != columns:
            raise UserError(f"{place}: {len(fields)} columns separated by tabs, not {columns}")
        label = _label(fields[0], place)
        if docs is None:
            first, second = (_truncated(field, place) for field in fields[3:])
        else:
            first, second = (_read_document(docs, field, place) for field in fields[1:])
        yield Row(label, (first, second))


def _lines(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yield the lines without their newlines, each with its location for error messages."""
    bar = tqdm(desc=path.name, total=path.stat().st_size, unit="B", unit_scale=True, disable=None)
    number = 0
    with bar, open(path, "rb") as file:
        while line := file.readline(_MAX_LINE_BYTES):
            number += 1
            place = f"{path}, line {number}"
            if len(line) == _MAX_LINE_BYTES:
                raise UserError(f"{place}: longer than {_MAX_LINE_BYTES} bytes; not a TSV file")
            yield place, line.removesuffix(b"\n").removesuffix(b"\r")
            bar.update(len(line))


def _label(field: bytes, place: str) -> int:
    if field not in _LABELS:
        raise UserError(f"{place}: label {field[:20]!r} is neither 0.0 nor 1.0")
    return _LABELS[field]


def _truncated(text: bytes, place: str) -> bytes:
    if not text:
        raise UserError(f"{place}: an empty document")
    return text[:MAX_LENGTH]


def _read_document(docs: pathlib.Path, name: bytes, place: str) -> bytes:
    path = docs / f"{os.fsdecode(name)}.txt"
    if path.parent != docs or not path.is_file():
        raise UserError(f"{place}: no document {path}")
    with open(path, "rb") as file:
        return _truncated(file.read(MAX_LENGTH), f"{place}, {path}")


def _find_files(options: argparse.Namespace) -> _Files:
    root = raw.locate(options, RAW_NAMES, SOURCES)
    if any(root.glob("new_aan_pairs.*.tsv")):
        return _Files("AAN, new_aan_pairs", _pair_files(root, "new_aan_pairs"), None)
    if (root / "docs").is_dir():
        return _Files("AAN, documents and pairs", _pair_files(root, "pairs"), root / "docs")
    raise UserError(
        f"{root}: neither new_aan_pairs.{{train,eval,test}}.tsv nor a folder docs in it"
    )


def _pair_files(folder: pathlib.Path, stem: str) -> dict[str, pathlib.Path]:
    files = {split: folder / f"{stem}.{name}.tsv" for split, name in _FILE_SPLITS.items()}
    for path in files.values():
        if not path.is_file():
            raise UserError(f"{path} is missing")
    return files
