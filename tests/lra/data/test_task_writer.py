"""Preparing a task leaves all of it or what was there before."""

import errno
import os
import shutil

import numpy as np
import pytest

from lra.data.prepared import load
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from tests.lra.data.test_prepared import FILES, ITEMS, write


def write_and_raise(data_dir, error):
    with TaskWriter(data_dir, "toy") as writer:
        writer.sequences("train", ITEMS)
        raise error


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_sequences_are_streamed(tmp_path):
    """The writer holds no item while it asks for the next."""
    alive = []

    class Item(bytes):
        def __del__(self):
            alive.pop()

    def items():
        for number in range(100):
            alive.append(number)
            yield Item(b"xyz")
            assert len(alive) <= 2

    with TaskWriter(tmp_path, "toy") as writer:
        assert writer.sequences("train", items()) == 100


def test_a_split_without_examples_is_refused(tmp_path):
    with TaskWriter(tmp_path, "toy") as writer:
        counts = {"train": writer.examples("train", [(b"a", 0)])}
        counts["validation"] = writer.examples("validation", [])
        with pytest.raises(UserError, match="toy: no examples for validation; add raw data"):
            writer.finish(data="x", source="x", counts=counts, max_length=1)
    assert not (tmp_path / "toy").exists()


@pytest.mark.parametrize(
    ("item", "count", "longest", "message"),
    [
        (np.array([300, -1, 7]), 1, 9, "train: a sequence of int64, not of uint8 or bytes"),
        (b"abc", 2, 9, "toy: 1 labels of train are written, not 2"),
        (b"abc", 1, 2, "toy: a sequence of 3, more than 2"),
    ],
)
def test_what_the_manifest_would_not_tell_is_refused(tmp_path, item, count, longest, message):
    def write_wrong(writer):
        writer.examples("train", [(item, 0)])
        writer.finish(data="x", source="x", counts={"train": count}, max_length=longest)

    with TaskWriter(tmp_path, "toy") as writer, pytest.raises(ValueError, match=message):
        write_wrong(writer)
    assert names(tmp_path) == [".toy.lock"]


def test_two_names_of_one_folder_share_its_lock_and_its_scratch_folder(tmp_path):
    (tmp_path / "big").mkdir()
    for name, target in (("one", "a"), ("two", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "toy").symlink_to(tmp_path / "big" / target)
    with TaskWriter(tmp_path / "one", "toy") as writer:
        writer.examples("train", [(b"one", 1)])
        with TaskWriter(tmp_path / "two", "toy") as other:
            other.examples("train", [(b"two", 2)])
            other.finish(data="x", source="x", counts={"train": 1}, max_length=3)
        writer.finish(data="x", source="x", counts={"train": 1}, max_length=3)
    labels = [load(tmp_path / name, "toy").split("train").labels for name in ("one", "two")]
    assert labels == [[1], [2]]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, UserError])
def test_an_error_leaves_the_earlier_data(tmp_path, error):
    before = write(tmp_path)
    with pytest.raises(error):
        write_and_raise(tmp_path, error())
    assert load(tmp_path, "toy").manifest == before
    assert names(tmp_path) == [".toy.lock", "toy"]


def test_leaving_without_finish_leaves_nothing(tmp_path):
    with TaskWriter(tmp_path, "toy") as writer:
        writer.sequences("train", ITEMS)
    assert names(tmp_path) == [".toy.lock"]


def test_replacing(tmp_path):
    write(tmp_path)
    write(tmp_path, label=2)
    assert load(tmp_path, "toy").split("train").labels.tolist() == [2, 0, 4, 2]
    assert names(tmp_path) == [".toy.lock", "toy"]


def test_nothing_is_visible_before_the_end(tmp_path):
    with TaskWriter(tmp_path, "toy") as writer:
        writer.sequences("train", ITEMS)
        assert not (tmp_path / "toy").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line(tmp_path, code):
    before = write(tmp_path)
    with pytest.raises(UserError, match=r"no space left in .* while writing toy; free some space"):
        write_and_raise(tmp_path, OSError(code, os.strerror(code)))
    assert load(tmp_path, "toy").manifest == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_really_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(TaskWriter, "_path", lambda self, name: "/dev/full")
    with pytest.raises(UserError, match="no space left"), TaskWriter(tmp_path, "toy") as writer:
        writer.array("train/labels.npy", np.zeros(100_000, np.int32))


def test_raw_files_in_the_way_are_not_removed(tmp_path):
    (tmp_path / "toy").mkdir()
    write(tmp_path)  # an empty folder is nobody's
    shutil.rmtree(tmp_path / "toy")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "basic_train.tsv").write_text("precious")
    with pytest.raises(UserError, match=r"toy is in the way and is not prepared data"):
        write(tmp_path)
    assert (tmp_path / "toy" / "basic_train.tsv").read_text() == "precious"
    assert not (tmp_path / ".toy.partial").exists()
    shutil.rmtree(tmp_path / "toy")
    write(tmp_path)  # the refusal gave the lock back


@pytest.mark.parametrize(
    "name", ["NOTES.md", "aclImdb/train/a.npy", "raw.npy", "raw/a.txt", "train/mine.npy"]
)
def test_files_of_others_beside_prepared_data_are_not_removed(tmp_path, name):
    before = write(tmp_path)
    path = tmp_path / "toy" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("precious")
    with pytest.raises(UserError, match=f"{name} is no prepared data, and would be removed"):
        write(tmp_path)
    assert path.read_text() == "precious"
    assert load(tmp_path, "toy").manifest == before


def test_what_cannot_be_replaced_is_said_before_the_work(tmp_path, monkeypatch):
    before = write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(UserError, match="toy is write-protected and would be replaced"):
            write(tmp_path)
    (tmp_path / ".toy.previous" / "train").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
        with pytest.raises(UserError, match=r"\.toy\.previous, of earlier data, cannot be removed"):
            write(tmp_path)
    assert load(tmp_path, "toy").manifest == before
    write(tmp_path)


def test_a_task_outlives_a_loss_of_power(tmp_path, monkeypatch):
    """Every file was last synced at the length it has, and behind them all the folder's name."""
    synced = {}

    def fsync(number):
        status = os.fstat(number)
        synced[status.st_ino] = status.st_size

    monkeypatch.setattr("os.fsync", fsync)
    write(tmp_path)
    for name in (*FILES, "manifest.json"):
        status = (tmp_path / "toy" / name).stat()
        assert synced[status.st_ino] == status.st_size, name
    assert list(synced)[-1] == tmp_path.stat().st_ino
