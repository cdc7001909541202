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
        counts = {"train": 2, "validation": writer.examples("validation", [])}
        with pytest.raises(UserError, match="toy: no examples for validation; add raw data"):
            writer.finish(data="x", source="x", counts=counts, max_length=1)
    assert not (tmp_path / "toy").exists()


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
