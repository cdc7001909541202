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
