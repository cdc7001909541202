"""train.py and eval.py as a user runs them; what they refuse is in test_bad_input.py."""

import os
import pathlib
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
    "command",
    [
        ["train.py", "--config=configs/listops.py", "--workdir=nowhere"],
        ["eval.py", "--workdir=x"],
        pytest.param(
            ["-m", "benchmarks.train_step", "--tasks=listops", "--attentions=linear"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["-m", "benchmarks.standard_memory"], marks=pytest.mark.slow),
    ],
)
def test_a_device_that_is_not_there(command):
    ended = run(*command, JAX_PLATFORMS="rocm")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "JAX cannot be used here: it finds no device for JAX_PLATFORMS='rocm'" in ended.stderr


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("JAX_ENABLE_X64", "perhaps", "invalid truth value 'perhaps'"),
        ("FLAX_USE_ORBAX_CHECKPOINTING", "perhaps", "invalid truth value 'perhaps'"),
        ("JAX_DISABLE_JIT", "1", "JAX_DISABLE_JIT is set, and training needs jit; unset it"),
    ],
)
def test_a_variable_that_jax_or_flax_cannot_work_with(name, value, cause):
    ended = run("train.py", "--config=configs/listops.py", "--workdir=nowhere", **{name: value})
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert f"JAX cannot be used here: {cause}" in ended.stderr


def test_a_config_file_that_returns_nothing_is_reported_in_one_line(tmp_path):
    """ml_collections would add a warning, which only a process shows."""
    (tmp_path / "mine.py").write_text("def get_config(attention=None):\n    pass\n")
    ended = run("train.py", f"--config={tmp_path / 'mine.py'}", "--print_config")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


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
