"""The comparison of cut and whole batches."""

import pytest

from benchmarks import length_buckets
from lra import plan
from lra.data import prepared
from lra.errors import UserError
from lra.settings import load_config
from lra.trainer import Trainer
from tests.lra.conftest import ONE_DEVICE, TINY, write_listops

FLAGS = ["--tasks=listops", "--attentions=linear", "--rounds=1", "--seconds=0.01"]


@pytest.fixture(autouse=True)
def tiny(tmp_path, monkeypatch):
    """Sequences of 3 to 14 positions."""
    write_listops(tmp_path)
    config = load_config("configs/listops.py:linear", (*TINY, *ONE_DEVICE))

    def make_trainer(case, **options):
        return Trainer(config, prepared.load(tmp_path, "listops"), **options)

    monkeypatch.setattr(length_buckets, "make_trainer", make_trainer)


@pytest.mark.slow
def test_a_task_with_padding_has_a_line(monkeypatch, capsys):
    monkeypatch.setattr(plan, "_MIN_PADDED", 1)
    monkeypatch.setattr(plan, "_STEP", 2)
    assert length_buckets.main(FLAGS) == 0
    titles, _, line = capsys.readouterr().out.splitlines()
    cells = line.split(" | ")
    assert len(cells) == len(titles.split(" | "))
    assert cells[2].split(", ")[-1] == "16"
    for without, cut, ratio in (cells[5:8], cells[8:11]):
        shown = float(ratio.strip(" |"))
        assert shown == pytest.approx(float(cut) / float(without), rel=0.05, abs=0.01)


def test_nothing_to_cut_is_an_error():
    with pytest.raises(UserError, match="nothing to compare: these tasks have little"):
        length_buckets.main(FLAGS)
