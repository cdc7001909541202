"""The first NaN of a run: watched for with `--debug_nans`, told in one line."""

import contextlib
import pathlib
import traceback

import jax

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def watched(on: bool) -> contextlib.AbstractContextManager:
    """While the block lasts, a call that returns a NaN is repeated step by step and raises."""
    return jax.debug_nans(True) if on else contextlib.nullcontext()


def describe(error: FloatingPointError) -> str:
    """What JAX found, and the line of ours it came from."""
    reason = str(error).strip().splitlines()[0].rstrip(".")
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if _ROOT in pathlib.Path(frame.filename).parents
    ]
    # The innermost frames are those of the model, the outermost of the loop.
    where = ours[-1]
    path = pathlib.Path(where.filename).relative_to(_ROOT)
    return f"{reason} ({path}, line {where.lineno}, in {where.name})"
