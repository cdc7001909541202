"""What a model must know of the machine to choose how it computes."""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import NamedTuple

import jax

# cuDNN's fused attention needs tensor cores of Ampere or later.
_LEAST_CAPABILITY = 8.0
# With more than 147 kB of shared memory for a block: A100, H100 and H200, B200.
_KERNEL_CAPABILITIES = ("8.0", "9.0", "10.0")


class Machine(NamedTuple):
    """The devices that JAX computes on.

    Attributes:
        backend: as `jax.default_backend()` names it.
        memory: of one device, in bytes; None where it does not say.
        has_cudnn: whether cuDNN's fused attention runs there.
        runs_kernels: whether to take Pallas's kernels. XLA does not divide them among devices, each
            of which would compute everything, so only where JAX has one; of the compute
            capabilities whose shared memory holds their blocks (9.0 was tried), and not if the
            environment variable `LRA_KERNELS` is `off`.
    """

    backend: str
    memory: int | None = None
    has_cudnn: bool = False
    runs_kernels: bool = False


_assumed: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)


@contextlib.contextmanager
def assumed(machine: Machine) -> Iterator[None]:
    """Inside, programs are traced for `machine`, to be compiled for it ahead of time.

    A function that was traced before keeps its trace.
    """
    token = _assumed.set(machine)
    try:
        yield
    finally:
        _assumed.reset(token)


def this_backend() -> str:
    """The backend of `this_machine`."""
    if machine := _assumed.get():
        return machine.backend
    chosen = _default_device()
    return chosen.platform if chosen else jax.default_backend()


def this_machine() -> Machine:
    """That of `jax.default_device`, or else of the process's first device; or the assumed one."""
    if machine := _assumed.get():
        return machine
    device = _default_device() or jax.local_devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit")
    return Machine(this_backend(), memory, _has_cudnn(device), _runs_kernels(device))


def _default_device() -> jax.Device | None:
    chosen = jax.config.jax_default_device
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen


def _has_cudnn(device) -> bool:
    return _is_nvidia(device) and float(device.compute_capability) >= _LEAST_CAPABILITY


def _runs_kernels(device) -> bool:
    switch = os.environ.get("LRA_KERNELS", "on")
    if switch not in ("on", "off"):
        raise ValueError(f"LRA_KERNELS={switch}: it can be on or off")
    fits = _is_nvidia(device) and device.compute_capability in _KERNEL_CAPABILITIES
    return switch == "on" and fits and jax.device_count() == 1


def _is_nvidia(device) -> bool:
    # AMD's GPUs are of the backend "gpu" too.
    return "cuda" in device.client.platform_version.lower()
