"""Text: IMDb reviews as bytes (Maas et al., ACL 2011; LRA, arXiv 2011.04006).

The first 4,096 bytes of each review are stored unchanged (no cleaning: `<br />` and bytes that are
not UTF-8 are kept), with labels 0 (neg) and 1 (pos); 25,000 reviews to train and 25,000 to test.
`unsup` is not used. LRA has no validation set here: the test set takes its place (`aliases` in
the manifest). The paper and its authors specify 4K bytes, but their released code keeps 1,000
(padded to 1,024) for a model of 4,000 positions (mlpen/Nystromformer, issue 13). 3 % of the reviews
are longer than 4,000 bytes.

Order: from aclImdb, neg before pos, each sorted by the number in the file name; folder, archive and
download give the same prepared data. From TFDS, the same reviews are in TFDS's order.
"""

import argparse
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tqdm import tqdm

from lra.data import official, prepared, raw, tfds_source
from lra.data.archives import read_members
from lra.data.download import Remote, bytes_to_download, download
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.tasks import TASKS

SOURCES = (tfds_source.SOURCE, "download")
MAX_LENGTH = 4096  # LRA's paper: 4K; its code has 1,000
# Size and sha256 from TFDS, datasets/imdb_reviews/checksums.tsv.
ARCHIVE = Remote(
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    84_125_825,
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)
RAW_NAMES = ("aclImdb", ARCHIVE.name)
TFDS_NAME = "imdb_reviews/plain_text"
OFFICIAL_COUNTS = TASKS["text"].counts
# official.Fingerprint of the stored reviews.
OFFICIAL_CONTENT = {
    "train": "61dff2b168b56820d7db598154f9922f2352ab6cd912e6d0fdbd14165860f10b",
    "test": "1449b0426788617d1ce222beac55824c971d68500ddc41a2ab5a1bd91cc84002",
}

_SPLITS = ("train", "test")
_LABELS = ("neg", "pos")
_REVIEW = re.compile(r"(?:^|/)(train|test)/(neg|pos)/([^/.][^/]*\.txt)$")
_FILE_NAME = re.compile(r"(\d{1,9})_(\d{1,2})\.txt")


class Review(NamedTuple):
    """A review: its label, its first `MAX_LENGTH` bytes, and its location for error messages."""

    label: int
    content: bytes
    place: str


class _Source(NamedTuple):
    name: str
    place: str
    splits: dict[str, Iterable[Review]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this task."""
    tfds_source.add_arguments(parser)


def estimate(options: argparse.Namespace) -> prepared.Estimate:
    """Estimate disk space, including any download, and time, excluding it (networks differ).

    Raises:
        UserError: There are no raw data.
    """
    if options.source not in SOURCES:
        raw.locate(options, RAW_NAMES, SOURCES)
    downloaded = 0
    if options.source == "download":
        downloaded = bytes_to_download(ARCHIVE, raw.folder(options))
    return prepared.Estimate(66_000_000 + downloaded, 10.0)


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Write the task's folder and return its manifest.

    Args:
        options: Options of the command. `source` is None (one of `RAW_NAMES` in the raw folder),
            the path of one of them, `tfds`, or `download`.
        writer: Writer of the task's folder.

    Raises:
        UserError: Nothing is found, there is no network, the archive is damaged, a review is empty
            or its file has an unexpected name, or a split or label is missing.
    """
    source = _open(options)
    counts, content = {}, {}
    for split in _SPLITS:
        counts[split], content[split] = _write(writer, split, source)
    same_content = content == OFFICIAL_CONTENT
    mark = official.compare(counts, OFFICIAL_COUNTS, "reviews", same_content=same_content)
    return writer.finish(
        data=mark,
        source=source.name,
        counts={"train": counts["train"], "validation": counts["test"], "test": counts["test"]},
        max_length=MAX_LENGTH,
        aliases={"validation": "test"},
    )


def _open(options: argparse.Namespace) -> _Source:
    if options.source == tfds_source.SOURCE:
        dataset = tfds_source.Dataset(TFDS_NAME, options.tfds_dir, ARCHIVE)
        splits = {split: _from_tfds(dataset, split) for split in _SPLITS}
        return _Source("IMDb, TFDS order", str(dataset.folder), splits)
    if options.source == "download":
        path = download(ARCHIVE, raw.folder(options))
    else:
        path = raw.locate(options, RAW_NAMES, SOURCES)
    splits = _from_folder(path) if path.is_dir() else _from_archive(path)
    return _Source("IMDb, aclImdb order", str(path), splits)


def _write(writer: TaskWriter, split: str, source: _Source) -> tuple[int, str]:
    """Write one split; return its number of reviews and its fingerprint."""
    fingerprint, seen = official.Fingerprint(), set()

    def examples() -> Iterator[tuple[bytes, int]]:
        for review in tqdm(source.splits[split], f"text {split}", unit=" reviews", disable=None):
            if not review.content:
                raise UserError(f"{review.place}: the review is empty")
            fingerprint.add(review.label, review.content)
            seen.add(review.label)
            yield review.content, review.label

    count = writer.examples(split, examples())
    for label, name in enumerate(_LABELS):
        if label not in seen:
            raise UserError(f"{source.place}: no reviews in {split}/{name}")
    return count, str(fingerprint)


def _from_folder(root: pathlib.Path) -> dict[str, Iterable[Review]]:
    """Return the reviews of the folder `aclImdb`, which are read lazily."""
    return {split: _read_files(root / split) for split in _SPLITS}


def _read_files(folder: pathlib.Path) -> Iterator[Review]:
    for label, name in enumerate(_LABELS):
        paths: dict[tuple[int, int], pathlib.Path] = {}
        for path in (folder / name).glob("[!.]*.txt"):
            _add_once(paths, _parse_name(path.name, str(path)), path, str(path))
        for _, path in sorted(paths.items()):
            with open(path, "rb") as file:
                yield Review(label, file.read(MAX_LENGTH), str(path))


def _from_archive(path: pathlib.Path) -> dict[str, Iterable[Review]]:
    """Return the reviews of the `.tar.gz`, sorted in memory (65 MB) since it is unsorted."""
    by_split: dict[str, dict[tuple, Review]] = {split: {} for split in _SPLITS}
    members = read_members(path, lambda name: _REVIEW.search(name) is not None, MAX_LENGTH)
    for name, content in tqdm(members, path.name, unit=" reviews", disable=None):
        place = f"{path}, {name}"
        split, label_name, file_name = _REVIEW.search(name).groups()
        label = _LABELS.index(label_name)
        key = label, _parse_name(file_name, place)
        _add_once(by_split[split], key, Review(label, content, place), place)
    return {split: [reviews[key] for key in sorted(reviews)] for split, reviews in by_split.items()}


def _add_once(reviews: dict, key: tuple, review: Any, place: str) -> None:
    if key in reviews:
        raise UserError(f"{place}: there is another review with the same number and rating")
    reviews[key] = review


def _parse_name(file_name: str, place: str) -> tuple[int, int]:
    """Parse a file name `<number>_<rating>.txt` into its numbers."""
    match = _FILE_NAME.fullmatch(file_name)
    if not match:
        raise UserError(f"{place}: a review's file is called <number>_<rating>.txt")
    return int(match[1]), int(match[2])


def _from_tfds(dataset: tfds_source.Dataset, split: str) -> Iterator[Review]:
    for index, example in enumerate(dataset.examples(split)):
        place = f"{dataset.folder}, {split}, example {index}"
        label = int(example["label"])
        if label not in (0, 1):
            raise UserError(f"{place}: label {label} is neither 0 nor 1")
        yield Review(label, example["text"][:MAX_LENGTH], place)
