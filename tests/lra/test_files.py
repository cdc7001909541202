"""Atomic writing: the old file or the new one, never a piece of either."""

import errno
import os
import pathlib
import stat

import pytest

from lra.files import sync_folder, write_atomically


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_points_to_is_replaced(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def refuse(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="no space") as caught:
        write_atomically(path, "new")
    assert caught.value.filename == str(path)  # which the system does not name
    assert path.read_text() == "old"
    assert list(pathlib.Path(tmp_path).iterdir()) == [path]


def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory") as caught:
        write_atomically(tmp_path / "file" / "inside", "text")
    assert caught.value.filename == str(tmp_path / "file" / "inside")


def test_a_new_file_outlives_a_loss_of_power(tmp_path, monkeypatch):
    """Its bytes are on the disk before it has its name, its name when the call returns."""
    done, replace = [], os.replace

    def fsync(number):
        done.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "bytes")

    def rename(*paths):
        done.append("name")
        replace(*paths)

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr("os.replace", rename)
    write_atomically(tmp_path / "file.txt", "new")
    assert done == ["bytes", "name", "folder"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_only_a_file_system_that_cannot_flush_folders_is_excused(tmp_path, monkeypatch, number):
    def fsync(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", fsync)
    if number == errno.EINVAL:
        sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            sync_folder(tmp_path)
