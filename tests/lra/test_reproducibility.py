"""The same configuration gives the same row again, and a row is enough to repeat its run."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from lra import records
from lra.loop import train
from lra.settings import load_config
from tests.lra.conftest import TINY
from tests.lra.trainings import rows_of

pytestmark = pytest.mark.usefixtures("shared_programs")

ROOT = pathlib.Path(__file__).resolve().parents[2]
MESH = ("mesh.seed=2", "mesh.data=1")


def override(key, value):
    """A value of a row as a flag has it; JSON made lists of tuples."""
    return f"{key}={tuple(value) if isinstance(value, list) else value}"


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    """A run with an option of every kind, and its rows."""
    workdir = tmp_path_factory.mktemp("runs") / "first"
    own = ("model.attention.proj_dim=8", "model.attention.share=('heads',)", "data.holdout=0.2")
    overrides = [*TINY, *MESH, *own, "seeds=(3, 1)"]
    assert train(load_config("configs/listops.py:linformer", overrides), workdir, data_dir) == 0
    return workdir


def test_a_row_is_enough_to_repeat_it(trained, data_dir, tmp_path):
    """And the second run gives the identical rows, times aside."""
    first = rows_of(trained)[0]
    seeds = tuple(row.seed for row in rows_of(trained))
    overrides = [override(*item) for item in first.config_overrides.items()]
    spec = f"configs/{first.task}.py:{first.attention}"
    config = load_config(spec, [*overrides, *MESH, f"seeds={seeds}"])
    assert train(config, tmp_path, data_dir) == 0
    assert rows_of(tmp_path) == rows_of(trained)


@pytest.mark.slow
def test_eval_gives_the_accuracy_of_the_row_elsewhere_and_on_one_device(trained, tmp_path):
    """In another directory and process, with one device where training had two."""
    without = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": ""}
    command = [sys.executable, str(ROOT / "eval.py"), f"--workdir={trained}"]
    ended = subprocess.run(command, cwd=tmp_path, env=without, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = records.read(trained / "rows.jsonl")
    assert rows[0].num_devices == 2
    lines = ended.stdout.splitlines()
    for row, line in zip(rows, lines, strict=True):
        numbers = re.findall(r"\d+\.\d+", line)
        best, last = map(float, numbers)
        assert line.startswith(f"seed {row.seed}: test accuracy")
        assert best == pytest.approx(row.test_accuracy, abs=1e-3)
        assert last == pytest.approx(row.test_accuracy_last, abs=1e-3)
