"""What a Python says that lacks packages or is too old."""

import ast
import pathlib
import subprocess
import sys

import pytest

from benchmarks import PACKAGES as BENCHMARKS
from lra import installation
from lra.errors import STATUS_BAD_INPUT
from tests.test_imports import modules

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
    for name in installation._PACKAGES:
        (tmp_path / name).mkdir()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import benchmarks"
    ended = run("-c", code)
    assert ended.stderr.endswith(
        f"ImportError: the package flax is missing in {sys.executable}; {CURE}\n"
    )


def imported_first(module: str) -> set[str]:
    """Modules that are not ours and are imported with `module`, not by a function of it."""
    found, seen, left = set(), set(), [module]
    while left:
        here = left.pop()
        if here in seen:
            continue
        seen.add(here)
        if here not in modules():
            found.add(here.partition(".")[0])
            continue
        left.append(here.rpartition(".")[0] or here)
        for node in ast.parse(modules()[here].read_text()).body:
            if isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                left += [name if name in modules() else node.module for name in inner]
    return found - sys.stdlib_module_names


@pytest.mark.parametrize("part", ["train", "eval", "lra", "benchmarks"])
def test_all_that_commands_import_first_is_asked_for(part):
    """`lra.command_line.run` reports what they import later."""
    asked = {*installation._PACKAGES, *(BENCHMARKS if part == "benchmarks" else ())}
    for name in modules():
        is_command = "\n    run(" in modules()[name].read_text()
        if name.partition(".")[0] == part and is_command:
            assert imported_first(name) <= asked, name


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
