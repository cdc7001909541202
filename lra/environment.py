"""Environment of a run, as its rows record it: versions, commit, device, memory."""

import functools
import hashlib
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import jax

from lra import process
from lra.errors import NO_JAX, UserError, first_line
from lra.row import SEPARATOR
from models.machine import this_backend, this_machine

_CODE = ("configs", "lra", "models", "benchmarks", "train.py", "eval.py")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# Settings of JAX that environment variables may have changed, with JAX's defaults.
_SETTINGS = {
    "jax_threefry_partitionable": True,
    "jax_random_seed_offset": 0,
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_accurate_erf_inv": False,
}
# Variables that set XLA's number of CPU threads, the first that is set.
_THREADS = ("PJRT_NPROC", "NPROC")
# Not --xla_gpu_exclude_nondeterministic_ops, with which autotuning may choose other algorithms.
_DETERMINISTIC_FLAG = "--xla_gpu_deterministic_ops"


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect results, by name."""
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in _PACKAGES}


@functools.cache
def commit() -> str:
    """Commit of this checkout, and if code has uncommitted changes `-dirty.` and a hash of it.

    So no two versions of the code have the same name. Rows that a sweep appends to a file of the
    checkout, and sweep files beside the code, do not count as changes. Without git history, also
    inside of another project's: value of the environment variable `LRA_COMMIT`, or `unknown`.
    """
    root = pathlib.Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        # The folder may belong to another user, as in containers (git 2.38 or later).
        command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=300, check=True)
        return os.fsdecode(done.stdout).strip()

    try:
        git("ls-files", "--error-unmatch", "lra/environment.py")  # fails in another's history
        head = git("rev-parse", "HEAD")
        if not git("status", "--porcelain", "--", *_CODE):
            return head
        names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *_CODE)
        return f"{head}-dirty.{_hash_files(root, names.split(chr(0)))}"
    except (OSError, subprocess.SubprocessError):
        # As one line of valid text, without the separator between the commits of a run.
        text = os.fsencode(os.environ.get("LRA_COMMIT", "")).decode(errors="replace")
        return " ".join(text.replace(SEPARATOR.strip(), " ").split()) or "unknown"


def _hash_files(root: pathlib.Path, names: Iterable[str]) -> str:
    """Hash of names and contents of the files in `root`, in 8 hexadecimal digits."""
    total = hashlib.sha256()
    for path in (root / name for name in sorted(set(names))):
        if path.is_file():  # not one that was removed
            total.update(os.fsencode(path.relative_to(root)) + b"\0")
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:8]


def check_jax() -> None:
    """Raise UserError if JAX cannot be used, by the checks of settings and devices below."""
    check_settings()
    find_devices()
    check_devices()


def check_settings() -> None:
    """Raise UserError if JAX has no jit or has settings other than `_SETTINGS`.

    Random numbers and rounding depend on these settings, and rows do not record them. No device is
    looked for.
    """
    if jax.config.jax_disable_jit:
        raise UserError(f"{NO_JAX}JAX_DISABLE_JIT is set, and training needs jit; unset it")
    for name, default in _SETTINGS.items():
        if getattr(jax.config, name, default) != default:  # not all versions have all
            raise UserError(
                f"{NO_JAX}{name.upper()} is set to {getattr(jax.config, name)}, which no row would "
                "tell, and seeds would give other results; unset it"
            )


def find_devices() -> None:
    """Raise UserError if JAX finds no device."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = os.environ.get("JAX_PLATFORMS", "")
        raise UserError(
            f"{NO_JAX}it finds no device for JAX_PLATFORMS='{platforms}'; unset it, or install JAX "
            f"for that device (make JAX=cuda13 install). {first_line(error)}"
        ) from error


def check_devices() -> None:
    """Raise UserError for variables that do not fit the devices found.

    These are `LRA_KERNELS`, `JAX_DEFAULT_DEVICE`, and those of `_THREADS` on a CPU.
    """
    try:
        this_machine()
    except (ValueError, RuntimeError) as error:  # RuntimeError: JAX_DEFAULT_DEVICE has no such
        raise UserError(first_line(error)) from None
    if jax.default_backend() == "cpu":
        _check_threads()


def _check_threads() -> None:
    """Raise UserError if XLA has other threads than there are cores, which the rows name."""
    name = next((name for name in _THREADS if os.environ.get(name)), None)
    number = os.environ[name] if name else ""
    if number.isdecimal() and int(number) not in (0, process.cores()):
        raise UserError(
            f"{name}={number} gives JAX {number} threads, but rows name the {process.cores()} "
            "cores that this process may use; unset it, and choose cores with taskset"
        )


def check_default_device(platform: str) -> None:
    """Raise UserError if JAX's default device is of another platform than the devices of a run.

    The default device decides on kernels and on how batches are divided.
    """
    default = this_backend()
    if jax.config.jax_default_device is not None and default != platform:
        raise UserError(
            f"JAX_DEFAULT_DEVICE is a {default}, but this run is on {platform}; unset it, or "
            f"choose by JAX_PLATFORMS={default}"
        )


def device_name() -> str:
    """Kind of device that this host computes on; of a CPU, its model and number of usable cores.

    On a GPU without the kernels of `models`, which change speed and rounding, the name says so.
    They are off (`models.machine.Machine`) if several devices are visible, even to a run on one.
    Several hosts, which may compute at another speed than one with as many devices, are told too.
    """
    device = jax.local_devices()[0]
    name = cpu_name() if device.platform == "cpu" else device.device_kind
    if device.platform == "gpu" and os.environ.get("LRA_KERNELS") == "off":
        name += " (LRA_KERNELS=off)"
    elif device.platform == "gpu" and jax.device_count() > 1:
        name += f" (no kernels: {jax.device_count()} devices visible)"
    if jax.process_count() > 1:
        name += f" on {jax.process_count()} hosts"
    return name.replace(SEPARATOR, " ")  # rows separate several devices of a run by it


def devices_name(number: int) -> str:
    """Name of the device, preceded by `number x` if there are several."""
    return f"{number} x {device_name()}" if number > 1 else device_name()


def advice_on_format(dtype: str) -> str:
    """What to say about activations of `dtype` on this device; empty if they suit it."""
    if dtype == "float32" and this_machine().runs_kernels:
        return (
            "in float32 this GPU computes nearly everything by the plain forms: the kernels of "
            "this project take --config.dtype=bfloat16"
        )
    return ""


def cpu_name() -> str:
    """Model of the CPU and number of usable cores."""
    number = process.cores()
    return f"{_cpu_model()} ({number} core{'s' if number != 1 else ''})"


def peak_memory_mb() -> float:
    """Peak memory so far in 10^6 bytes, of any one device or, on a CPU, of this process.

    0 where it is not known: some allocators of GPUs (`XLA_PYTHON_CLIENT_ALLOCATOR`) do not count.
    """
    peaks = [
        stats["peak_bytes_in_use"]
        for stats in (device.memory_stats() for device in jax.local_devices())
        if stats and "peak_bytes_in_use" in stats
    ]
    if peaks:
        return max(peaks) / 1e6
    return process.peak_memory_bytes() / 1e6 if jax.default_backend() == "cpu" else 0.0


def is_deterministic() -> bool:
    """Whether a program gives the same bits when repeated; on a GPU, only if XLA's flag is set."""
    if jax.default_backend() != "gpu":
        return True
    # As XLA parses flags (xla/tsl/util/command_line_flags.cc): the last of several values counts.
    flags = dict(flag.partition("=")[::2] for flag in os.environ.get("XLA_FLAGS", "").split())
    return flags.get(_DETERMINISTIC_FLAG, "false").lower() in ("", "true", "1")


def of_every_host() -> dict[str, Any]:
    """What rows record once for all hosts of a run, which must therefore agree in it, by name."""
    return {
        "the commit": commit(),
        "the device": device_name(),
        "whether operations are deterministic (XLA_FLAGS)": is_deterministic(),
        **{f"the version of {name}": version for name, version in versions().items()},
    }


def facts(num_devices: int) -> dict[str, Any]:
    """What `run.json` records, besides the data, when a process starts on `num_devices` devices."""
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
