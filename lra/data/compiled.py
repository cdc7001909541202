"""Compile functions with numba, cached on disk between processes where possible."""

from collections.abc import Callable

import numba


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
