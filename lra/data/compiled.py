"""Functions compiled by numba, kept on disk between processes where there is a place for that."""

from collections.abc import Callable

import numba


def compiled(function: Callable) -> Callable:
    """`numba.njit` with its cache, or without where neither the checkout nor home is writable.

    Threads run it at the same time: it does not hold Python's lock.

    The cache notices changes of the function's own file only: what a compiled function calls must
    be in the same file. Constants of other files are part of what was compiled: whoever changes one
    removes the caches (`__pycache__/*.nb*`).
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no place for the cache
        return numba.njit(nogil=True)(function)
