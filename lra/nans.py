"""Detection of the first NaN of a run (`--debug_nans`), and its description in one line."""

import contextlib
import pathlib
import traceback
from collections.abc import Callable

import jax

from lra.errors import first_line

STATUS_NAN = 1

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CODE = (_ROOT / "models", _ROOT / "lra")  # not all of _ROOT, which may hold a virtual environment


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
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(folder in pathlib.Path(frame.filename).parents for folder in _CODE)
    ]
    if not frames:
        return reason
    innermost = frames[-1]
    path = pathlib.Path(innermost.filename).relative_to(_ROOT)
    return f"{reason} ({path}, line {innermost.lineno}, in {innermost.name})"
