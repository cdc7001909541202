import hashlib
import os
import pathlib
import tarfile
import zlib

import numpy as np
import pytest

from lra.data import prepared, text
from lra.data.download import Remote
from lra.data.prepare import prepare_task
from lra.errors import UserError
from tests.lra.data import tfds_folders
from tests.lra.data.file_server import serve

LONG = b"a long review " * 400
# By file, in the order in which they are to be stored.
REVIEWS = {
    "train/neg/2_3.txt": b"Second by number, not by name.<br />\xc3\xa9",
    "train/neg/10_1.txt": b"not UTF-8: \xff\xfe\x00 but bytes",
    "train/pos/0_9.txt": LONG,
    "train/pos/3_10.txt": b"good",
    "test/neg/0_2.txt": b"bad",
    "test/pos/0_7.txt": b"fine",
}


def write_folder(parent: pathlib.Path) -> pathlib.Path:
    """`aclImdb` in its official layout, with what is to be ignored in it."""
    root = parent / "aclImdb"
    others = {
        "README": b"x",
        "train/labeledBow.feat": b"x",
        "train/unsup/0_0.txt": b"unlabelled",
        "train/neg/._2_3.txt": b"left by a Mac",
    }
    for name, content in (REVIEWS | others).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def write_archive(parent: pathlib.Path) -> pathlib.Path:
    """The same as `aclImdb_v1.tar.gz`, its members in no order."""
    root = write_folder(parent / "unpacked")
    path = parent / "aclImdb_v1.tar.gz"
    files = sorted(root.rglob("*.*"), key=lambda file: zlib.crc32(file.name.encode()))
    with tarfile.open(path, "w:gz") as archive:
        for file in files:
            archive.add(file, file.relative_to(root.parent))
    return path


def contents(data_dir: pathlib.Path, split: str) -> list[tuple[int, bytes]]:
    found = prepared.load(data_dir, "text").split(split)
    return [(int(y), found.sequences[i].tobytes()) for i, y in enumerate(found.labels)]


def expected(split: str) -> list[tuple[int, bytes]]:
    return [
        (int("/pos/" in name), content[:4096])
        for name, content in REVIEWS.items()
        if name.startswith(split)
    ]


def test_reviews_are_stored_as_bytes_in_the_order_of_their_numbers(tmp_path):
    manifest = prepare_task("text", tmp_path, source=write_folder(tmp_path))
    assert contents(tmp_path, "train") == expected("train")
    assert contents(tmp_path, "test") == contents(tmp_path, "validation") == expected("test")
    assert manifest["counts"] == {"train": 4, "validation": 2, "test": 2}
    assert manifest["aliases"] == {"validation": "test"}
    assert manifest["max_length"] == 4096
    assert manifest["data"] == "differs (4 / 2 reviews)"
    assert "test/labels.npy" in manifest["files"]
    assert "validation/labels.npy" not in manifest["files"]


def test_folder_and_archive_give_the_same_data(tmp_path):
    folder = prepare_task("text", tmp_path / "a", source=write_folder(tmp_path))
    archive = prepare_task("text", tmp_path / "b", source=write_archive(tmp_path))
    assert folder["sha256"] == archive["sha256"]


@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_raw_data_are_found_in_the_data_folder(tmp_path, write):
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw")
    prepare_task("text", tmp_path)
    assert contents(tmp_path, "train") == expected("train")


def test_the_official_reviews_are_recognised_by_count_and_content(tmp_path, monkeypatch):
    root = write_folder(tmp_path)
    monkeypatch.setattr(text, "OFFICIAL_COUNTS", {"train": 4, "test": 2})
    manifest = prepare_task("text", tmp_path, source=root)
    assert manifest["data"] == "differs (other content of the reviews)"

    def sha256_sum(split: str) -> str:
        digests = [hashlib.sha256(bytes([y]) + x).digest() for y, x in expected(split)]
        return f"{sum(int.from_bytes(d, 'big') for d in digests) % 2**256:064x}"

    official = {split: sha256_sum(split) for split in ("train", "test")}
    monkeypatch.setattr(text, "OFFICIAL_CONTENT", official)
    assert prepare_task("text", tmp_path, source=root)["data"] == "official"
    for split in official:
        monkeypatch.setattr(text, "OFFICIAL_CONTENT", official | {split: "0" * 64})
        manifest = prepare_task("text", tmp_path, source=root)
        assert manifest["data"] == "differs (other content of the reviews)"
    assert prepare_task("text", tmp_path, source=root, data_label="mine")["data"] == "mine"


def test_errors_name_the_file_and_keep_what_was_prepared(tmp_path):
    root = write_folder(tmp_path)
    before = prepare_task("text", tmp_path, source=root)["sha256"]
    (root / "train/pos/3_10.txt").write_bytes(b"")
    with pytest.raises(UserError, match=r"train/pos/3_10\.txt: the review is empty"):
        prepare_task("text", tmp_path, source=root)
    (root / "train/pos/3_10.txt").rename(root / "train/pos/best.txt")
    with pytest.raises(UserError, match=r"pos/best\.txt: .*<number>_<rating>\.txt"):
        prepare_task("text", tmp_path, source=root)
    (root / "train/pos/best.txt").rename(root / f"train/pos/{'1' * 200}_3.txt")
    with pytest.raises(UserError, match=r"1_3\.txt: .*<number>_<rating>\.txt"):
        prepare_task("text", tmp_path, source=root)
    assert prepared.load(tmp_path, "text").sha256 == before


@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_reviews_of_the_same_number_and_rating_are_refused(tmp_path, monkeypatch, write):
    monkeypatch.setitem(REVIEWS, "train/pos/00_9.txt", b"another")
    with pytest.raises(
        UserError, match=r"pos/0+_9\.txt: there is another review with the same number"
    ):
        prepare_task("text", tmp_path, source=write(tmp_path))


@pytest.mark.parametrize("missing", ["train/neg/*", "test/pos/*"])
def test_a_missing_split_or_label_is_named(tmp_path, missing):
    root = write_folder(tmp_path)
    for path in root.glob(missing):
        path.unlink()
    with pytest.raises(UserError, match=f"aclImdb: no reviews in {missing[:-2]}"):
        prepare_task("text", tmp_path, source=root)


def test_the_download_is_checked_and_continued(tmp_path, monkeypatch):
    content = write_archive(tmp_path).read_bytes()
    with serve(content) as server:
        digest = hashlib.sha256(content).hexdigest()
        remote = Remote(server.url("aclImdb_v1.tar.gz"), len(content), digest)
        monkeypatch.setattr(text, "ARCHIVE", remote)
        server.cut_after = 200
        with pytest.raises(UserError, match="run again to continue"):
            prepare_task("text", tmp_path / "data", source="download")
        server.cut_after = None
        prepare_task("text", tmp_path / "data", source="download")
    assert contents(tmp_path / "data", "train") == expected("train")
    assert server.requested == [None, "bytes=200-"]


def test_tfds_gives_the_same_reviews_in_its_order(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    splits = {
        split: [
            {"text": content, "label": int("/pos/" in name)}
            for name, content in reversed(REVIEWS.items())
            if name.startswith(split)
        ]
        for split in ("train", "test")
    }
    splits["unsupervised"] = [{"text": "unlabelled", "label": -1}]
    tfds_folders.write(tmp_path / "tfds", "imdb_reviews", splits)
    manifest = prepare_task("text", tmp_path, source="tfds", tfds_dir=str(tmp_path / "tfds"))
    assert contents(tmp_path, "train") == expected("train")[::-1]
    assert contents(tmp_path, "test") == expected("test")[::-1]
    assert manifest["source"] == "IMDb, TFDS order"


@pytest.mark.skipif("LRA_SHARED_DATA" not in os.environ, reason="needs the real data")
def test_the_real_reviews(tmp_path):
    root = pathlib.Path(os.environ["LRA_SHARED_DATA"]) / "aclImdb"
    manifest = prepare_task("text", tmp_path, source=root)
    assert manifest["data"] == "official"
    assert manifest["counts"] == {"train": 25_000, "validation": 25_000, "test": 25_000}
    data = prepared.load(tmp_path, "text")
    for split, cut, total in (("train", 727, 33_132_823), ("test", 668, 32_350_685)):
        found = data.split(split)
        assert np.bincount(found.labels).tolist() == [12_500, 12_500]
        lengths = []
        for path in (root / split).glob("*/*.txt"):
            number = int(path.name.partition("_")[0])
            label = int(path.parent.name == "pos")
            review = path.read_bytes()
            lengths.append(len(review))
            index = 12_500 * label + number
            assert found.sequences[index].tobytes() == review[:4096]
            assert found.labels[index] == label
        assert len(lengths) == 25_000
        assert sum(lengths) == total
        assert sum(length > 4096 for length in lengths) == cut
