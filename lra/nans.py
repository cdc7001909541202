"""Detection of the first NaN of a run (`--debug_nans`), and its description in one line."""

import contextlib
from collections.abc import Callable

import jax

from lra.errors import first_line, line_of_code

STATUS_NAN = 1


def watched(on: bool) -> contextlib.AbstractContextManager:
    """Context in which, if `on`, a call that returns NaN is repeated op by op and raises."""
    return jax.debug_nans(True) if on else contextlib.nullcontext()


def locate(error: FloatingPointError, repeat: Callable[[], object]) -> FloatingPointError:
    """Error of the first operation that gives NaN, found by running `repeat` without jit."""
    try:
        with jax.disable_jit():
            repeat()
    except FloatingPointError as located:
        return located
    return error


def describe(error: FloatingPointError) -> str:
    """Describe the error in one line, with the innermost line of this project's code."""
    reason = first_line(error).rstrip(".")
    place = line_of_code(error)
    return f"{reason} ({place})" if place else reason
