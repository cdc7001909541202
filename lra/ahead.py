"""Compiles programs beside other work: those of the steps and evaluations of a run.

Before its first step a run compiles and runs the program that makes its parameters. That of a
training step takes longer to compile and need not wait for it, nor those of evaluations for either.
JAX keeps what is compiled here: a call that finds its program does not compile it again.
"""

import concurrent.futures
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import jax

from models.machine import this_backend

_THREADS = 2  # a run's longest compilation, of its training step, and another one


def is_worthwhile() -> bool:
    """Whether to compile ahead: on accelerators, by one process.

    On a CPU it would take cores from the work that it is meant to run beside. Several processes
    may have to compile together, and so in the same order.
    """
    return this_backend() != "cpu" and jax.process_count() == 1


class Ahead:
    """Threads that compile; programs go by the names that they are submitted under.

    They compile by JAX's global settings. Those of a context, such as `jax.debug_nans(True)`, hold
    in its own thread alone, and with others a call does not find what was compiled.
    """

    def __init__(self):
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "compile")
        self._futures: dict[str, list[concurrent.futures.Future]] = {}

    @property
    def is_compiling(self) -> bool:
        """Whether something is left to compile."""
        return not all(future.done() for several in self._futures.values() for future in several)

    def submit(self, name: str, program: Callable, arguments: Callable[[], tuple]) -> None:
        """Compiles a jitted program; what was submitted earlier begins earlier.

        Args:
            name: to `wait` for; several programs may share one.
            program: what `jax.jit` returned.
            arguments: makes what it will be called with, or the like of `jax.ShapeDtypeStruct`.
        """
        # A thread begins without what its maker has set for a time (`machine.assumed`).
        context = contextvars.copy_context()

        def compile_it() -> Any:
            return program.lower(*arguments()).compile()

        future = self._threads.submit(context.run, compile_it)
        self._futures.setdefault(name, []).append(future)

    def wait(self, name: str) -> None:
        """Returns when all of this name is compiled. What failed will fail again when called."""
        for future in self._futures.pop(name, []):
            with contextlib.suppress(Exception):
                future.result()

    def close(self) -> None:
        """Compiles nothing more, and returns when what has begun is compiled.

        A compilation cannot be interrupted, and the process cannot end before. This is to be called
        while a second signal still ends it at once.
        """
        self._threads.shutdown(cancel_futures=True)
