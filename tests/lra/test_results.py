"""Rows of complete runs, and rows that are not those of a run."""

import shutil

import pytest

from lra import environment, records
from lra.errors import UserError
from lra.loop import train
from lra.reporter import describe
from lra.trainer import Trainer
from tests.lra.conftest import write_listops

pytestmark = pytest.mark.usefixtures("shared_programs")


@pytest.mark.parametrize(
    ("holdout", "expected"), [(0.0, True), pytest.param(0.2, False, marks=pytest.mark.slow)]
)
def test_a_validation_on_the_test_set_is_in_the_row(
    holdout, expected, tiny_config, data_dir, tmp_path
):
    config = tiny_config("text", "linear", "train.steps=2", f"data.holdout={holdout}")
    assert train(config, tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.val_is_test is expected


def test_copied_rows_of_other_data_with_the_same_mark_are_refused(tiny_config, data_dir, tmp_path):
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    write_listops(tmp_path / "others", seed=1)
    assert train(config, tmp_path / "copy", data_dir) == 0
    with pytest.raises(UserError, match="has rows of another configuration or other data"):
        train(config, tmp_path / "copy", tmp_path / "others")


def test_rows_of_other_seeds_are_not_those_of_a_run(tiny_config, data_dir, tmp_path):
    assert train(tiny_config("listops", "linear"), tmp_path / "run", data_dir) == 0
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "run" / "rows.jsonl", tmp_path / "copy")
    config = tiny_config("listops", "linear", "seeds=(1,)")
    with pytest.raises(UserError, match="has the rows of"):
        train(config, tmp_path / "copy", data_dir)


def test_a_row_has_the_format_size_and_seeds_of_its_run(
    tiny_config, tiny_trainer, data_dir, tmp_path, capsys
):
    overrides = ("seeds=(0, 5)", "dtype=bfloat16", "matmul_precision=tensorfloat32")
    arguments = ("listops", "linear", *overrides)
    assert train(tiny_config(*arguments), tmp_path, data_dir) == 0
    one = tiny_trainer("listops", "linear")
    size = one.num_params(one.abstract_state())
    rows = records.read(tmp_path / "rows.jsonl")
    for row in rows:
        assert (row.dtype, row.matmul_precision) == ("bfloat16", "tensorfloat32")
        assert (row.seeds_in_program, row.params) == (2, size)
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [describe(row) for row in rows]


def test_speed_and_wall_time_are_those_of_the_clock(
    tiny_config, data_dir, tmp_path, stop_after, monkeypatch
):
    """Each step takes a quarter of a second, and nothing else takes any."""
    now, real = [100.0], Trainer.train
    monkeypatch.setattr("lra.loop.time.monotonic", lambda: now[0])

    def quarter(self, state, start, count):
        now[0] += 0.25 * count
        return real(self, state, start, count)

    monkeypatch.setattr(Trainer, "train", quarter)
    config = tiny_config(
        "listops", "linear", "train.steps_per_call=2", "train.checkpoint_seconds=0"
    )
    stop_after(3)
    assert train(config, tmp_path, data_dir) == 75
    now[0] += 1000  # between the processes
    stop_after(10**9)
    assert train(config, tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.wall_seconds == 12 * 0.25
    assert row.examples_per_second == 8 / 0.25


def test_a_peak_memory_that_is_not_known_is_none(tiny_config, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "peak_memory_mb", lambda: 0.0)
    assert train(tiny_config("listops", "linear"), tmp_path, data_dir) == 0
    (row,) = records.read(tmp_path / "rows.jsonl")
    assert row.peak_memory_mb is None
