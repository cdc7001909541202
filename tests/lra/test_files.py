"""Atomic writing: the old file or the new one, never a piece of either."""

import pathlib

import pytest

from lra.files import write_atomically


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def refuse(*_):
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(pathlib.Path(tmp_path).iterdir()) == [path]


def test_an_error_names_the_file_and_not_the_one_beside_it(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory") as caught:
        write_atomically(tmp_path / "file" / "inside", "text")
    assert caught.value.filename == str(tmp_path / "file" / "inside")
