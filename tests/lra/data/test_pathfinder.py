import argparse

import numpy as np
import pytest

from lra.data import pathfinder, pathfinder_folder, prepared
from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import parameters
from lra.data.prepare import prepare_task
from lra.errors import UserError
from tests.lra.data.pathfinder_images import picture, write_folder

# Of the whole data set with LRA's parameters and seed 0, as in its manifest.
SHA256_LRA = "9529cf595bbc57df5db34dca0afe318289bffa79a413d11446a5831cf9fb0a45"


def small_official_counts(monkeypatch):
    counts = {"train": 24, "validation": 3, "test": 3}
    monkeypatch.setattr(pathfinder, "OFFICIAL_COUNTS", counts)


def pictures(data, size):
    """All images of all splits in order, and their labels."""
    splits = [data.split(name) for name in prepared.SPLITS]
    tokens = np.concatenate([split.sequences.tokens for split in splits])
    labels = np.concatenate([split.labels for split in splits])
    return tokens.reshape(-1, size, size), labels


def test_generated_images_are_cut_in_order(tmp_path):
    prepare_task("pathfinder", tmp_path, num_images=57, seed=3, workers=2)
    data = prepared.load(tmp_path, "pathfinder")
    assert data.manifest["counts"] == {"train": 47, "validation": 5, "test": 5}
    (expected,) = batches(parameters(32, "hard"), seed=3, count=57)
    images, labels = pictures(data, 32)
    np.testing.assert_array_equal(images, expected.images)
    np.testing.assert_array_equal(labels, expected.labels)
    train = data.split("train")
    assert train.sequences[2].shape == (1024,)
    assert (train.sequences.tokens.dtype, train.labels.dtype) == (np.uint8, np.int32)


def test_manifest_of_generated_images(tmp_path):
    manifest = prepare_task("pathx", tmp_path, num_images=10, seed=5)
    assert manifest["data"] == "differs (8 / 1 / 1 images)"
    assert manifest["seed"] == 5
    assert manifest["max_length"] == 128 * 128
    assert manifest["parameters"]["difficulty"] == "hard"
    assert manifest["parameters"]["size"] == 128
    assert manifest["parameters"]["dashes"] == 14


@pytest.mark.parametrize(
    ("task", "flags", "data"),
    [
        ("pathfinder", {}, "generated"),
        ("pathx", {}, "generated"),
        ("pathx", {"size": 128}, "generated"),
        ("pathfinder", {"source": "generate"}, "generated"),
        ("pathfinder", {"size": 128}, "differs (128 x 128)"),
        ("pathx", {"size": 32, "difficulty": "easy"}, "differs (32 x 32, easy)"),
        ("pathfinder", {"difficulty": "intermediate"}, "differs (intermediate)"),
        ("pathfinder", {"num_images": 40}, "differs (32 / 4 / 4 images)"),
        ("pathfinder", {"difficulty": "easy", "data_label": "mine"}, "mine"),
    ],
)
def test_what_generated_data_are_called(tmp_path, monkeypatch, task, flags, data):
    small_official_counts(monkeypatch)
    assert prepare_task(task, tmp_path, **{"num_images": 30} | flags)["data"] == data


@pytest.mark.slow
def test_the_whole_data_set_never_changes(tmp_path):
    manifest = prepare_task("pathfinder", tmp_path)
    assert manifest["data"] == "generated"
    assert manifest["counts"] == pathfinder.OFFICIAL_COUNTS
    assert manifest["sha256"] == SHA256_LRA


@pytest.mark.parametrize("count", [9, 0, -5])
def test_too_few_images_to_generate(tmp_path, count):
    with pytest.raises(UserError, match=rf"--num_images={count}: at least 10"):
        prepare_task("pathfinder", tmp_path, num_images=count)


def test_released_images(tmp_path):
    write_folder(tmp_path / "raw", batches=3, per_batch=10)
    manifest = prepare_task("pathfinder", tmp_path, source=str(tmp_path / "raw"))
    assert manifest["data"] == "differs (24 / 3 / 3 images)"
    assert manifest["seed"] == 42
    assert manifest["parameters"] == {"size": 32, "difficulty": "hard", "empty_images": 0}
    data = prepared.load(tmp_path, "pathfinder")
    for name, indices in pathfinder_folder.split(30).items():
        split = data.split(name)
        assert split.labels.tolist() == [index % 2 for index in indices]
        for place, index in enumerate(indices):
            np.testing.assert_array_equal(split.sequences[place], picture(index).ravel())


def test_empty_images_are_counted(tmp_path, capsys):
    root = write_folder(tmp_path / "raw", batches=4, per_batch=10)
    for place in range(10):
        (root / f"imgs/2/sample_{place}.png").write_bytes(b"")
    manifest = prepare_task("pathfinder", tmp_path, source=str(root))
    assert manifest["counts"] == {"train": 24, "validation": 3, "test": 3}
    assert manifest["parameters"]["empty_images"] == 10
    said = f"images of 0 bytes left out: 10, the first {root / 'imgs/2/sample_0.png'}"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "size", "difficulty", "flags", "data"),
    [
        ("pathfinder", 32, "hard", {}, "official"),
        ("pathx", 128, "hard", {}, "official"),
        ("pathfinder", 64, "easy", {"size": 64, "difficulty": "easy"}, "differs (64 x 64, easy)"),
        ("pathfinder", 32, "hard", {"data_label": "copy"}, "copy"),
    ],
)
def test_what_released_images_are_called(
    tmp_path, monkeypatch, task, size, difficulty, flags, data
):
    small_official_counts(monkeypatch)
    write_folder(tmp_path / "raw", batches=2, per_batch=15, size=size, difficulty=difficulty)
    manifest = prepare_task(task, tmp_path, source=str(tmp_path / "raw"), **flags)
    assert manifest["data"] == data
    assert manifest["parameters"]["size"] == size


def test_too_few_released_images(tmp_path):
    write_folder(tmp_path / "raw", batches=1, per_batch=9)
    with pytest.raises(UserError, match="holds 9 images, too few for three splits"):
        prepare_task("pathfinder", tmp_path, source=str(tmp_path / "raw"))


@pytest.mark.parametrize("source", [None, "raw"])
def test_estimate_is_close(tmp_path, monkeypatch, source):
    write_folder(tmp_path / "raw", batches=3, per_batch=10)
    monkeypatch.chdir(tmp_path)
    flags = {"num_images": 30} if source is None else {}
    manifest = prepare_task("pathfinder", tmp_path, source=source, **flags)
    options = argparse.Namespace(
        task="pathfinder",
        source=source,
        size=None,
        difficulty="hard",
        num_images=flags.get("num_images", pathfinder.OFFICIAL_IMAGES),
        workers=1,
    )
    estimate = pathfinder.estimate(options)
    written = sum(facts["bytes"] for facts in manifest["files"].values())
    assert estimate.bytes == pytest.approx(written, rel=0.05)
    assert estimate.seconds > 0
