"""The first NaN of a run: watched for with `--debug_nans`, told in one line."""

import contextlib
import pathlib
import traceback
from collections.abc import Callable

import jax

from lra.errors import first_line

STATUS_NAN = 1

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_OURS = (_ROOT / "models", _ROOT / "lra")  # not all of the root: it may hold the environment


def watched(on: bool) -> contextlib.AbstractContextManager:
    """While the block lasts, a call that returns a NaN is repeated step by step and raises."""
    return jax.debug_nans(True) if on else contextlib.nullcontext()


def locate(error: FloatingPointError, repeat: Callable[[], object]) -> FloatingPointError:
    """The error of the first operation at fault, found by running `repeat` without jit."""
    try:
        with jax.disable_jit():
            repeat()
    except FloatingPointError as nearer:
        return nearer
    return error


def describe(error: FloatingPointError) -> str:
    """What JAX found, and the line of ours it came from."""
    reason = first_line(error).rstrip(".")
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(folder in pathlib.Path(frame.filename).parents for folder in _OURS)
    ]
    if not ours:
        return reason
    where = ours[-1]  # the innermost
    path = pathlib.Path(where.filename).relative_to(_ROOT)
    return f"{reason} ({path}, line {where.lineno}, in {where.name})"
