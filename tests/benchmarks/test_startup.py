"""How long a start takes, with programs compiled ahead and without."""

import re

import pytest

import train
from benchmarks import startup
from lra import ahead
from lra.errors import UserError
from tests.lra.conftest import write_listops

CONFIG = "--config=configs/listops.py:linear"
TINY = (
    "train.eval_every=2",
    "train.steps=4",
    "train.warmup_steps=1",
    "train.batch_size=4",
    "train.eval_batch_size=4",
    "model.num_layers=1",
)


@pytest.mark.slow
def test_it_times_both_ways(tmp_path, capsys):
    write_listops(tmp_path)
    overrides = [f"--config.{override}" for override in TINY]
    assert (
        startup.main([CONFIG, f"--data_dir={tmp_path}", "--force", "--repeats=1", *overrides]) == 0
    )
    *_, always, never = capsys.readouterr().out.splitlines()
    for line, when in ((always, "always"), (never, "never")):
        found = re.fullmatch(rf"\| {when} \| (\d+\.\d) \| (\d+\.\d) \|", line)
        assert float(found[1]) == float(found[2]) > 0.5


def test_a_run_that_ends_before_is_told(tmp_path):
    message = r"before its first evaluation: error: no prepared listops in .*; prepare it"
    with pytest.raises(UserError, match=message):
        startup.main([CONFIG, f"--data_dir={tmp_path}/none"])


@pytest.mark.parametrize(("when", "expected"), [("always", True), ("never", False)])
def test_a_child_compiles_ahead_as_told(when, expected, monkeypatch):
    ran = []
    monkeypatch.setattr(ahead, "is_worthwhile", None)  # as it is again afterwards
    monkeypatch.setattr(startup, "run", lambda main, argv: ran.append((main, argv)))
    startup.child(train, [when, CONFIG])
    assert ahead.is_worthwhile() is expected
    assert ran == [(train.main, [CONFIG])]
