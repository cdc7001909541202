"""Batches are doubled until one does not fit, is too slow, or is more than there is."""

import json

import pytest

from benchmarks import train_case, train_step
from benchmarks.largest_batch import doubled, line, verdict
from lra.data import prepared
from lra.errors import UserError
from lra.settings import load_config
from lra.trainer import Trainer
from tests.lra.conftest import ONE_DEVICE, TINY, write_listops

CASE = {
    "task": "listops",
    "attention": "nystrom",
    "seeds": 1,
    "dtype": "float32",
    "device": "a device",
    "deterministic": True,
}


def device(largest):
    """Try batches on a device that holds `largest`; a step takes a second an example."""

    def ask(batch):
        if batch > largest:
            return CASE | {"batch": batch, "fits": False, "why": "out of memory"}
        speeds = {"seconds_per_step": float(batch), "examples_per_second": 1.0, "needed_mb": 2e3}
        return CASE | {"batch": batch, "fits": True, **speeds}

    return ask


@pytest.mark.parametrize(
    ("largest", "most", "max_seconds", "tried", "end"),
    [
        (20, 1000, 1000, [4, 8, 16, 32], "16 fits, 1 examples/s; 32 does not fit: out of memory"),
        (
            99,
            1000,
            10,
            [4, 8, 16],
            "16 fits, 1 examples/s; its steps take more than 10 s, so larger",
        ),
        (99, 10, 1000, [4, 8], "8 fits, 1 examples/s; twice as many would exceed"),
        (3, 1000, 1000, [4], "4 does not fit: out of memory; try a smaller --batch"),
        (3, 2, 1000, [4], "4 does not fit: out of memory; try a smaller --batch"),
    ],
)
def test_doubling_ends(largest, most, max_seconds, tried, end):
    answers = list(doubled(device(largest), 4, most, max_seconds))
    assert [answer["batch"] for answer in answers] == tried
    assert f"listops, nystrom, seeds in a program: 1: a batch of {end}" in verdict(
        answers, max_seconds
    )


def test_lines_have_what_fits_and_why_not():
    assert line(device(8)(8)) == "| listops | nystrom | 1 | 8 | 1 | 2,000 |"
    assert line(device(8)(16)) == "| listops | nystrom | 1 | 16 | does not fit: out of memory |"


def in_a_process(case, options):
    """A device with room for 100 examples, on which Reformer does not run."""
    task, attention, seeds = case
    if attention == "reformer":
        why = {"failed": True, "crashed": True, "why": "see above"}
        return {"task": task, "attention": attention, "seeds": seeds, **why}
    return device(100)(options.batch) | {"attention": attention, "seconds_per_step": 0.1}


def test_the_command_prints_every_batch_and_what_they_come_to(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_step, "_in_a_process", in_a_process)
    flags = ["--tasks=listops", "--largest_batch", f"--out={tmp_path / 'rows.jsonl'}"]
    assert train_step.main([*flags, "--attentions=nystrom,reformer"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # From the protocol's batch on.
    assert [text.split(" | ")[3] for text in lines[2:6]] == ["32", "64", "128", "32"]
    assert "a batch of 64 fits, 1 examples/s; 128 does not fit: out of memory" in lines[-2]
    assert lines[-1] == "listops, reformer, seeds in a program: 1: a batch of 32 failed: see above"
    rows = [json.loads(text) for text in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["fits"] for row in rows] == [True, True, False, False]
    with pytest.raises(UserError, match="no case could be measured"):
        train_step.main([*flags, "--attentions=reformer"])
    with pytest.raises(UserError, match="no --profile, no --compile_at_once"):
        train_step.main([*flags, "--profile=x"])


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """What a case is tried with."""
    write_listops(tmp_path)
    config = load_config("configs/listops.py:standard", (*TINY, *ONE_DEVICE))
    made = Trainer(config, prepared.load(tmp_path, "listops"))
    monkeypatch.setattr(train_case, "make_trainer", lambda case: made)
    monkeypatch.setattr(train_case, "_TRIAL_SECONDS", 0.0)
    return made


TINY_CASE = train_case.TrainCase("listops", "standard", 1, "float32", 8)


def test_a_batch_that_fits_has_a_speed(trainer):
    row = json.loads(json.dumps(train_case.trial(TINY_CASE)))
    assert (row["fits"], row["batch"]) == (True, 8)
    assert row["examples_per_second"] == pytest.approx(8 / row["seconds_per_step"])
    assert row["needed_mb"] > 0


def test_a_batch_that_needs_more_than_the_device_has_is_not_run(trainer, monkeypatch):
    monkeypatch.setattr(train_case, "device_bytes", lambda: 1000)
    monkeypatch.setattr(train_case, "time_steps", None)
    row = train_case.trial(TINY_CASE)
    assert not row["fits"]
    assert row["why"].endswith("GB of 0.0")


def test_a_batch_that_runs_out_of_memory_does_not_fit_and_other_errors_are_told(
    trainer, monkeypatch
):
    """On a device that does not tell its memory."""

    def fails(error):
        def time_steps(*_, **__):
            raise error

        return time_steps

    monkeypatch.setattr(train_case, "device_bytes", lambda: None)
    monkeypatch.setattr(train_case, "time_steps", fails(RuntimeError("RESOURCE_EXHAUSTED: 9 GB")))
    row = train_case.trial(TINY_CASE)
    assert (row["fits"], row["why"]) == (False, "out of memory")
    monkeypatch.setattr(train_case, "time_steps", fails(ValueError("something else")))
    with pytest.raises(ValueError, match="something else"):
        train_case.trial(TINY_CASE)
