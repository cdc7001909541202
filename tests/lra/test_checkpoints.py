"""Which checkpoints count, and what is gone on with where one is damaged."""

import os
import pathlib
from typing import NamedTuple

import numpy as np
import pytest

from lra.checkpoints import Checkpoints, Progress
from lra.errors import UserError
from lra.loop import train
from lra.stopping import STATUS_STOPPED
from tests.lra.trainings import final_state, rows_of, shapes_of_state

pytestmark = pytest.mark.usefixtures("shared_programs")


def test_only_whole_checkpoints_count(tiny_trainer, tmp_path, capsys):
    trainer = tiny_trainer("listops", "linear")
    checkpoints, abstract = Checkpoints(tmp_path), trainer.abstract_state()
    checkpoints.save(trainer.init(), Progress(step=3))
    hashes = tmp_path / "1.sha256.json"
    content = hashes.read_text()
    hashes.unlink()  # as by a kill before they were written
    assert checkpoints.restore(abstract) is None
    assert capsys.readouterr().err == ""
    hashes.write_text(content)
    checkpoints.save(trainer.init(), Progress(step=5))
    min(path for path in (tmp_path / "2").rglob("*") if path.is_file()).unlink()
    _, progress = checkpoints.restore(abstract)
    checkpoints.close()
    assert progress.step == 3
    assert "is damaged or missing" in capsys.readouterr().err


def test_files_that_others_put_beside_the_arrays_do_no_harm(tiny_trainer, tmp_path, capsys):
    trainer = tiny_trainer("listops", "linear")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(trainer.init(), Progress(step=3))
    for folder in (tmp_path / "1", tmp_path / "1" / "state"):
        (folder / ".DS_Store").write_text("a browser of files was here")
    _, progress = checkpoints.restore(trainer.abstract_state())
    checkpoints.close()
    assert progress.step == 3
    assert capsys.readouterr().err == ""


def test_a_checkpoint_of_later_code_is_refused(tiny_trainer, tmp_path):
    later = NamedTuple("later", [*Progress.__annotations__.items(), ("pages", int)])
    trainer, checkpoints = tiny_trainer("listops", "linear"), Checkpoints(tmp_path)
    checkpoints.save(trainer.init(), later(*Progress(), pages=1))
    with pytest.raises(UserError, match="1 has other fields than this code knows; go on with the"):
        checkpoints.restore(trainer.abstract_state())
    checkpoints.close()


def flip_a_bit(folder):
    """Of the largest file in it."""
    victim = max((path for path in folder.rglob("*") if path.is_file()), key=os.path.getsize)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)


def test_a_damaged_checkpoint_is_skipped(tiny_config, data_dir, tmp_path, capsys):
    config = tiny_config("listops", "linear", "train.checkpoint_seconds=0")
    train(config, tmp_path, data_dir)
    _, whole = final_state(config, data_dir, tmp_path)
    folder = tmp_path / "checkpoints"
    earlier, latest = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    assert 2 < latest == earlier + 1, "of many checkpoints the last two are kept"
    flip_a_bit(folder / str(latest))
    checkpoints = Checkpoints(folder)
    state, progress = checkpoints.restore(shapes_of_state(config, data_dir))
    assert progress.wall_seconds < whole.wall_seconds
    assert "is damaged or missing: skipped" in capsys.readouterr().err
    checkpoints.save(state, progress)  # in place of the damaged one, not of the one before
    checkpoints.close()
    kept = {str(number) for number in (earlier, latest + 1)}
    assert {path.name for path in folder.iterdir()} == {
        *kept,
        *(f"{number}.sha256.json" for number in kept),
    }
    for hashes in folder.glob("*.sha256.json"):
        hashes.write_text("[]")
    with pytest.raises(UserError, match="no undamaged checkpoint"):
        final_state(config, data_dir, tmp_path)


def test_evaluations_of_a_checkpoint_that_is_lost_are_not_gone_on_with(
    tiny_config, data_dir, tmp_path, stop_after, monkeypatch
):
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path / "whole", data_dir) == 0
    stop_after(4)
    assert train(config, tmp_path / "parts", data_dir) == STATUS_STOPPED
    stop_after(10**9)
    with monkeypatch.context() as patch:
        patch.setattr("lra.loop.make_rows", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(config, tmp_path / "parts", data_dir)
    folder = tmp_path / "parts" / "checkpoints"
    # A slow machine saves more than once in a start.
    flip_a_bit(max(filter(pathlib.Path.is_dir, folder.iterdir()), key=lambda path: int(path.name)))
    for path in (tmp_path / "parts" / "evaluations").iterdir():
        with np.load(path) as saved:  # as of other parameters
            np.savez(path, **{**saved, "logits": np.roll(saved["logits"], 1, axis=-1)})
    assert train(config, tmp_path / "parts", data_dir) == 0
    assert rows_of(tmp_path / "parts") == rows_of(tmp_path / "whole")
