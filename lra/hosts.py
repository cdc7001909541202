"""Runs on several hosts: how they connect, agree, and end when one of them is lost.

Every host runs the same loop on the same configuration. Decisions that depend on a clock, a signal
or a file are agreed on here, since hosts that make different calls would wait for each other
forever. Host 0 alone writes files, except for the arrays of a checkpoint, which all hosts write.
With a single host, the functions here do not communicate. A host here is one JAX process, of which
a machine may run several.
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from lra import environment, errors, rendezvous
from lra.errors import UserError
from lra.rendezvous import Addresses
from lra.stopping import STATUS_STOPPED, Stop, Stopped

T = TypeVar("T")

# Seconds that host 0 stays after an error: once it ends, JAX ends hosts that would tell the same.
LAST_SECONDS = 3
_STATUS_FAULT = 1  # of the program

# Smallest message in bytes. Messages are padded to few lengths, since each compiles a program.
_UNIT = 256
# Words that only error messages of failed connections contain.
_LOSS = ("gloo", "nccl", "connection", "unavailable", "heartbeat", "coordination", "aborted")
_LATE = ("timed out", "deadline_exceeded")  # and of those that took too long
# Prefix of XLA's error messages (`UNKNOWN: Gloo AllGather failed`); some are ValueErrors.
_STATUS = re.compile(r"[A-Z_]+: ")


class SharedError(UserError):
    """A `UserError` that every host raises at the same point."""


@contextlib.contextmanager
def connected(addresses: Addresses | None, stop: Stop | None = None) -> Iterator[None]:
    """Connect this process to the other hosts; with None, it runs alone.

    A host that fails alone, or loses another, prints one line and exits soon: an orderly exit would
    have to wait for the others. If a host was lost, or a stop requested before all hosts were
    there, the status is `STATUS_STOPPED`, and the same commands continue from the last checkpoint.

    Import what a run needs before: hosts must not come to their first communication more than 30 s
    apart (`sharding.connect_groups`).

    Args:
        addresses: Where the hosts find each other; None for one host.
        stop: Object that is asked whether to stop while hosts are waited for.

    Raises:
        UserError: If JAX cannot connect the hosts or cannot be used (`environment.check_jax`), or
            they have unequal numbers of devices.
    """
    if addresses is None:
        environment.check_jax()
        yield
        return
    environment.check_settings()
    _meet(addresses, stop)
    try:
        environment.find_devices()
        _check_numbers_of_devices()
        on_every(environment.check_devices)
        yield
    except SharedError:
        raise
    except Exception as error:
        message, status = _describe(error)
        if status == _STATUS_FAULT:
            traceback.print_exc()
        _leave(message, status, _stay(addresses))


def is_main() -> bool:
    """Whether this is the host that writes rows, metrics and messages."""
    return jax.process_index() == 0


def any_of(flag: bool) -> bool:
    """Whether the flag is set on any host."""
    return flag if jax.process_count() == 1 else bool(_gather_numbers(flag).any())


def least(number: int) -> int:
    """Smallest of the numbers of all hosts."""
    return number if jax.process_count() == 1 else int(_gather_numbers(number).min())


def most(number: float) -> float:
    """Largest of the numbers of all hosts."""
    return number if jax.process_count() == 1 else max(_gather(number))


def on_main(function: Callable[[], T]) -> T:
    """Run `function` on host 0 only; every host returns its result (JSON) or raises its error."""
    if jax.process_count() == 1:
        return function()
    outcome = _attempt(function) if is_main() else None
    return _result(_gather(outcome)[0])


def on_every(function: Callable[[], T]) -> T:
    """Run `function` on every host; if any of them raises an expected error, all do.

    If `function` communicates, its errors must be those of all hosts.
    """
    if jax.process_count() == 1:
        return function()
    values: list[T] = []
    outcomes = _gather(_attempt(lambda: values.append(function())))
    errors = [outcome.get("error") for outcome in outcomes]
    if errors[0] is not None and len(set(errors)) == 1:
        raise SharedError(errors[0])
    for index, error in enumerate(errors):
        if error is not None:
            raise SharedError(f"host {index}: {error}")
    return values[0]


@contextlib.contextmanager
def entered_on_main(context: contextlib.AbstractContextManager) -> Iterator[None]:
    """Enter `context` on host 0 for as long as the hosts are in the block."""
    with contextlib.ExitStack() as stack:
        on_main(lambda: stack.enter_context(context))
        yield


def check_shared(folder: pathlib.Path) -> None:
    """Raise SharedError unless `folder`, which host 0 has made, is the same folder on all hosts."""
    if jax.process_count() == 1:
        return
    # With a name of its own, as file systems remember for a while that a file was not there.
    mark = folder / on_main(lambda: f".seen-by-all-{uuid.uuid4().hex}")
    try:
        on_main(mark.touch)
        on_every(lambda: _check_seen(mark))
    finally:
        if is_main():
            mark.unlink(missing_ok=True)


def check_equal(values: dict[str, Any]) -> None:
    """Raise SharedError unless all hosts have equal values, naming the difference and the hosts."""
    if jax.process_count() == 1:
        return
    first, *others = _gather(values)
    for index, other in enumerate(others, start=1):
        for name, value in first.items():
            if other.get(name) != value:
                raise SharedError(
                    f"hosts 0 and {index} differ in {name}: {value} and {other.get(name)}; "
                    "give all of them the same"
                )


def _meet(addresses: Addresses, stop: Stop | None) -> None:
    """Meet the other hosts, or exit while JAX still waits, which would end an orderly exit."""
    try:
        rendezvous.meet(addresses, stop)
    except Stopped:
        _leave(
            f"error: stopped before all hosts were there ({stop.reason}); start the same command "
            "on every host",
            STATUS_STOPPED,
        )
    except rendezvous.MissingHostsError as error:
        _leave(f"error: {error}", errors.STATUS_BAD_INPUT)


def _describe(error: Exception) -> tuple[str, int]:
    """The line and the exit status with which this host ends."""
    line = errors.lack_of_memory(error, errors.TRAIN_IN_LESS)
    if isinstance(error, UserError):
        line = str(error)
    elif line is None and isinstance(error, OSError) and not _is_loss(error):
        line = errors.of_system(error)
    if line is not None:
        return f"error: {line}", errors.STATUS_BAD_INPUT
    if not _is_loss(error):
        return f"error: host {jax.process_index()} failed and ends, the others will", _STATUS_FAULT
    is_late = any(word in str(error).lower() for word in _LATE)
    what = "another host did not answer in time, or was lost" if is_late else "lost another host"
    return (
        f"error: {what} ({errors.first_line(error)}); start the same command on every host to go "
        "on from the last checkpoint",
        STATUS_STOPPED,
    )


def _stay(addresses: Addresses) -> float:
    """How long this host stays after an error."""
    if addresses.index is None:
        try:
            return LAST_SECONDS if is_main() else 0
        except RuntimeError:  # it found no device, without which JAX does not say
            return LAST_SECONDS
    return LAST_SECONDS if addresses.index == 0 else 0


def _check_numbers_of_devices() -> None:
    """Raise SharedError unless all hosts have equally many devices, which JAX's gathers need."""
    numbers = Counter(device.process_index for device in jax.devices())
    if len(set(numbers.values())) > 1:
        told = ", ".join(f"host {index} {number}" for index, number in sorted(numbers.items()))
        raise SharedError(f"the hosts have unequal numbers of devices ({told}); give each as many")


def _check_seen(mark: pathlib.Path) -> None:
    if not mark.exists():
        raise UserError(
            f"{mark.parent} is not the folder that host 0 has there: give all hosts one --workdir, "
            "on a file system that they share"
        )


def _attempt(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": function()}
    except UserError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": errors.of_system(error)}


def _result(outcome: dict[str, Any]) -> Any:
    if "error" in outcome:
        raise SharedError(outcome["error"])
    return outcome["value"]


def _gather_numbers(number: int) -> np.ndarray:
    return multihost_utils.process_allgather(np.int32(number))


def _gather(value: Any) -> list[Any]:
    """Values of all hosts, sent as JSON."""
    message = json.dumps(value).encode()
    lengths = _gather_numbers(len(message))
    size = _UNIT
    while size < lengths.max():
        size *= 4
    padded = np.zeros(size, np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    rows = multihost_utils.process_allgather(padded)
    return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]


def _is_loss(error: Exception) -> bool:
    """Whether communication failed; errors that are not JAX's never mean that."""
    text = str(error)
    from_jax = isinstance(error, RuntimeError | ConnectionError) or _STATUS.match(text)
    return bool(from_jax) and any(word in text.lower() for word in (*_LOSS, *_LATE))


def _leave(message: str, status: int, stay: float = 0) -> None:
    """Exit this process after `stay` seconds, also where nothing can be printed.

    It waits for no other host.
    """
    try:
        with contextlib.suppress(OSError, ValueError):  # of a full disk, of a closed stream
            print(" ".join(message.split()), file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
        time.sleep(stay)
    finally:
        os._exit(status)
