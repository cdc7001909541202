"""What CONTRIBUTING.md says of new attentions and tasks, followed to the letter in a copy."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
ATTENTION, COMPARISON, FULL, TASK = (
    textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)^ *```$", PAGE, re.M | re.S)
)
# What a line is to be added to, in the order of the page: file, the line before it.
PLACES = {
    '"sigmoid": SigmoidAttention,': ("models/attention/__init__.py", "= {"),
    '"sigmoid": {"bias": 0.0},': ("configs/default.py", "ATTENTIONS = {"),
    '"sigmoid": Case({}, linear_memory=False),': ("tests/attention_cases.py", "CASES = {"),
    '"parity": "lra.data.parity",': ("lra/data/request.py", "MODULES = {"),
    'Task("parity", "Parity", vocab_size=3, first_id=0, num_classes=2),': ("lra/tasks.py", "in ("),
}
TINY = ("num_layers=1", "dim=16", "mlp_dim=16", "head_dim=8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources with the attention and the task of the page."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("configs", "lra", "models", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("train.py", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for name, code in (("models/attention/sigmoid.py", ATTENTION), ("lra/data/parity.py", TASK)):
        assert f"1. `{name}`:" in PAGE
        (root / name).write_text(code)
    config = (root / "configs/listops.py").read_text()
    (root / "configs/parity.py").write_text(config.replace('"listops"', '"parity"'))
    for line, (name, before) in PLACES.items():
        assert f"`{line}`" in PAGE
        _insert(root / name, before, f"    {line}")
    _insert(
        root / "models/attention/__init__.py",
        "import ReformerAttention",
        "from models.attention.sigmoid import SigmoidAttention",
    )
    return root


def _insert(path, before, line):
    lines = path.read_text().splitlines()
    (place,) = [i for i, each in enumerate(lines) if each.endswith(before)]
    path.write_text("\n".join([*lines[: place + 1], line, *lines[place + 1 :]]) + "\n")


def run_in(root, *arguments):
    """The output of Python on one device, in the copy."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "LRA_COMMIT": "copy", "XLA_FLAGS": ""}
    env["PYTEST_ADDOPTS"] = ""  # such as -q, without a last line
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_new_attention_trains_on_the_new_task(copy):
    prepared = run_in(copy, "-m", "lra.data.prepare", "parity")
    assert "8,000" in prepared
    shown = run_in(copy, "-m", "lra.data.inspect", "parity", "--examples=1")
    assert re.search(r"label [01]\n  64 tokens\n    [12]( [12])+\n", shown)
    run_in(
        copy,
        "train.py",
        "--config=configs/parity.py:sigmoid",
        "--workdir=run",
        *(f"--config.model.{value}" for value in TINY),
        "--config.train.steps=4",
        "--config.train.eval_every=4",
    )
    (row,) = map(json.loads, (copy / "run/rows.jsonl").read_text().splitlines())
    assert (row["task"], row["attention"], row["status"]) == ("parity", "sigmoid", "ok")
    assert (row["steps"], row["best_step"]) == (4, 4)


def test_the_new_attention_is_compared_with_the_others(copy):
    (copy / "compare.py").write_text(COMPARISON)
    flags = ("--results=runs/compare/rows.jsonl", "--workdir=runs/compare", "--dry_run")
    shown = run_in(copy, "-m", "lra.sweep", "compare.py", *flags)
    assert len(re.findall(r"^missing +listops .*, seeds 0 1", shown, re.M)) == 6
    assert "listops sigmoid" in shown


def test_the_new_attention_is_trained_under_the_full_protocol(copy):
    (copy / "full.py").write_text(FULL)
    flags = ("--results=runs/sigmoid.jsonl", "--dry_run")
    shown = run_in(copy, "-m", "lra.sweep", "full.py", *flags)
    trained = re.findall(r"^missing +(\w+) sigmoid, seeds 0 1 2", shown, re.M)
    assert sorted(trained) == ["image", "listops", "pathfinder", "retrieval", "text"]


def test_the_new_task_is_generated_for_a_sweep_with_its_flags(copy):
    runs = {"config": "configs/parity.py:sigmoid", "seeds": (0, 1)}
    (copy / "own.py").write_text(f"DATA = {{'parity': {{'seed': 1}}}}\nRUNS = [{runs}]\n")
    flags = ("--results=runs/own/rows.jsonl", "--data_dir=other", "--dry_run")
    shown = run_in(copy, "-m", "lra.sweep", "own.py", *flags)
    assert "parity sigmoid, seeds 0 1" in shown
    assert "0 of 2 rows done, 2 missing" in shown


@pytest.mark.slow
def test_the_new_attention_passes_what_all_must(copy):
    everything = ("tests/models", "-k", "sigmoid", "-m", "slow or not slow")
    said = run_in(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *everything)
    assert int(re.search(r"(\d+) passed", said)[1]) > 20


@pytest.mark.slow
def test_the_new_attention_and_task_break_no_other_test(copy):
    """Of those that go over the registries, fast ones that need nothing but the sources."""
    registries = "every_task or schema or any_text"
    arguments = ("tests/lra/test_settings.py", "-k", registries)
    run_in(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


def test_the_new_attention_is_its_formula():
    namespace: dict = {}
    exec(ATTENTION, namespace)
    attention = namespace["SigmoidAttention"](length=6, heads=2, head_dim=3, rngs=None, bias=0.5)
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 6, 2, 3)).astype(np.float32)
    mask = np.array([[True, False, True, True, True, False]])
    scores = np.einsum("blhd,bmhd->bhlm", q, k[:, mask[0]]) / 3**0.5 - np.log(4) + 0.5
    expected = np.einsum("bhlm,bmhd->blhd", 1 / (1 + np.exp(-scores)), v[:, mask[0]])
    found = attention(*map(jnp.asarray, (q, k, v, mask)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
