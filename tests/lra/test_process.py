"""What a process may use, and what it has used."""

import os
import subprocess
import sys

import pytest

from lra import process


def test_cores_are_those_of_the_process():
    code = (
        "import os; from lra import process; "
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(process.cores())"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1\n"
    assert process.cores() == len(os.sched_getaffinity(0))


def test_peak_memory_grows_with_what_is_held():
    code = """if True:
        import numpy as np
        from lra import process
        before = process.peak_memory_bytes()
        held = np.ones(before // 8 + 2**22)  # 32 MiB more than ever before
        print(process.peak_memory_bytes() - before, held.any())
    """
    grown, _ = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert int(grown) >= 2**24


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is inherited on Linux")
def test_peak_memory_is_not_that_of_the_process_that_started_this_one():
    child = "from lra import process; print(process.peak_memory_bytes())"
    parent = f"""if True:
        import subprocess, sys
        held = b"x" * 2**28
        print(subprocess.check_output([sys.executable, "-c", {child!r}], text=True))
    """
    assert int(subprocess.check_output([sys.executable, "-c", parent], text=True)) < 2**27


@pytest.mark.parametrize("content", ["Name:\tpython\n", "VmHWM:\t?\n", None])
def test_peak_memory_is_known_without_the_file_of_linux(monkeypatch, content):
    def read_text(path):
        if content is None:
            raise FileNotFoundError(path)
        return content

    monkeypatch.setattr("pathlib.Path.read_text", read_text)
    assert 2**24 < process.peak_memory_bytes() < 2**40
