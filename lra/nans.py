"""Detection of the first NaN of a run (`--debug_nans`), and its description in one line."""

import contextlib
from collections.abc import Callable, Iterator

import jax

from lra.errors import UserError, first_line, with_place

STATUS_NAN = 1


def check(on: bool) -> None:
    """Raise UserError if JAX watches for NaNs although `on` is False."""
    if jax.config.jax_debug_nans and not on:
        raise UserError(
            "JAX_DEBUG_NANS is set, so a seed that diverges would end all others; unset it, or "
            "give --debug_nans"
        )


def watched(on: bool) -> contextlib.AbstractContextManager:
    """Context in which, if `on`, a call that returns NaN is repeated op by op and raises."""
    return jax.debug_nans(True) if on else contextlib.nullcontext()


@contextlib.contextmanager
def located(repeat: Callable[[], object]) -> Iterator[None]:
    """Context in which a NaN raises the error of the first operation that gives it.

    That is found by running `repeat`, which makes the same call again, without jit.
    """
    try:
        yield
    except FloatingPointError:
        with jax.disable_jit():
            repeat()
        raise


def describe(error: FloatingPointError) -> str:
    """Describe the error in one line, with the innermost line of this project's code."""
    return with_place(first_line(error).rstrip("."), error)
