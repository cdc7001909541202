"""train.py and eval.py as a user runs them: exit status and the one line on stderr."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*command, **variables):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | variables,
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["train.py"], "required: --config"),
        (["train.py", "--config=configs/listops.py"], "--workdir=DIR is needed"),
        (["train.py", "--confg=configs/listops.py"], "did you mean '--config'?"),
        (["train.py", "--config=configs/lstops.py", "--workdir=x"], "configs/listops.py"),
        (["train.py", "--config=configs/listops.py:nystrm", "--workdir=x"], "'nystrom'"),
        (["train.py", "--config=configs/listops.py", "--config.seed=1"], "'seeds'"),
        (["train.py", "--config=configs/default.py:nystrom", "--workdir=x"], "unknown task"),
        (["train.py", "--config=configs/listops.py", "--config.seeds=()", "--workdir=x"], "empty"),
        (
            ["train.py", "--config=configs/listops.py", "--budget_minutes=-1"],
            "not a positive number of minutes",
        ),
        (["train.py", "--config=configs/listops.py", "--budget_minutes=soon"], "budget_minutes"),
        (["eval.py"], "required: --workdir"),
        (["eval.py", "--workdir=nowhere"], "nowhere holds no run"),
        (["eval.py", "--workdir=nowhere", "--split=dev"], "invalid choice: 'dev'"),
    ],
)
def test_mistakes_end_with_status_2_and_one_line(command, expected):
    ended = run(*command)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("error: ")
    assert expected in ended.stderr


def test_data_that_are_not_prepared_leave_no_workdir(tmp_path):
    ended = run(
        "train.py",
        "--config=configs/listops.py",
        f"--workdir={tmp_path / 'run'}",
        f"--data_dir={tmp_path}",
    )
    assert ended.returncode == 2
    assert f"python -m lra.data.prepare listops --data_dir={tmp_path}" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [["train.py", "--config=configs/listops.py", "--workdir=nowhere"], ["eval.py", "--workdir=x"]],
)
def test_a_device_that_is_not_there(command):
    ended = run(*command, JAX_PLATFORMS="rocm")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "JAX finds no device for JAX_PLATFORMS='rocm'" in ended.stderr


def test_print_config_shows_keys_and_protocol():
    ended = run("train.py", "--config=configs/image.py:performer", "--print_config")
    assert ended.returncode == 0
    assert "train.steps = 35000" in ended.stdout
    assert "model.attention.num_features = 256" in ended.stdout
    assert ended.stdout.endswith("protocol: table3\n")
    changed = run(
        "train.py",
        "--config=configs/image.py:performer",
        "--config.train.steps",
        "9000",
        "--print_config",
    )
    assert changed.stdout.endswith("protocol: changed: train.steps=9000\n")


def test_help_names_every_flag():
    ended = run("train.py", "--help")
    assert ended.returncode == 0
    listed = set(re.findall(r"--[a-z_]+", ended.stdout))
    read = set(re.findall(r'"(--[a-z_]+)"', (ROOT / "train.py").read_text()))
    assert len(read) == 11
    assert read <= listed
