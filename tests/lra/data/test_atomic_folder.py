"""The folder of a task under kills and competition: real processes."""

import errno
import signal
import subprocess
import sys

import pytest

from lra.data import atomic_folder
from lra.data.prepared import load
from lra.data.task_writer import TaskWriter
from tests.lra.data.test_prepared import write
from tests.lra.data.test_task_writer import names

# Kills itself at the given rename (1: the earlier folder goes aside, 2: the new one comes).
KILLED = """
import os, pathlib, signal, sys
from tests.lra.data.test_prepared import write
rename, calls = pathlib.Path.rename, 0
def dying(self, target):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
pathlib.Path.rename = dying
write(sys.argv[1], label=2)
"""


@pytest.mark.parametrize(
    ("rename", "left"), [(1, [".lock", ".partial", ""]), (2, [".lock", ".partial", ".previous"])]
)
def test_killed_at_the_end(tmp_path, rename, left):
    before = write(tmp_path)
    process = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(rename)])
    assert process.returncode == -signal.SIGKILL
    assert names(tmp_path) == [f".toy{name}" if name else "toy" for name in left]
    assert load(tmp_path, "toy").manifest == before
    write(tmp_path, label=3)
    assert load(tmp_path, "toy").split("train").labels.tolist() == [3, 0, 6, 3]
    assert names(tmp_path) == [".toy.lock", "toy"]


def test_a_new_attempt_puts_the_earlier_folder_back_too(tmp_path):
    before = write(tmp_path)
    (tmp_path / "toy").rename(tmp_path / ".toy.previous")
    with TaskWriter(tmp_path, "toy"):
        pass
    assert load(tmp_path, "toy").manifest == before


def test_a_left_over_earlier_folder_goes_with_the_next_attempt(tmp_path):
    write(tmp_path)
    (tmp_path / ".toy.previous").mkdir()
    with TaskWriter(tmp_path, "toy"):
        pass
    assert names(tmp_path) == [".toy.lock", "toy"]


def test_tidying_leaves_the_new_folder_alone(tmp_path):
    manifest = write(tmp_path)
    (tmp_path / ".toy.previous").mkdir()
    atomic_folder.tidy(tmp_path / "toy")
    assert names(tmp_path) == [".toy.lock", "toy"]
    assert load(tmp_path, "toy").manifest == manifest
    (tmp_path / "toy").rename(tmp_path / ".toy.previous")
    atomic_folder.tidy(tmp_path / "toy")  # that is for who reads: it is put back
    assert names(tmp_path) == [".toy.lock", ".toy.previous"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_not_replaced(tmp_path, there):
    big = tmp_path / "big"
    (big / "toy" if there else big).mkdir(parents=True)
    (tmp_path / "toy").symlink_to(big / "toy")
    for label in (1, 2):
        write(tmp_path, label=label)
        assert load(tmp_path, "toy").split("train").labels[0] == label
    assert (tmp_path / "toy").is_symlink()
    assert names(big) == [".toy.lock", "toy"]


# Writes when told to, one line of stdin, and says before and after.
WAITING = """
import sys
from lra.data.task_writer import TaskWriter
with TaskWriter(sys.argv[1], "toy"):
    print("inside", flush=True)
    sys.stdin.readline()
print("outside", flush=True)
"""


def test_two_processes_take_turns(tmp_path):
    def start():
        command = [sys.executable, "-c", WAITING, tmp_path]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    first = start()
    assert first.stdout.readline() == "inside\n"
    second = start()
    assert second.stderr.readline().startswith("waiting for another process that is writing")
    assert (tmp_path / ".toy.partial").exists()
    assert first.communicate("\n", timeout=60)[0] == "outside\n"
    assert second.communicate("\n", timeout=60)[0] == "inside\noutside\n"


def test_a_killed_process_gives_its_turn_back(tmp_path):
    command = [sys.executable, "-c", WAITING, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.kill()
    assert (tmp_path / ".toy.partial").exists()
    write(tmp_path)
    assert names(tmp_path) == [".toy.lock", "toy"]


def test_locks_that_a_file_system_lacks_are_done_without(tmp_path, monkeypatch):
    def without(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", without)
    write(tmp_path)
    assert len(load(tmp_path, "toy").split("train").labels) == 4
