import importlib.util
import json
import pathlib
import shutil

import numpy as np
import pytest

from lra.data.download import Remote
from lra.data.prepare import prepare_task
from lra.data.tfds_source import Dataset
from lra.errors import UserError
from tests.lra.data import tfds_folders

tensorflow_datasets = pytest.importorskip("tensorflow_datasets")

REVIEWS = {
    "train": [{"text": "good", "label": 1}, {"text": b"\xff", "label": 0}],
    "test": [{"text": "bad", "label": 0}, {"text": "fine", "label": 1}],
}
NAME = "imdb_reviews/plain_text"
# What cannot be reached: nothing listens at port 9 (discard) of this machine.
REMOTE = Remote("https://127.0.0.1:9/reviews.tar.gz", 1, "0" * 64)


@pytest.fixture
def without(monkeypatch):
    """Make a package look as if it were not installed."""
    find = importlib.util.find_spec

    def hide(name: str) -> None:
        hidden = {name: None}
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda x, *rest: hidden.get(x, x) and find(x, *rest)
        )

    return hide


def test_examples_come_as_bytes_and_in_order(tmp_path, without):
    without("tensorflow")
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    for tfds_dir in (tmp_path, folder):
        dataset = Dataset(NAME, str(tfds_dir), REMOTE)
        assert dataset.folder == folder
        found = [(x["text"], int(x["label"])) for x in dataset.examples("train")]
        assert found == [(b"good", 1), (b"\xff", 0)]


def test_the_folder_may_come_from_tfdss_own_variable(tmp_path, monkeypatch):
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert Dataset(NAME, None, REMOTE).folder == folder


def test_the_newest_version_is_taken(tmp_path):
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    folder = folder.rename(folder.parent / "1.10.0")
    for version in ("1.0.0", "1.9.0"):
        (folder.parent / version).mkdir()
        (folder.parent / version / "dataset_info.json").write_text("{}")
    assert Dataset(NAME, str(tmp_path), REMOTE).folder == folder


def test_tfrecord_without_tensorflow_names_both_cures(tmp_path, without):
    without("tensorflow")
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"fileFormat": "tfrecord"}))
    with pytest.raises(UserError) as error:
        Dataset(NAME, str(tmp_path), REMOTE)
    for word in (str(folder), "tfrecord", "pip install tensorflow-cpu", "array_record"):
        assert word in str(error.value)


def test_tfrecord_is_read_where_tensorflow_is_installed(tmp_path):
    pytest.importorskip("tensorflow")
    tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS, file_format="tfrecord")
    found = [x["text"] for x in Dataset(NAME, str(tmp_path), REMOTE).examples("train")]
    assert found == [b"good", b"\xff"]


class FakeBuilder:
    """Stands for TFDS's builder where TensorFlow would be needed."""

    def __init__(self, name: str, data_dir: pathlib.Path, file_format: str):
        assert (name, file_format) == (NAME, "array_record")
        self.data_dir = data_dir / NAME / "1.0.0"

    def download_and_prepare(self) -> None:
        raise ConnectionError("no such host\nand forty more lines")


def test_tfds_prepares_array_record_where_tensorflow_is_installed(tmp_path, monkeypatch):
    tfds_folders.write(tmp_path / "made", "imdb_reviews", REVIEWS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(tensorflow_datasets, "builder", FakeBuilder)
    (tmp_path / "tfds" / "downloads").mkdir(parents=True)
    with pytest.raises(UserError, match=r"could not prepare .*: ConnectionError: no such host$"):
        Dataset(NAME, str(tmp_path / "tfds"), REMOTE)

    def prepare(builder: FakeBuilder) -> None:
        shutil.copytree(tmp_path / "made" / NAME / "1.0.0", builder.data_dir)

    monkeypatch.setattr(FakeBuilder, "download_and_prepare", prepare)
    assert len(list(Dataset(NAME, str(tmp_path / "tfds"), REMOTE).examples("test"))) == 2


def test_without_a_network_tfds_is_not_even_asked(tmp_path, monkeypatch):
    """It would try again for minutes."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    with pytest.raises(UserError, match=r"no connection to 127.0.0.1:9 .*; run again later, or"):
        Dataset(NAME, str(tmp_path), REMOTE)


def test_nothing_prepared_without_tensorflow_names_both_cures(tmp_path, without):
    without("tensorflow")
    with pytest.raises(UserError, match=r"pip install tensorflow-cpu, or take another --source"):
        Dataset(NAME, str(tmp_path), REMOTE)


def test_without_tfds_the_error_says_what_to_install(tmp_path, without):
    without("tensorflow_datasets")
    with pytest.raises(UserError, match="pip install tensorflow-datasets importlib_resources"):
        Dataset(NAME, str(tmp_path), REMOTE)


def test_a_missing_split_is_named(tmp_path):
    tfds_folders.write(tmp_path, "imdb_reviews", {"train": REVIEWS["train"]})
    with pytest.raises(UserError, match="has no split 'test'"):
        prepare_task("text", tmp_path, source="tfds", tfds_dir=str(tmp_path))


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_file_is_named(tmp_path, damage):
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    path = next(folder.glob("*train*"))
    content = path.read_bytes()
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[:-100])
    with pytest.raises(UserError, match="TFDS cannot read its split 'train'"):
        list(Dataset(NAME, str(tmp_path), REMOTE).examples("train"))


def test_a_damaged_description_is_named(tmp_path):
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    (folder / "dataset_info.json").write_text("{")
    with pytest.raises(UserError, match="not a data set TFDS can read"):
        Dataset(NAME, str(tmp_path), REMOTE)


def test_the_folder_of_another_data_set_is_refused(tmp_path):
    folder = tfds_folders.write(tmp_path, "imdb_reviews", REVIEWS)
    with pytest.raises(UserError, match="holds TFDS's imdb_reviews, not cifar10"):
        prepare_task("image", tmp_path, source="tfds", tfds_dir=str(folder))


def test_a_bad_label_is_named_with_its_place(tmp_path):
    unlabelled = REVIEWS | {"test": [{"text": "x", "label": 0}, {"text": "y", "label": -1}]}
    tfds_folders.write(tmp_path, "imdb_reviews", unlabelled)
    with pytest.raises(UserError, match="test, example 1: label -1 is neither 0 nor 1"):
        prepare_task("text", tmp_path, source="tfds", tfds_dir=str(tmp_path))


def test_an_image_of_another_size_is_named_with_its_place(tmp_path):
    small = np.zeros((28, 28, 3), np.uint8)
    examples = [{"id": "train_0", "image": tfds_folders.png(small), "label": 0}]
    tfds_folders.write(tmp_path, "cifar10", {"train": examples, "test": examples})
    with pytest.raises(UserError, match=r"train'? ?.*(28, 28, 3)"):
        prepare_task("image", tmp_path, source="tfds", tfds_dir=str(tmp_path))
