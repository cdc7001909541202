"""What a Python says that lacks packages or is too old."""

import ast
import pathlib
import subprocess
import sys

import pytest

from lra import installation
from lra.command_line import STATUS_BAD_INPUT

ROOT = pathlib.Path(__file__).resolve().parents[2]
CURE = "run make install and activate it: source .venv/bin/activate"
COMMANDS = [
    "train.py --config=configs/listops.py:nystrom --workdir=x",
    "eval.py --workdir=x",
    "-m lra.report x.jsonl",
    "-m lra.sweep x.py",
    "-m lra.data.prepare listops",
    "-m lra.data.inspect listops",
    "-m lra.analysis",
    "-m benchmarks.train_step",
]
# What runs before an old Python has been told so.
READ_FIRST = (
    "train.py",
    "eval.py",
    "lra/__init__.py",
    "lra/installation.py",
    "lra/stderr.py",
    "benchmarks/__init__.py",
)


def run(*arguments, folder=ROOT):
    """Run Python without the packages that are installed."""
    return subprocess.run(
        [sys.executable, "-ESB", *arguments], cwd=folder, capture_output=True, text=True
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_missing_package(command):
    ended = run(*command.split())
    assert (ended.returncode, ended.stdout) == (STATUS_BAD_INPUT, "")
    line = f"error: the package absl is missing in {sys.executable}; {CURE}\n"
    assert ended.stderr == line


def test_benchmarks_name_the_packages_that_they_import_first(tmp_path):
    for name in ("absl", "filelock", "ml_collections", "numpy", "tqdm"):
        (tmp_path / name).mkdir()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import benchmarks"
    ended = run("-c", code)
    assert ended.stderr.endswith(
        f"ImportError: the package flax is missing in {sys.executable}; {CURE}\n"
    )


@pytest.mark.parametrize("argument", ["-c", "script.py"])
def test_other_programs_get_an_exception(argument, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "try:\n    import lra\nexcept ImportError as error:\n    print(error)"
    )
    (tmp_path / "script.py").write_text(code)
    ended = run(*(["-c", code] if argument == "-c" else [argument]), folder=tmp_path)
    line = f"the package absl is missing in {sys.executable}; {CURE}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, line, "")


def test_an_old_python_is_told_so(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 10, "final", 0))
    with pytest.raises(ImportError) as error:
        installation.check()
    assert str(error.value) == (f"{sys.executable} is Python 3.8, 3.11 to 3.13 is needed; {CURE}")


@pytest.mark.parametrize("name", READ_FIRST)
def test_an_old_python_can_read_what_tells_it_so(name):
    ast.parse((ROOT / name).read_text(), feature_version=(3, 8))


def test_nothing_is_said_where_all_is_installed():
    installation.check()


def test_what_is_ours():
    assert all(map(installation.is_ours, ("lra.data.parity", "configs", "train", "tests.x")))
    assert not any(map(installation.is_ours, ("absl", "jax.numpy", "no")))
