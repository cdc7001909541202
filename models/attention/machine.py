"""What a model must know of the machine to choose how it computes."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import jax

# cuDNN's fused attention and the kernels' products need tensor cores of Ampere or later.
_LEAST_CAPABILITY = 8.0


class Machine(NamedTuple):
    """The devices that JAX computes on.

    Attributes:
        backend: as `jax.default_backend()` names it.
        memory: of one device, in bytes; None where it does not say.
        has_cudnn: whether cuDNN's fused attention runs there.
        runs_kernels: whether Pallas's kernels are worth while: XLA does not divide them among
            devices, each of which would compute everything.
    """

    backend: str
    memory: int | None = None
    has_cudnn: bool = False
    runs_kernels: bool = False


_assumed: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)


@contextlib.contextmanager
def assumed(machine: Machine) -> Iterator[None]:
    """Inside, programs are traced for `machine`, to be compiled for it ahead of time."""
    token = _assumed.set(machine)
    try:
        yield
    finally:
        _assumed.reset(token)


def this_backend() -> str:
    """The backend of `this_machine`."""
    machine = _assumed.get()
    return machine.backend if machine else jax.default_backend()


def this_machine() -> Machine:
    """The machine that this process runs on, or the assumed one."""
    if machine := _assumed.get():
        return machine
    device = jax.local_devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit")
    modern = _is_modern(device)
    return Machine(jax.default_backend(), memory, modern, modern and jax.device_count() == 1)


def _is_modern(device: jax.Device) -> bool:
    # AMD's GPUs are of the backend "gpu" too.
    if "cuda" not in device.client.platform_version.lower():
        return False
    return float(device.compute_capability) >= _LEAST_CAPABILITY
