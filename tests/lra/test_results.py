"""Rows of complete runs, and rows that are not those of a run."""

import shutil

import pytest

from lra import records
from lra.errors import UserError
from lra.loop import train
from tests.lra.conftest import write_listops


@pytest.mark.parametrize(("holdout", "expected"), [(0.0, True), (0.2, False)])
def test_a_validation_on_the_test_set_is_in_the_row(
    holdout, expected, tiny_config, data_dir, tmp_path
):
    config = tiny_config("text", "linear", "train.steps=2", f"data.holdout={holdout}")
    assert train(config, tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.val_is_test is expected


def test_copied_rows_of_other_data_with_the_same_mark_are_refused(tiny_config, data_dir, tmp_path):
    config = tiny_config("listops", "linear", "train.steps=2")
    assert train(config, tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    write_listops(tmp_path / "others", seed=1)
    assert train(config, tmp_path / "copy", data_dir) == 0
    with pytest.raises(UserError, match="has rows of another configuration or other data"):
        train(config, tmp_path / "copy", tmp_path / "others")


def test_rows_of_other_seeds_are_not_those_of_a_run(tiny_config, data_dir, tmp_path):
    assert train(tiny_config("listops", "linear", "train.steps=2"), tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    config = tiny_config("listops", "linear", "train.steps=2", "seeds=(1,)")
    with pytest.raises(UserError, match="has the rows of"):
        train(config, tmp_path / "copy", data_dir)
