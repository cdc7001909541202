"""Strict JAX, several virtual CPU devices, run-time checks of shapes; all before JAX starts."""

import gc
import mmap
import os
import pathlib

from tests.quick_compilation import XLA_FLAGS

if os.environ.setdefault("JAX_PLATFORMS", "cpu") == "cpu":
    os.environ["XLA_FLAGS"] = " ".join(
        [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8", XLA_FLAGS]
    )

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook(["models"], "beartype.beartype")

jax.config.update("jax_numpy_rank_promotion", "raise")

# As in a hook of Git: tests that make a history would write to the repository of the hook.
for _name in [name for name in os.environ if name.startswith("GIT_")]:
    del os.environ[_name]
os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

# Tracing and compiling take most of the time: a sixth less of it without source lines in programs
# and with rarer garbage collections.
jax.config.update("jax_traceback_in_locations_limit", 0)
gc.freeze()
gc.set_threshold(50_000, 20, 20)

# The first example of a test may compile for seconds.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")

# Many tests build the same programs: each is compiled once for all workers, and kept for the next
# run. JAX compiles anew what it finds half-written by another worker.
_CACHE = pathlib.Path(__file__).resolve().parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

jax.devices()  # made now, with these flags, whatever a test sets for the processes it starts


# What the tests of a file have traced and compiled is kept for the next file up to this size of the
# process, since a worker would gather gigabytes.
_KEPT_BYTES = 3e9
_STATM = pathlib.Path("/proc/self/statm")


@pytest.fixture(scope="module", autouse=True)
def programs_of_a_file():
    """Free what the tests of a file have compiled if the process is large, or its size unknown."""
    yield
    if not _STATM.exists() or int(_STATM.read_text().split()[1]) * mmap.PAGESIZE > _KEPT_BYTES:
        jax.clear_caches()


@pytest.fixture
def float64():
    """Turn 64-bit types on for one test."""
    with jax.enable_x64(True):
        yield
