"""Every bad input ends with status 2, one line that names its cause, and no file changed."""

import hashlib
import importlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from lra.command_line import run
from lra.errors import STATUS_BAD_INPUT
from lra.seals import seal, unseal
from tests.bad_inputs import cases
from tests.small_world import ROOT, Case, build

CASES = cases()
# One of each command as its own process, as a user runs it.
AS_PROCESSES = {case.command.split()[0]: case for case in CASES if case.before}
_MODULES = {
    "train.py": "train",
    "eval.py": "eval",
    "lra.analysis": "lra.analysis.__main__",
    "lra.data.prepare": "lra.data.prepare",
    "lra.data.inspect": "lra.data.inspect",
    "lra.report": "lra.report.__main__",
    "lra.sweep": "lra.sweep.__main__",
}


def execute(command: str) -> int:
    """Run a command in this process, as its own would; return its exit status."""
    name, *arguments = shlex.split(command)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            run(importlib.import_module(_MODULES[name]).main, arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    return end.value.code


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Every path below `folder`, with a hash of what is in it, but locks and Python's own cache."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(".lock") and "__pycache__" not in path.parts
    }


def _content(path: pathlib.Path) -> str:
    if not path.exists():
        return "a link to nothing"
    return "a folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """What all cases find; built once."""
    world = tmp_path_factory.mktemp("template")

    def train(command: str) -> None:
        here = pathlib.Path.cwd()
        os.chdir(world)
        try:
            assert execute(command) == 0
        finally:
            os.chdir(here)

    build(world, train)
    return world


@pytest.fixture
def world(case, template, tmp_path, monkeypatch):
    """The working directory: the template, or a copy of it for a case that changes something."""
    folder = template
    if case.before:
        folder = shutil.copytree(template, tmp_path / "world", symlinks=True)
        run_file = folder / "run" / "run.json"
        text = unseal(run_file.read_bytes()).decode()
        run_file.write_text(seal(text.replace(str(template), str(folder))))
    monkeypatch.chdir(folder)
    return folder


def check_line(case: Case, stderr: str) -> None:
    lines = stderr.splitlines()
    assert lines, "nothing on stderr"
    assert lines[-1].startswith("error: ")
    assert case.cause in lines[-1]
    assert case.notes or len(lines) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.split()[0]}: {case.cause}")
def test_bad_input(case, world, capsys):
    if case.before:
        case.before(world)
    before = contents(world)
    assert execute(case.command) == STATUS_BAD_INPUT
    output, errors = capsys.readouterr()
    check_line(case, errors)
    assert output == ""
    assert contents(world) == before


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=name, marks=() if name in ("train.py", "lra.report") else pytest.mark.slow
        )
        for name, case in AS_PROCESSES.items()
    ],
)
def test_bad_input_to_a_process(case, world):
    case.before(world)
    before = contents(world)
    name, *arguments = shlex.split(case.command)
    command = [str(ROOT / name)] if name.endswith(".py") else ["-m", name]
    ended = subprocess.run(
        [sys.executable, *command, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (STATUS_BAD_INPUT, "")
    check_line(case, ended.stderr)
    assert contents(world) == before


def test_there_are_enough_of_them():
    assert len(CASES) > 200
    assert {case.command.split()[0] for case in CASES} == set(_MODULES)
