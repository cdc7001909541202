"""What a run tells of its seeds while it goes on."""

import collections
import contextlib
import io
import itertools
import json
import pathlib
import struct
import sys
import types

import numpy as np
import pytest

from lra.evaluation_run import Evaluation
from lra.programs import CallMetrics
from lra.report import curves
from lra.reporter import Reporter, describe, describe_start
from lra.settings import load_config, to_json
from tests.lra.row_factory import diverged_row, make_row


@pytest.fixture
def report_two_seeds(tmp_path):
    """Report a call and an evaluation of seeds 0 and 5, the latter `alive` or not."""

    def report(alive, tensorboard=None):
        metrics = tmp_path / "metrics.jsonl"
        reporter = Reporter(
            (0, 5), steps=4, step=0, evaluated=0, metrics=metrics, tensorboard=tensorboard
        )
        steps = np.array([-1, -1 if alive else 0])  # in its first step
        one, other = np.float32([1.5, 2.5]), np.float32([0.25, 0.75])
        reporter.trained(2, 2, CallMetrics(one, other, steps), 200, 2.0)
        reporter.evaluated(2, Evaluation(other, one, np.zeros((2, 3, 2))), steps < 0)
        reporter.close()
        return [json.loads(line) for line in metrics.read_text().splitlines()]

    return report


@pytest.mark.parametrize(("alive", "loss", "accuracy"), [(True, 2.5, 0.75), (False, None, None)])
def test_of_a_diverged_seed_nothing_is_told(report_two_seeds, capsys, alive, loss, accuracy):
    for line in report_two_seeds(alive):
        assert (line["loss"], line["accuracy"]) == ([1.5, loss], [0.25, accuracy])
    said = "accuracy 0.2500 0.7500, loss 1.5000 2.5000"
    if not alive:
        said = "accuracy 0.2500 diverged, loss 1.5000 diverged"
    assert f"step 2/4: validation {said}, 100 examples/s" in capsys.readouterr().err


def test_a_reader_that_has_gone_ends_no_training(report_two_seeds, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    assert len(report_two_seeds(True)) == 2


def test_the_pace_is_told_once_after_the_call_that_compiles(tmp_path, capsys):
    one = np.float32([0.5])
    reporter = Reporter(
        (0,), steps=1000, step=0, evaluated=0, metrics=tmp_path / "metrics.jsonl", tensorboard=None
    )
    for step, count, seconds in ((1, 1, 31.6), (3, 2, 4.0), (4, 1, 1.0)):
        metrics = CallMetrics(one, one, np.array([-1]))
        reporter.trained(step, count, metrics, 32 * count, seconds)
    reporter.close()
    assert capsys.readouterr().err == (
        "first call after 32 s, most of it compilation; now 0.5 steps/s: 33:14 left, evaluations "
        "aside\n"
    )


def test_an_evaluation_tells_how_long_the_rest_takes(tmp_path, capsys):
    one = np.float32([0.5])
    reporter = Reporter(
        (0,), steps=1000, step=0, evaluated=0, metrics=tmp_path / "metrics.jsonl", tensorboard=None
    )
    reporter._bar = types.SimpleNamespace(format_dict={"rate": 0.5}, close=lambda: None)
    reporter.evaluated(400, Evaluation(one, one, np.zeros((1, 3, 2))), [True])
    reporter.close()
    assert capsys.readouterr().err.endswith(" examples/s, 20:00 left\n")


@pytest.mark.parametrize(
    ("step", "steps"), [(0, "to step 5,000"), (1200, "from step 1,200 to step 5,000")]
)
@pytest.mark.parametrize(
    ("data", "source"),
    [
        ("generated", "data generated"),
        ("differs (50 examples)", "data differs (50 examples): not LRA's"),
    ],
)
def test_the_first_line_says_what_is_trained(step, steps, data, source):
    config = load_config("configs/listops.py:nystrom", ["seeds=(0, 5)"])
    assert describe_start(config, data, "2 x a device", 207_018, step, pathlib.Path("runs/x")) == (
        f"listops nystrom, {source}, 207,018 parameters, seeds 0 5, {steps}, "
        "in float32 on 2 x a device, in runs/x; compiling"
    )


def test_a_diverged_seed_is_in_no_curve(report_two_seeds, tmp_path):
    report_two_seeds(alive=False)
    (tmp_path / "config.json").write_text(to_json(load_config("configs/listops.py:nystrom")))
    ((run,),) = curves.histories([tmp_path]).values()
    assert run.loss == ([1.5], [1.5], [[1.5]])
    assert run.accuracy == ([2], [0.25], [[0.25]])


def test_a_diverged_seed_has_no_events(report_two_seeds, tmp_path):
    pytest.importorskip("tensorboardX")
    report_two_seeds(alive=False, tensorboard=tmp_path / "events")
    (events,) = (tmp_path / "events").iterdir()
    for name in ("train/loss", "validation/accuracy"):
        assert f"{name}/seed_0".encode() in events.read_bytes()
        assert f"{name}/seed_5".encode() not in events.read_bytes()


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("is_event", [False, True])
def test_a_full_disk_is_told_with_the_place(tmp_path, is_event):
    pytest.importorskip("tensorboardX")
    metrics, folder = tmp_path / "metrics.jsonl", tmp_path / "events"
    reporter = Reporter((0,), steps=4, step=0, evaluated=0, metrics=metrics, tensorboard=folder)
    numbers = np.float32([0.5])
    with open("/dev/full", "wb", buffering=0) as full:
        if is_event:
            record = reporter._events._writer._py_recordio_writer
            record._writer.close()
            record._writer = full
        else:
            reporter._metrics.close()
            reporter._metrics._file = io.TextIOWrapper(full, write_through=True)
        with pytest.raises(OSError, match="No space left") as error:
            reporter.trained(2, 2, CallMetrics(numbers, numbers, np.array([-1])), 2, 2.0)
        with contextlib.suppress(OSError):
            reporter.close()
    assert error.value.filename == (str(folder) if is_event else "/dev/full")


def shown_events(folder):
    """How often TensorBoard shows each tag at each step: a start hides what it begins again."""
    from tensorboardX.proto import event_pb2

    shown = collections.Counter()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = event_pb2.Event.FromString(content[12 : 12 + length])  # between two checksums
            content = content[16 + length :]
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = collections.Counter(
                    {at: n for at, n in shown.items() if at[1] < event.step}
                )
            shown.update((value.tag, event.step) for value in event.summary.value)
    return shown


@pytest.mark.parametrize("evaluated", [0, 2])
def test_after_an_earlier_checkpoint_no_event_is_shown_twice(tmp_path, evaluated):
    pytest.importorskip("tensorboardX")
    numbers = np.float32([0.5])

    def start(step, evaluated):
        return Reporter(
            (0,),
            steps=4,
            step=step,
            evaluated=evaluated,
            metrics=tmp_path / "metrics.jsonl",
            tensorboard=tmp_path / "events",
        )

    def train(reporter, step):
        reporter.trained(step, 2, CallMetrics(numbers, numbers, np.array([-1])), 2, 2.0)

    def evaluate(reporter, step):
        of_step = Evaluation(numbers, numbers, np.zeros((1, 3, 2)))
        reporter.evaluated(step, of_step, [True])

    killed = start(step=0, evaluated=0)
    for step in (2, 4):
        train(killed, step)
        evaluate(killed, step)
    killed.close()
    (events,) = (tmp_path / "events").iterdir()
    events.rename(events.with_name("events.out.tfevents.0"))  # names have seconds
    again = start(step=2, evaluated=evaluated)
    if evaluated < 2:
        evaluate(again, 2)
    train(again, 4)
    evaluate(again, 4)
    again.close()
    told = itertools.product(("train", "validation"), ("loss", "accuracy"), (2, 4))
    once = {(f"{kind}/{metric}/seed_0", step): 1 for kind, metric, step in told}
    assert shown_events(tmp_path / "events") == once


def test_the_last_lines_of_a_run():
    row = make_row(0.25, test_accuracy_last=0.125, val_accuracy=0.5, best_step=7, seed=3)
    assert describe(row) == (
        "seed 3: test accuracy 0.2500 with the parameters of step 7 (validation 0.5000), "
        "0.1250 with the last"
    )
    assert describe(diverged_row(9, seed=4)) == "seed 4: diverged at step 9"
