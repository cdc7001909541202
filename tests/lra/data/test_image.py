import os
import pathlib
import tarfile

import numpy as np
import pytest

from lra.data import cifar10, image, official, prepared
from lra.data.prepare import prepare_task
from lra.errors import UserError
from tests.lra.data import tfds_folders
from tests.lra.data.cifar_pickles import python2_pickle

TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
NAMES = [*TRAIN, "test_batch"]
PER_BATCH = 6
GENERATOR = np.random.default_rng(0)
RGB = GENERATOR.integers(0, 256, (6 * PER_BATCH, 3, 1024), np.uint8)
LABELS = GENERATOR.integers(0, 10, 6 * PER_BATCH)
LEVELS = cifar10.grey(RGB)
COUNTS = {"train": 27, "validation": 3, "test": 6}


def write_binary(parent: pathlib.Path) -> pathlib.Path:
    root = parent / "cifar-10-batches-bin"
    root.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        batch = slice(number * PER_BATCH, (number + 1) * PER_BATCH)
        rows = np.concatenate([LABELS[batch, None], RGB[batch].reshape(PER_BATCH, -1)], axis=1)
        (root / f"{name}.bin").write_bytes(rows.astype(np.uint8).tobytes())
    (root / "batches.meta.txt").write_text("airplane\n")
    return root


def write_python(parent: pathlib.Path) -> pathlib.Path:
    root = parent / "cifar-10-batches-py"
    root.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        batch = slice(number * PER_BATCH, (number + 1) * PER_BATCH)
        rows = RGB[batch].reshape(PER_BATCH, -1)
        (root / name).write_bytes(python2_pickle(rows, LABELS[batch].tolist()))
    (root / "batches.meta").write_bytes(b"not read")
    return root


def write_archive(parent: pathlib.Path, write) -> pathlib.Path:
    root = write(parent / "unpacked")
    kind = {write_binary: "binary", write_python: "python"}[write]
    path = parent / f"cifar-10-{kind}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file in sorted(root.iterdir(), reverse=True):
            archive.add(file, file.relative_to(root.parent))
    return path


def binary_archive(parent: pathlib.Path) -> pathlib.Path:
    return write_archive(parent, write_binary)


def python_archive(parent: pathlib.Path) -> pathlib.Path:
    return write_archive(parent, write_python)


def contents(data_dir: pathlib.Path, split: str) -> tuple[list[int], np.ndarray]:
    found = prepared.load(data_dir, "image").split(split)
    return found.labels.tolist(), found.sequences.tokens.reshape(-1, 1024)


def assert_stored(data_dir: pathlib.Path, split: str, indices) -> None:
    labels, pixels = contents(data_dir, split)
    assert labels == LABELS[indices].tolist()
    np.testing.assert_array_equal(pixels, LEVELS[indices])


def test_the_last_tenth_in_file_order_is_the_validation_set(tmp_path):
    manifest = prepare_task("image", tmp_path, source=write_binary(tmp_path))
    assert_stored(tmp_path, "train", np.arange(27))
    assert_stored(tmp_path, "validation", np.arange(27, 30))
    assert_stored(tmp_path, "test", np.arange(30, 36))
    assert manifest["counts"] == COUNTS
    assert manifest["source"] == "CIFAR-10, file order"
    assert manifest["data"] == "differs (27 / 3 / 6 images)"
    assert manifest["max_length"] == 1024


def test_all_versions_give_the_same_data(tmp_path):
    writers = (write_binary, write_python, binary_archive, python_archive)
    hashes = set()
    for write in writers:
        folder = tmp_path / write.__name__
        hashes.add(prepare_task("image", folder, source=write(folder))["sha256"])
    assert len(hashes) == 1


@pytest.mark.parametrize("write", [write_binary, write_python, binary_archive, python_archive])
def test_raw_data_are_found_in_the_data_folder(tmp_path, write):
    write(tmp_path / "raw")
    prepare_task("image", tmp_path)
    assert_stored(tmp_path, "test", np.arange(30, 36))


def test_a_batch_that_is_there_twice_is_refused(tmp_path):
    folder = write_binary(tmp_path)
    (write_python(tmp_path) / "data_batch_1").rename(folder / "data_batch_1")
    with pytest.raises(UserError, match="data_batch_1 of CIFAR-10 is there a second time"):
        prepare_task("image", tmp_path / "data", source=folder)


def test_the_order_of_tfds_from_the_files_is_that_of_its_own_copy(tmp_path):
    pytest.importorskip("tensorflow_datasets")
    orders = {"train": cifar10.tfds_order("train", 30), "test": cifar10.tfds_order("test", 6) + 30}
    splits = {
        split: [
            {
                "id": f"{split}_{i:05d}",
                "image": tfds_folders.png(RGB[i].T.reshape(32, 32, 3)),
                "label": int(LABELS[i]),
            }
            for i in order
        ]
        for split, order in orders.items()
    }
    tfds_folders.write(tmp_path / "tfds", "cifar10", splits)
    files = prepare_task("image", tmp_path / "a", source=write_binary(tmp_path), order="tfds")
    tfds_dir = str(tmp_path / "tfds")
    tfds = prepare_task("image", tmp_path / "b", source="tfds", tfds_dir=tfds_dir)
    assert tfds["sha256"] == files["sha256"]
    assert tfds["source"] == "CIFAR-10, TFDS order"
    assert_stored(tmp_path / "b", "train", orders["train"][:27])
    assert_stored(tmp_path / "b", "validation", orders["train"][27:])
    assert_stored(tmp_path / "b", "test", orders["test"])


def test_the_official_images_are_recognised_in_either_order(tmp_path, monkeypatch):
    source = write_binary(tmp_path)
    monkeypatch.setattr(image, "OFFICIAL_COUNTS", COUNTS)
    manifest = prepare_task("image", tmp_path, source=source)
    assert manifest["data"] == "differs (other content of the images)"
    found = {"train": official.Fingerprint(), "test": official.Fingerprint()}
    for index, label in enumerate(LABELS):
        found["train" if index < 30 else "test"].add(int(label), LEVELS[index].tobytes())
    hashes = {split: str(fingerprint) for split, fingerprint in found.items()}
    monkeypatch.setattr(image, "OFFICIAL_CONTENT", hashes)
    for order in ("file", "tfds"):
        assert prepare_task("image", tmp_path, source=source, order=order)["data"] == "official"
    for split in hashes:
        monkeypatch.setattr(image, "OFFICIAL_CONTENT", hashes | {split: "0" * 64})
        manifest = prepare_task("image", tmp_path, source=source)
        assert manifest["data"] == "differs (other content of the images)"


@pytest.mark.skipif("LRA_SHARED_DATA" not in os.environ, reason="needs the real data")
def test_the_real_images(tmp_path):
    root = pathlib.Path(os.environ["LRA_SHARED_DATA"]) / "cifar-10-batches-bin"
    manifest = prepare_task("image", tmp_path, source=root)
    assert manifest["data"] == "official"
    assert manifest["counts"] == {"train": 45_000, "validation": 5_000, "test": 10_000}
    together = np.zeros(10, int)
    for split, first, last in (
        ("train", ("data_batch_1", 0), ("data_batch_5", 4_999)),
        ("validation", ("data_batch_5", 5_000), ("data_batch_5", 9_999)),
        ("test", ("test_batch", 0), ("test_batch", 9_999)),
    ):
        labels, pixels = contents(tmp_path, split)
        for index, (name, record) in ((0, first), (-1, last)):
            with open(root / f"{name}.bin", "rb") as file:
                file.seek(3073 * record)
                content = file.read(3073)
            assert labels[index] == content[0]
            colours = zip(content[1:1025], content[1025:2049], content[2049:], strict=True)
            # In integers, in which these six images round as in float32.
            expected = [(2989 * r + 5870 * g + 1140 * b) * 511 // 5_100_000 for r, g, b in colours]
            assert pixels[index].tolist() == expected
        counts = np.bincount(labels)
        assert split != "test" or counts.tolist() == [1_000] * 10
        together += counts if split != "test" else 0
    assert together.tolist() == [5_000] * 10
