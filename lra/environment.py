"""What a run ran on: versions, commit, device, memory. Every row carries it."""

import functools
import os
import pathlib
import platform
import subprocess
from importlib import metadata
from typing import Any

import jax

from lra import process
from lra.errors import NO_JAX, UserError, first_line
from lra.row import SEPARATOR

_CODE = ("configs", "lra", "models", "benchmarks", "train.py", "eval.py")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# Settings of JAX that a variable of the environment may have changed, with JAX's own values.
_SETTINGS = {
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
}
# Not --xla_gpu_exclude_nondeterministic_ops: with it autotuning may choose other algorithms.
_DETERMINISTIC_FLAG = "--xla_gpu_deterministic_ops"


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute."""
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in _PACKAGES}


@functools.cache
def commit() -> str:
    """The commit of this checkout, `-dirty` with uncommitted changes of code.

    Rows that a sweep adds to a file of the checkout, and sweep files beside the code, are none.
    Without git history: the value of the variable `LRA_COMMIT`, or `unknown`.
    """
    root = pathlib.Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (
            "-dirty" if git("status", "--porcelain", "--", *_CODE) else ""
        )
    except (OSError, subprocess.SubprocessError):
        # As text of one line without what stands between the commits of a run.
        given = os.fsencode(os.environ.get("LRA_COMMIT", "")).decode(errors="replace")
        return " ".join(given.replace(SEPARATOR.strip(), " ").split()) or "unknown"


def check_jax() -> None:
    """Raises UserError where JAX finds no device that was asked for, or is set to other numbers.

    What a seed draws and how numbers are rounded depends on `_SETTINGS`, of which no row tells.
    """
    for name, usual in _SETTINGS.items():
        if getattr(jax.config, name) != usual:
            raise UserError(
                f"{NO_JAX}{name.upper()} is set to {getattr(jax.config, name)}, which no row would "
                "tell, and seeds would give other results; unset it"
            )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        raise UserError(
            f"{NO_JAX}it finds no device for JAX_PLATFORMS='{platforms}'; unset it, or install JAX "
            f"for that device (make JAX=cuda13 install). {first_line(error)}"
        ) from error


def device_name() -> str:
    """The kind of device that JAX computes on; for a CPU its model and the cores usable."""
    device = jax.devices()[0]
    name = cpu_name() if device.platform == "cpu" else device.device_kind
    return name.replace(SEPARATOR, " ")  # which stands between the devices of a run


def devices_name(number: int) -> str:
    """The device's name, with how many there are of it if several."""
    return f"{number} x " * (number > 1) + device_name()


def cpu_name() -> str:
    """The model of the CPU and the cores usable."""
    number = process.cores()
    return f"{_cpu_model()} ({number} core{'s' if number != 1 else ''})"


def peak_memory_mb() -> float:
    """The most memory used so far, in 10^6 bytes: of a device, or of this process on a CPU."""
    peaks = [
        stats["peak_bytes_in_use"]
        for stats in (device.memory_stats() for device in jax.local_devices())
        if stats and "peak_bytes_in_use" in stats
    ]
    if peaks:
        return max(peaks) / 1e6
    return process.peak_memory_bytes() / 1e6


def is_deterministic() -> bool:
    """Whether the same program gives the same bits again: always, on a GPU only if asked for."""
    if jax.default_backend() != "gpu":
        return True
    # As XLA reads them (xla/tsl/util/command_line_flags.cc): of a flag given twice the last counts.
    flags = dict(flag.partition("=")[::2] for flag in os.environ.get("XLA_FLAGS", "").split())
    return flags.get(_DETERMINISTIC_FLAG, "false").lower() in ("", "true", "1")


def facts(num_devices: int) -> dict[str, Any]:
    """What `run.json` notes of a start on so many devices, beside its data."""
    return {
        "versions": versions(),
        "commit": commit(),
        "device": devices_name(num_devices),
        "deterministic": is_deterministic(),
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"
