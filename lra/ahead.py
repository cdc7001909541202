"""Ahead-of-time compilation, in background threads, of a run's training step and evaluations.

Before its first step, a run compiles and runs the program that initialises its parameters. The
training step takes longer to compile and need not wait for that, nor need the evaluations wait for
either. JAX caches what is compiled here, so that a later call does not compile its program again.
"""

import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import jax

from lra import sharding
from models.machine import this_backend

_THREADS = 2  # one for the training step, the longest compilation, and one for all others


def is_worthwhile() -> bool:
    """Whether to compile ahead of time: on accelerators, and only with a single process.

    On a CPU, compilation would compete for cores with the work it should overlap with. Several
    processes may have to compile together, and thus in the same order.
    """
    return this_backend() != "cpu" and jax.process_count() == 1


class Ahead:
    """Background threads that compile programs submitted under a name.

    They compile with JAX's global settings. Settings of a context manager, such as
    `jax.debug_nans(True)`, apply only to the thread that enters it; a call that is made under such
    settings misses the cache and compiles again.
    """

    def __init__(self):
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "compile")
        self._futures: dict[str, list[concurrent.futures.Future]] = {}

    @property
    def is_compiling(self) -> bool:
        """Whether any submitted program is not compiled yet."""
        return not all(future.done() for futures in self._futures.values() for future in futures)

    def submit(self, name: str, program: Callable, arguments: Callable[[], tuple]) -> None:
        """Queue a jitted function for compilation, first in, first out.

        Args:
            name: Name to `wait` for; several programs may share one.
            program: Function returned by `jax.jit`.
            arguments: Function that returns the arguments of the later call, or the
                `jax.ShapeDtypeStruct`s of them.
        """
        # New threads do not inherit context variables, such as that of `machine.assumed`.
        context = contextvars.copy_context()

        def compile_it() -> Any:
            return program.lower(*arguments()).compile()

        future = self._threads.submit(context.run, compile_it)
        self._futures.setdefault(name, []).append(future)

    def call(self, name: str, program: Callable, *arguments: Any) -> Any:
        """Call a program as `sharding.call` does, once those submitted as `name` are compiled."""
        self.wait(name)
        return sharding.call(program, *arguments)

    def wait(self, name: str) -> None:
        """Wait until all programs of this name are compiled.

        Errors are ignored: the call of the program will raise them again.
        """
        for future in self._futures.pop(name, []):
            with contextlib.suppress(Exception):
                future.result()

    def close(self) -> None:
        """Cancel what is queued and wait for the compilations in progress.

        A compilation cannot be interrupted, and the process cannot exit before it ends. Call this
        while a second signal still ends the process at once.
        """
        self._threads.shutdown(cancel_futures=True)
