"""How the hosts of a run find each other."""

import re
import socket
import threading
import time
from typing import NamedTuple

import jax

from lra.errors import UserError, first_line
from lra.stderr import say
from lra.stopping import Stop, Stopped

# A host that is silent for longer is considered lost, and JAX ends the others.
HEARTBEAT_SECONDS = 30
# How long a host waits for the others, and after what time it says so.
MEETING_SECONDS = 300
SAY_SECONDS = 5
# JAX would end the process with a stack; by then, it has ended with a line.
_LATER_SECONDS = 60
_POLL_SECONDS = 0.1
_LARGEST_PORT = 65_535
_LARGEST_NUMBER = 2**31 - 1  # of processes, which JAX takes as an int32
_NO_ADDRESSES = (
    "where neither Slurm, a TPU nor MPI says where they are, give --coordinator_address, "
    "--num_processes and --process_id"
)


class Addresses(NamedTuple):
    """Where the hosts find each other; all None if the environment (Slurm, TPU, MPI) says so.

    Attributes:
        coordinator: Address of process 0, HOST:PORT.
        number: Number of processes.
        index: Index of this process.
    """

    coordinator: str | None = None
    number: int | None = None
    index: int | None = None


class MissingHostsError(UserError):
    """Not all hosts came in time."""


def addresses(
    distributed: bool, coordinator: str | None, number: int | None, index: int | None
) -> Addresses | None:
    """Addresses from the flags `--distributed`, `--coordinator_address`, ...; None for one host.

    Raises:
        UserError: If the flags do not fit each other, or the coordinator's host is unknown.
    """
    given = (coordinator, number, index)
    if given == (None, None, None):
        return Addresses() if distributed else None
    if None in given or distributed:
        raise UserError(
            "several hosts need --coordinator_address, --num_processes and --process_id together, "
            "or --distributed alone"
        )
    if not 0 <= index < number:
        raise UserError(f"--process_id={index} is not from 0 to --num_processes={number} - 1")
    if number > _LARGEST_NUMBER:
        raise UserError(f"--num_processes={number} is more than {_LARGEST_NUMBER:,}")
    host, _, port = coordinator.rpartition(":")
    # Not `isdigit`, which takes superscripts for digits, as `int` does not.
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= _LARGEST_PORT:
        raise UserError(f"--coordinator_address={coordinator} is not HOST:PORT")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:  # JAX would wait for minutes and then abort the process
        raise UserError(f"--coordinator_address: no host {host} ({error.strerror})") from None
    except UnicodeError:  # two dots in a row, or more than 63 characters between dots
        raise UserError(f"--coordinator_address: {host} is no name of a host") from None
    return Addresses(coordinator, number, index)


def meet(addresses: Addresses, stop: Stop | None = None) -> None:
    """Wait until all hosts are connected, or end waiting for them.

    JAX waits in a thread of its own, where it neither delays signals nor, since its time is longer
    than `MEETING_SECONDS`, ends the process.

    Args:
        addresses: Where the hosts find each other.
        stop: Object that is asked whether to stop; None to wait in any case.

    Raises:
        Stopped: If a stop was requested. JAX still waits: exit without waiting for it.
        MissingHostsError: If not all hosts came in time. Likewise.
        UserError: If JAX does not know where the hosts are, or cannot connect.
    """
    failures: list[Exception] = []

    def wait() -> None:
        try:
            _initialize(addresses)
        except Exception as error:
            failures.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    begun, said = time.monotonic(), False
    while not _ends(waiting):
        waited, limit = time.monotonic() - begun, f"{MEETING_SECONDS / 60:g} min"
        if stop is not None and stop.before(0):
            raise Stopped
        if waited > MEETING_SECONDS:
            raise MissingHostsError(
                f"the hosts did not meet: not {_all_hosts(addresses)} within {limit}; start the "
                "same command on every host"
            )
        if waited > SAY_SECONDS and not said:
            say(f"waiting for {_all_hosts(addresses)} (up to {limit})")
            said = True
    for error in failures:
        if not isinstance(error, ValueError | RuntimeError):
            raise error
        advice = "; " + _NO_ADDRESSES if addresses.coordinator is None else ""
        raise UserError(f"the hosts did not meet ({first_line(error)}){advice}") from error


def _initialize(addresses: Addresses) -> None:
    # Otherwise JAX would handle SIGTERM itself.
    jax.config.update("jax_enable_preemption_service", False)
    coordinator = addresses.coordinator
    local = coordinator is not None and coordinator.startswith(("127.", "localhost:", "[::1]:"))
    jax.distributed.initialize(
        coordinator,
        addresses.number,
        addresses.index,
        initialization_timeout=MEETING_SECONDS + _LATER_SECONDS,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        # Otherwise the coordinator listens on all interfaces.
        coordinator_bind_address=coordinator if local else None,
    )


def _ends(thread: threading.Thread) -> bool:
    """Whether a thread ends within the next moment."""
    thread.join(_POLL_SECONDS)
    return not thread.is_alive()


def _all_hosts(addresses: Addresses) -> str:
    """The hosts and where they meet: `all 4 hosts at node:1234`."""
    if addresses.coordinator is None:
        return "all hosts"
    return f"all {addresses.number} hosts at {addresses.coordinator}"
