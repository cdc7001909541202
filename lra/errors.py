"""Errors that a user can fix, each reported in one line: bad input, files, lack of memory."""

import pathlib
import traceback

STATUS_BAD_INPUT = 2  # exit status of a command

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CODE = (_ROOT / "models", _ROOT / "lra")  # not all of _ROOT, which may hold a virtual environment
# In messages of JAX's error, which has no type of its own.
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory allocating")
TRAIN_IN_LESS = (
    "train.microbatches=2 (4, ...) and model.remat=True need less in training, a smaller "
    "train.eval_batch_size in evaluation, in another --workdir (the table counts such rows as "
    "changed)"
)
# Prefix of errors in JAX's installation or settings: no run can start, so sweeps stop at them.
NO_JAX = "JAX cannot be used here: "
_MAX_CHARACTERS = 200  # of JAX's own message


class UserError(Exception):
    """Bad input and how to fix it, in one line; a command prints it and exits with status 2."""


def of_system(error: OSError) -> str:
    """Describe an error of the operating system in one line: its reason and its file."""
    return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")


def lack_of_memory(error: Exception, cure: str = "") -> str | None:
    """Describe an out-of-memory error in one line; None for any other error.

    Args:
        error: Error that ended a command.
        cure: Advice on how that command needs less memory.
    """
    if isinstance(error, MemoryError) or any(text in str(error) for text in _OUT_OF_MEMORY):
        return f"out of memory ({first_line(error)})" + (f"; {cure}" if cure else "")
    return None


def first_line(error: Exception) -> str:
    """First line of an error's message, truncated; its type if the message is empty."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_MAX_CHARACTERS]


def with_place(message: str, error: Exception) -> str:
    """Add the `line_of_code` of an error to a message about it, if there is one."""
    place = line_of_code(error)
    return f"{message} ({place})" if place else message


def line_of_code(error: Exception) -> str | None:
    """Innermost line of this project's code that an error passed: `FILE, line N, in FUNCTION`.

    None if there is none, or if that line raised the error itself: then its message says enough.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(folder in pathlib.Path(frame.filename).parents for folder in _CODE)
    ]
    if not frames or (frames[-1].line or "").startswith("raise "):
        return None
    path = pathlib.Path(frames[-1].filename).relative_to(_ROOT)
    return f"{path}, line {frames[-1].lineno}, in {frames[-1].name}"
