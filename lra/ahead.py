"""Compiles programs beside the host's other work, in the order in which a run needs them.

Before its first step a run makes its parameters, restores or reads files, and on an accelerator
that program alone takes a few seconds to compile. The training step takes the longest and waits for
none of it; evaluations are needed only later. JAX keeps what is compiled here: a call that finds
its program does not compile it again.
"""

import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import jax

from models.attention.machine import this_backend


def is_worthwhile() -> bool:
    """Whether to compile ahead: on accelerators, by one process.

    On a CPU it would take cores from the work that it is meant to run beside. Several processes
    may have to compile together, and so in the same order.
    """
    return this_backend() != "cpu" and jax.process_count() == 1


class Ahead:
    """One thread that compiles; programs go by the names that they are submitted under."""

    def __init__(self):
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "compile")
        self._compiling: dict[str, concurrent.futures.Future] = {}

    def submit(self, name: str, program: Callable, arguments: Callable[[], tuple]) -> None:
        """Compiles a jitted program, after all those that were submitted before it.

        Args:
            name: to `wait` for.
            program: what `jax.jit` returned.
            arguments: makes what it will be called with, or the like of `jax.ShapeDtypeStruct`.
        """
        # A thread begins without what its maker has set for a time (`machine.assumed`).
        context = contextvars.copy_context()

        def compile_it() -> Any:
            return program.lower(*arguments()).compile()

        self._compiling[name] = self._thread.submit(context.run, compile_it)

    def wait(self, name: str) -> None:
        """Returns when nothing of this name is being compiled; the caller's call tells errors."""
        future = self._compiling.pop(name, None)
        if future is not None:
            with contextlib.suppress(Exception):
                future.result()

    def close(self) -> None:
        """Compiles nothing more than what has begun; to be called before the process ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)
