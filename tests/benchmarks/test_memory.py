"""Memory of this process."""

import json
import subprocess
import sys

import pytest

from benchmarks import memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="the peak is reset through /proc")


@linux
def test_growth_is_what_a_call_needs_at_once_every_time():
    """In a process of its own, as a contender is measured."""
    code = (
        "import numpy as np\n"
        "from benchmarks import memory\n"
        "def call():\n"
        "    return np.ones(10_000_000).sum() + np.ones(5_000_000).sum()\n"
        "print([memory.growth_in(call) for _ in range(3)])\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == [pytest.approx(80e6, rel=0.05)] * 3


def test_available_memory_is_a_sensible_number():
    assert 1e7 < memory.available_bytes() < 1e15


V1 = ("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
V2 = ("", "memory.max", "memory.current", "")


@pytest.mark.parametrize(
    ("line", "files"), [("0::/job/step", V2), ("4:cpu,memory:/job/step", V1)], ids=["v2", "v1"]
)
@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"": 9000}, 9000 - 800 + 500),
        ({"": 9000, "job": 2000, "job/step": 5000}, 2000 - 800 + 500),
        ({"": "max", "job": "max", "job/step": 100}, 0),
    ],
)
def test_the_tightest_control_group_limits_what_is_free_and_cache_of_files_is_free(
    line, files, limits, left, tmp_path, monkeypatch
):
    folder, limit, used, prefix = files
    for name, value in limits.items():
        group = tmp_path / folder / name
        group.mkdir(parents=True, exist_ok=True)
        (group / limit).write_text(f"{value}\n")
        (group / used).write_text("800\n")
        stat = f"cache 7\n{prefix}inactive_file 300\n{prefix}active_file 200\n"
        (group / "memory.stat").write_text(stat)
    own = tmp_path / "own"
    own.write_text(f"9:name=systemd:/\n{line}\n")
    monkeypatch.setattr(memory, "_OWN_GROUPS", own, raising=False)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path, raising=False)
    assert memory.available_bytes() == left


@linux
def test_a_bound_turns_an_allocation_into_an_error():
    code = (
        "import numpy as np\n"
        "from benchmarks import memory\n"
        "memory.bound_to(100_000_000)\n"
        "assert np.ones(5_000_000).sum()\n"
        "try:\n"
        "    np.ones(50_000_000)\n"
        "except MemoryError:\n"
        "    print('refused')\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "refused\n"
