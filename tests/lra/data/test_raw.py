import argparse
import os

import pytest

from lra.data import raw
from lra.errors import UserError


def options(tmp_path, **changed) -> argparse.Namespace:
    defaults = {"task": "text", "data_dir": tmp_path / "data", "raw_dir": None, "source": None}
    return argparse.Namespace(**(defaults | changed))


def test_the_first_official_name_in_the_raw_folder_is_taken(tmp_path):
    for name in ("b", "c"):
        (tmp_path / "data" / "raw" / name).mkdir(parents=True)
    assert raw.locate(options(tmp_path), ("a", "b", "c"), ()) == tmp_path / "data" / "raw" / "b"


def test_the_raw_folder_may_be_elsewhere(tmp_path):
    (tmp_path / "elsewhere" / "b").mkdir(parents=True)
    elsewhere = options(tmp_path, raw_dir=tmp_path / "elsewhere")
    assert raw.locate(elsewhere, ("a", "b"), ()) == tmp_path / "elsewhere" / "b"


def test_a_source_is_the_data_or_a_folder_that_contains_them(tmp_path):
    (tmp_path / "mine" / "b").mkdir(parents=True)
    for source in (tmp_path / "mine", tmp_path / "mine" / "b"):
        found = raw.locate(options(tmp_path, source=str(source)), ("a", "b"), ())
        assert found == tmp_path / "mine" / "b"


def test_what_is_missing_is_said_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"no raw data for text: put a or b into .*data/raw, or"):
        raw.locate(options(tmp_path), ("a", "b"), ("download",))
    with pytest.raises(UserError, match=r"--source=/nowhere is not .*, nor one of download"):
        raw.locate(options(tmp_path, source="/nowhere"), ("a",), ("download",))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe is not a file or a folder"):
        raw.locate(options(tmp_path, source=str(tmp_path / "pipe")), ("a",), ())
