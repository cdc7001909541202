"""Functions compiled with numba, cached on disk where possible, and their calls in threads."""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

T = TypeVar("T")


def compiled(function: Callable) -> Callable:
    """Apply `numba.njit` with its cache, or without if neither the checkout nor home is writable.

    The compiled function releases the GIL, so threads run it in parallel.

    The cache detects changes of the function's own file only, so compiled functions that it calls
    must be in the same file. Constants imported from other files are compiled in: after changing
    one, remove the caches (`__pycache__/*.nb*`).
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no writable location for the cache
        return numba.njit(nogil=True)(function)


def in_threads(function: Callable[..., T], calls: Iterable[tuple], workers: int) -> Iterator[T]:
    """Yield `function(*arguments)` for the arguments of each call, in order.

    The next calls, `2 * workers` at most, are made by `workers` threads meanwhile, in parallel if
    most of their work is compiled.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        pending = collections.deque()
        for arguments in calls:
            pending.append(pool.submit(function, *arguments))
            if len(pending) == 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
