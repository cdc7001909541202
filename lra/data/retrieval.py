"""Retrieval: is one paper cited by the other? (AAN, Radev et al., 2013; LRA, arXiv 2011.04006).

Pairs of documents of the ACL Anthology Network with labels 1 (a citation) and 0; the first 4,000
bytes of each document. Official: 147,086 / 18,090 / 17,437 pairs. They are read from

- LRA's `new_aan_pairs.{train,eval,test}.tsv`: no header, a pair a line, five columns separated by
  tabs (label, two ids, two texts). A quote is a character like any other. Labels: `0.0`, `1.0`.
- or a folder with `docs/<id>.txt` and `pairs.{train,eval,test}.tsv` (label and two ids).

Texts count, not their ids: each distinct text is stored once, and where one id has two texts both
are. Pairs keep the order of their file. No hash of the official files is published, so `official`
in the manifest rests on the numbers of pairs alone.
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

SOURCES = ()  # a path only: the texts are in LRA's archive of 7.7 GB, or the user's own
MAX_LENGTH = 4000  # LRA: the first 4,000 bytes
RAW_NAMES = ("tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data", "aan")
OFFICIAL_COUNTS = TASKS["retrieval"].counts

_FILE_SPLITS = {"train": "train", "validation": "eval", "test": "test"}
_MAX_LINE_BYTES = 1 << 26  # a file without line ends would fill the memory


class Row(NamedTuple):
    """A pair: its label, 0 or 1, and the first `MAX_LENGTH` bytes of both documents."""

    label: int
    texts: tuple[bytes, bytes]


class _Files(NamedTuple):
    source: str
    pairs: dict[str, pathlib.Path]  # by split
    docs: pathlib.Path | None  # None where the texts stand in the files of pairs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This task has no flags of its own."""


def estimate(options: argparse.Namespace) -> prepared.Estimate:
    """An upper limit of the disk space: 25,000 documents (AAN has fewer) and the official pairs.

    Raises:
        UserError: no raw data.
    """
    files = _find(options)
    total = sum(path.stat().st_size for path in files.pairs.values())
    return prepared.Estimate(103_000_000, 5.0 + total / 200e6)


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Writes the task's folder and returns its manifest.

    The files are streamed: memory holds a hash for each distinct text, and the pairs.

    Args:
        options: `source` is None (one of `RAW_NAMES` in the raw folder) or the path of a folder
            as in the module's docstring.
        writer: of the task's folder.

    Raises:
        UserError: nothing found, a missing file, a line with other columns, a bad label, an empty
            document.
    """
    files = _find(options)
    labels: dict[str, list[int]] = {split: [] for split in prepared.SPLITS}
    pairs: dict[str, list[tuple[int, int]]] = {split: [] for split in prepared.SPLITS}
    known: dict[bytes, int] = {}

    def new_texts() -> Iterator[bytes]:
        for split, path in files.pairs.items():
            for row in read_rows(path, files.docs):
                pair = []
                for text in row.texts:
                    number = len(known)
                    key = hashlib.blake2b(text, digest_size=16).digest()
                    pair.append(known.setdefault(key, number))
                    if pair[-1] == number:
                        yield text
                pairs[split].append(tuple(pair))
                labels[split].append(row.label)

    writer.sequences("docs", new_texts())
    for split, path in files.pairs.items():
        if not pairs[split]:
            raise UserError(f"{path}: no pairs in it")
        writer.array(f"{split}/pairs.npy", np.array(pairs[split], np.int32))
        writer.array(f"{split}/labels.npy", np.array(labels[split], np.int32))
    counts = {split: len(found) for split, found in labels.items()}
    return writer.finish(
        data=options.data_label or official.compare(counts, OFFICIAL_COUNTS, "pairs"),
        source=files.source,
        counts=counts,
        max_length=MAX_LENGTH,
    )


def read_rows(path: pathlib.Path, docs: pathlib.Path | None = None) -> Iterator[Row]:
    """Streams the pairs of one file.

    Args:
        path: LRA's file with five columns; with `docs`, one with three: label and ids.
        docs: the folder of `<id>.txt`.

    Raises:
        UserError: another number of columns, a bad label, an empty or missing document, a line of
            `_MAX_LINE_BYTES`; names the file and the line. The last line need not end: a file that
            was cut within its last document is not noticed.
    """
    columns = 5 if docs is None else 3
    for place, line in _lines(path):
        fields = line.split(b"\t")
        if len(fields) != columns:
            raise UserError(f"{place}: {len(fields)} columns separated by tabs, not {columns}")
        label = _label(fields[0], place)
        if docs is None:
            first, second = (_kept(field, place) for field in fields[3:])
        else:
            first, second = (_read_document(docs, field, place) for field in fields[1:])
        yield Row(label, (first, second))


def _lines(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """The lines without their ends, each with its place."""
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
    try:
        label = float(field)
    except ValueError:
        label = None
    if label not in (0.0, 1.0):
        raise UserError(f"{place}: label {field[:20]!r} is neither 0.0 nor 1.0")
    return int(label)


def _kept(text: bytes, place: str) -> bytes:
    if not text:
        raise UserError(f"{place}: an empty document")
    return text[:MAX_LENGTH]


def _read_document(docs: pathlib.Path, name: bytes, place: str) -> bytes:
    path = docs / f"{os.fsdecode(name)}.txt"
    if path.parent != docs or not path.is_file():
        raise UserError(f"{place}: no document {path}")
    with open(path, "rb") as file:
        return _kept(file.read(MAX_LENGTH), f"{place}, {path}")


def _find(options: argparse.Namespace) -> _Files:
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
