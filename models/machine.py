"""Properties of the machine by which a model chooses its implementation.

The context managers change them for functions traced within; a function that was traced before
keeps its trace.
"""

import contextlib
import contextvars
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

# cuDNN's fused attention needs tensor cores of Ampere or later.
_LEAST_CAPABILITY = 8.0
# GPUs with more than 147 kB of shared memory per block: A100, H100 and H200, B200.
_KERNEL_CAPABILITIES = ("8.0", "9.0", "10.0")
# Compiled for 8.0, the backward pass of Nyström's inverse with 64 landmarks keeps 60 kB per thread
# outside of registers; for 10.0, it needs 704 of 512 columns of tensor memory (Triton 3.9).
_INVERSE_CAPABILITIES = ("9.0",)


class Machine(NamedTuple):
    """The devices that JAX computes on.

    Attributes:
        backend: Name of the backend, as in `jax.default_backend()`.
        memory: Memory of one device in bytes; None if the device does not report it.
        has_cudnn: Whether cuDNN's fused attention runs on the device.
        runs_kernels: Whether to use Pallas's kernels. This requires a single device, since XLA does
            not partition kernels and each device would compute everything; a compute capability
            whose shared memory holds their blocks (9.0 was tested); and that the environment
            variable `LRA_KERNELS` is not `off`.
        inverts: Whether the kernels of Nyström's inverse are among these.
    """

    backend: str
    memory: int | None = None
    has_cudnn: bool = False
    runs_kernels: bool = False
    inverts: bool = False


_assumed: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("machine", default=None)
_skips_padding = contextvars.ContextVar("skips_padding", default=True)
_copies = contextvars.ContextVar("copies", default=1.0)


def assumed(machine: Machine) -> contextlib.AbstractContextManager[None]:
    """Trace programs for `machine` within the context, to compile them ahead of time."""
    return _within(_assumed, machine)


def whole_sequences() -> contextlib.AbstractContextManager[None]:
    """Trace loops over blocks with a fixed number of steps within the context, padding included.

    This is for analyses that count operations, and for batches sharded over devices, which would
    have to communicate to agree on a number of steps.
    """
    return _within(_skips_padding, False)


def copies_on_a_device(copies: float) -> contextlib.AbstractContextManager[None]:
    """Trace functions of which each device will compute `copies` within the context.

    With several seeds, mapped by `vmap`, it is more than 1; where devices share a batch, less.
    """
    return _within(_copies, copies)


@contextlib.contextmanager
def _within(variable: contextvars.ContextVar, value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def skips_padding() -> bool:
    """Return whether loops over blocks may end at the last real position of their batch."""
    return _skips_padding.get()


def heads_on_a_device(heads: int) -> int:
    """Return how many of the heads of a batch, and of its copies, a device computes at once."""
    return math.ceil(heads * _copies.get())


def this_backend() -> str:
    """Return the backend of `this_machine`."""
    if machine := _assumed.get():
        return machine.backend
    chosen = _default_device()
    return chosen.platform if chosen else jax.default_backend()


def this_machine() -> Machine:
    """Return the assumed machine, or that of `jax.default_device` or the first local device."""
    if machine := _assumed.get():
        return machine
    device = _default_device() or jax.local_devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit")
    runs_kernels = _runs_kernels(device)
    inverts = runs_kernels and device.compute_capability in _INVERSE_CAPABILITIES
    return Machine(this_backend(), memory, _has_cudnn(device), runs_kernels, inverts)


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
    # The backend "gpu" includes AMD's GPUs.
    return "cuda" in device.client.platform_version.lower()
