"""An evaluation that takes longer than any start lives is finished all the same."""

import contextlib
import io

import numpy as np
import pytest

from lra import hosts
from lra.checkpoints import Checkpoints
from lra.evaluation_files import SavedEvaluations
from lra.evaluation_run import EvaluationRun
from lra.loop import train
from lra.stopping import STATUS_STOPPED, Stop, Stopped
from tests.lra.trainings import rows_of

pytestmark = pytest.mark.usefixtures("shared_programs")


@pytest.fixture
def advances(monkeypatch):
    """The batches of each evaluation call; a start is told to stop after its first."""
    counts, told = [], [False]
    arguments = EvaluationRun.arguments

    def arguments_of_the_last_call(self, count):
        counts.append(count)
        told[0] = True
        return arguments(self, count)

    def before(self, seconds):
        self.reason = "a test" if told[0] else None
        return told[0]

    make = Stop.__init__

    def make_anew(self, *arguments):
        told[0] = False
        make(self, *arguments)

    monkeypatch.setattr(EvaluationRun, "arguments", arguments_of_the_last_call)
    monkeypatch.setattr(Stop, "before", before)
    monkeypatch.setattr(Stop, "__init__", make_anew)
    return counts


def start_until_complete(config, workdir, data_dir, most):
    for starts in range(1, most + 1):
        if train(config, workdir, data_dir) != STATUS_STOPPED:
            return starts
    pytest.fail(f"not complete after {most} starts")


def test_no_batch_is_evaluated_twice(tiny_config, data_dir, tmp_path, advances, monkeypatch):
    # A batch holds all 13 or 21 examples: validation, test of the best and of the last parameters.
    config = tiny_config("listops", "linear", "train.eval_every=12", "train.eval_batch_size=24")
    start_until_complete(config, tmp_path / "parts", data_dir, most=10)
    assert advances == [1, 1, 1]
    assert not (tmp_path / "parts" / "evaluations").exists()
    monkeypatch.setattr(Stop, "before", lambda self, seconds: False)
    assert train(config, tmp_path / "whole", data_dir) == 0
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")


@pytest.mark.parametrize("link", [False, True])
def test_the_folder_may_be_a_link_and_hold_other_files(
    tiny_config, data_dir, tmp_path, advances, link
):
    workdir, folder = tmp_path / "run", tmp_path / "elsewhere"
    workdir.mkdir()
    if link:
        (workdir / "evaluations").symlink_to(folder)
    else:
        folder = workdir / "evaluations"
    (folder / "inner.npz").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    config = tiny_config("listops", "linear", "train.eval_every=12", "train.eval_batch_size=24")
    start_until_complete(config, workdir, data_dir, most=10)
    assert {path.name for path in folder.iterdir()} == {"inner.npz", "notes.txt"}


def test_what_was_evaluated_beside_a_lost_checkpoint_begins_again(
    tiny_config, data_dir, tmp_path, advances, monkeypatch
):
    """Steps that are made again lead to the same parameters only up to rounding."""
    config = tiny_config("listops", "linear", "train.eval_every=12")  # 2 batches of validation
    for damaged in (False, True):
        monkeypatch.setattr(Checkpoints, "any_damaged", lambda self, told=damaged: told)
        assert train(config, tmp_path, data_dir) == STATUS_STOPPED
        with np.load(tmp_path / "evaluations" / "validation-12.npz") as arrays:
            assert arrays["done"] == 1
    assert advances == [1, 1]


def test_a_run_from_the_start_takes_nothing_over(tiny_config, data_dir, tmp_path, advances):
    """Its first steps may lead elsewhere than those that were evaluated."""
    config = tiny_config("listops", "linear", "train.eval_every=12")  # 2 batches of validation
    assert train(config, tmp_path, data_dir) == STATUS_STOPPED
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    assert train(config, tmp_path, data_dir) == STATUS_STOPPED
    with np.load(tmp_path / "evaluations" / "validation-12.npz") as arrays:
        assert arrays["done"] == 1
    assert advances == [1, 1]


def test_a_file_that_is_damaged_or_does_not_fit_begins_again(
    tiny_trainer, tmp_path, capsys, monkeypatch
):
    trainer = tiny_trainer(
        "listops", "linear", "train.eval_every=12", "train.eval_batch_size=16"
    )  # 2 batches
    params, rest = trainer.init().params, trainer.init().rest
    folder = tmp_path / "evaluations"

    def batches_of_a_start(most):
        """How many batches a start has evaluated that is stopped before its `most`-th call."""
        begun = []

        def before_call(seconds):
            begun.append(seconds)
            if len(begun) == most:
                raise Stopped

        evaluations = SavedEvaluations(trainer, folder)
        with contextlib.suppress(Stopped):
            evaluations.evaluate("test-best", params, rest, "test", before_call)
        evaluations.save()
        return len(begun)

    batches_of_a_start(2)
    (saved,) = folder.iterdir()
    assert saved.name == "test-best.npz"
    sound, middle = saved.read_bytes(), saved.stat().st_size // 2
    with np.load(saved) as arrays:
        assert arrays["done"] == 1
        fewer, reversed_order = io.BytesIO(), io.BytesIO()
        np.savez(fewer, **{**arrays, "logits": arrays["logits"][:, :1]})
        np.savez(reversed_order, **{**arrays, "order": arrays["order"][::-1]})
    entry = sound.rfind(b"PK\x01\x02")  # of the last array, in the table of contents

    def flipped(place):
        return sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :]

    for content, left, said in (
        (sound, 1, False),
        (flipped(middle), 2, True),
        (flipped(entry + 8), 2, True),  # as if it were encrypted
        (flipped(entry + 10), 2, True),  # compressed in a way that nobody knows
        (sound[:100], 2, True),
        (b"", 2, True),
        (fewer.getvalue(), 2, False),
        (reversed_order.getvalue(), 2, False),
    ):
        saved.write_bytes(content)
        assert batches_of_a_start(9) == left
        assert ("damaged: this evaluation begins again" in capsys.readouterr().err) is said
    # Another host sees no file, or an older one: both go on from what both have.
    saved.write_bytes(sound)
    others = [0]
    monkeypatch.setattr(hosts, "least", lambda number: others.pop() if others else number)
    assert batches_of_a_start(9) == 2
    SavedEvaluations(trainer, folder).save()
    assert not folder.exists()
