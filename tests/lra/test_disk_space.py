"""A disk that is full: one line, and everything that was there before is still there."""

import logging
import os
import pathlib
import re
import subprocess
import sys
import types

import numpy as np
import pytest

from lra import disk_space, records
from lra.checkpoints import Checkpoints
from lra.data import prepare, prepared
from lra.disk_space import is_full, room_for
from lra.errors import STATUS_BAD_INPUT, UserError
from lra.loop import train
from tests.lra.conftest import TINY, write_listops
from tests.lra.row_factory import make_row
from tests.lra.test_command_line import ended
from tests.lra.trainings import assert_same_bits, final_state

pytestmark = pytest.mark.usefixtures("shared_programs")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FULL, LIMIT = (OSError(code, os.strerror(code)) for code in (28, 27))
ONE_CPU = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("disks cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(autouse=True)
def silence_ends():
    """After a full disk, what Orbax has left behind is silent up to the end of the process."""
    levels = {name: logging.getLogger(name).level for name in disk_space._LOGGERS}
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def fill(folder: pathlib.Path, *, leaving: int) -> pathlib.Path:
    """A file that takes all space but so many bytes."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                break
        file.truncate(max(0, file.tell() - leaving))
    return ballast


@pytest.fixture
def full_from(monkeypatch):
    """Let the n-th checkpoint and all later ones meet `action` when they are saved."""

    def arrange(number, action):
        save, saved = Checkpoints.save, []

        def save_or_fail(self, state, progress):
            saved.append(progress.step)
            if len(saved) == number:
                action()
            save(self, state, progress)

        monkeypatch.setattr(Checkpoints, "save", save_or_fail)

    return arrange


def test_what_a_full_disk_is_called():
    quota = OSError(122, os.strerror(122))
    for error in (FULL, quota, ValueError(f"write to x: {os.strerror(28)} [os_error_code='28']")):
        assert is_full(error)
    assert not is_full(OSError(2, os.strerror(2)))
    assert not is_full(ValueError("no"))


def test_room_is_asked_for_before_and_while(tmp_path):
    message = r"no space left for it: .* are needed; free some space"
    with pytest.raises(UserError, match=message), room_for("it", tmp_path, 10**18):
        raise AssertionError("not reached")
    with pytest.raises(UserError, match="no space left for it in"), room_for("it", tmp_path, 1):
        raise FULL
    with pytest.raises(OSError, match="other"), room_for("it", tmp_path, 1):
        raise OSError("other")


@pytest.mark.parametrize("error", [LIMIT, ValueError(f"write to x: {os.strerror(27)}")])
def test_a_limit_on_the_size_of_files_is_raised_and_no_space_freed(error, tmp_path):
    message = r"no space left for it in .*; raise the limit .* \(ulimit -f\), then the same command"
    with pytest.raises(UserError, match=message), room_for("it", tmp_path, 1):
        raise error


def test_a_limit_that_a_report_meets_names_the_file(tmp_path):
    """As do rows; writing has no file in its error."""
    records.append(tmp_path / "rows.jsonl", [make_row()])
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", sys.executable]
    command = [*limited, "-m", "lra.report", str(tmp_path / "rows.jsonl"), f"--out={tmp_path}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (STATUS_BAD_INPUT, "")
    assert re.fullmatch(
        rf"error: File too large: {tmp_path}/\S+; raise the limit on the size of a file "
        r"\(ulimit -f\) and run it again\n",
        ended.stderr,
    )
    code = (
        "from lra import records; from tests.lra.row_factory import make_row\n"
        f"records.append({str(tmp_path / 'rows.jsonl')!r}, [make_row(seed=1)])"
    )
    ended = subprocess.run([*limited, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "rows.jsonl: File too large; raise the limit" in ended.stderr


@pytest.mark.slow
def test_a_disk_that_is_full_while_training(tiny_config, data_dir, small_disk, tmp_path, full_from):
    overrides = ("train.steps=6", "train.steps_per_call=1", "train.checkpoint_seconds=0")
    config = tiny_config("listops", "linear", *overrides)
    assert train(config, tmp_path / "whole", data_dir) == 0
    workdir = small_disk / "run"
    full_from(3, lambda: fill(small_disk, leaving=8192))
    with pytest.raises(UserError, match=r"no space left for a checkpoint: .*; free some space"):
        train(config, workdir, data_dir)
    (small_disk / "ballast").unlink()
    assert final_state(config, data_dir, workdir)[1].step == 2
    assert train(config, workdir, data_dir) == 0
    whole, parts = (
        final_state(config, data_dir, folder)[0] for folder in (tmp_path / "whole", workdir)
    )
    assert_same_bits(whole, parts)


def test_a_disk_that_becomes_full_inside_orbax(tiny_config, data_dir, tmp_path, monkeypatch):
    """As above where nothing can be mounted; another process takes the space meanwhile."""
    config = tiny_config("listops", "linear", "train.checkpoint_seconds=0")
    saved = []

    def write_hashes(self, number):
        saved.append(number)
        if len(saved) == 2:
            raise FULL
        return original(self, number)

    original = Checkpoints._write_hashes
    monkeypatch.setattr(Checkpoints, "_write_hashes", write_hashes)
    with pytest.raises(UserError, match="no space left for a checkpoint in"):
        train(config, tmp_path, data_dir)
    first, progress = final_state(config, data_dir, tmp_path)
    assert 0 < progress.step < 12
    assert all(np.all(np.isfinite(x)) for x in first if x.dtype == np.float32)
    assert train(config, tmp_path, data_dir) == 0


@pytest.mark.slow
def test_a_limit_that_orbax_meets_is_told_in_one_line(data_dir, tmp_path):
    """Its threads would print what they raise; free space does not tell of such a limit."""
    command = [sys.executable, "train.py", "--config=configs/listops.py:standard"]
    command += [f"--config.{override}" for override in TINY]
    command += [f"--data_dir={data_dir}", f"--workdir={tmp_path / 'run'}"]
    limited = ["bash", "-c", 'ulimit -f 3; exec "$@"', "bash", *command]  # 3 kB
    ended = subprocess.run(limited, cwd=ROOT, env=ONE_CPU, capture_output=True, text=True)
    assert ended.returncode == 2
    *progress, last = ended.stderr.splitlines()
    assert last.startswith("error: no space left for a checkpoint in")
    assert len(progress) == 5  # the run, its first call and three evaluations
    assert not list((tmp_path / "run" / "checkpoints").glob("*.sha256.json"))


def test_loggers_are_silent_only_as_long_as_something_is_written(tmp_path):
    logger = logging.getLogger("absl")
    before = logger.level, sys.unraisablehook
    with room_for("it", tmp_path, 1):
        assert not logger.isEnabledFor(logging.ERROR)
        assert sys.unraisablehook != before[1]
    assert (logger.level, sys.unraisablehook) == before
    with pytest.raises(OSError, match="other"), room_for("it", tmp_path, 1):
        raise OSError("other")
    assert (logger.level, sys.unraisablehook) == before


def test_of_errors_that_cannot_be_raised_only_those_of_writes_are_left_out():
    told = []
    for text in ("Event loop is closed", "another"):
        error = types.SimpleNamespace(exc_value=RuntimeError(text))
        disk_space._unless_left_behind(lambda each: told.append(str(each.exc_value)), error)
    assert told == ["another"]


def test_a_disk_that_is_full_while_preparing(small_disk, capsys, monkeypatch):
    """The estimate would have refused it; others may take the space after that."""
    write_listops(small_disk)
    before = prepared.load(small_disk, "listops").manifest
    arguments = ["listops", "--train=9000", "--validation=10", "--test=10", "--workers=1"]
    arguments.append(f"--data_dir={small_disk}")
    assert ended(prepare.main, arguments) == STATUS_BAD_INPUT
    assert "free some space or choose another --data_dir" in capsys.readouterr().err
    monkeypatch.setattr(prepare, "_check_space", lambda *_: None)
    assert ended(prepare.main, arguments) == STATUS_BAD_INPUT
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.splitlines() == [
        f"error: no space left in {small_disk} while writing listops; free some space there or "
        "choose another --data_dir"
    ]
    assert prepared.load(small_disk, "listops").manifest == before
    assert sorted(path.name for path in small_disk.iterdir()) == [".listops.lock", "listops"]
