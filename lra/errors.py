"""What a user can put right, told in one line: mistakes, files, and a device's lack of memory."""

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # in the text of JAX's error, which has no type of its own
TRAIN_IN_LESS = (
    "train.microbatches=2 (4, ...) and model.remat=True need less in training, a smaller "
    "train.eval_batch_size in evaluation (the table counts such rows as changed)"
)
# How a message begins that is about JAX as it is set up here, and so about every run.
NO_JAX = "JAX cannot be used here: "
_SHOWN = 200  # characters of JAX's own message


class UserError(Exception):
    """Bad input, named with its cure in one line; a command prints it and exits with status 2."""


def of_system(error: OSError) -> str:
    """An error of the operating system in one line: what, and of which file."""
    return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")


def lack_of_memory(error: Exception, cure: str = "") -> str | None:
    """One line with cause and cure, or None where the error is another one.

    Args:
        error: that ended a command.
        cure: what needs less memory in that command.
    """
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY in str(error):
        return f"out of memory ({first_line(error)})" + (f"; {cure}" if cure else "")
    return None


def first_line(error: Exception) -> str:
    """The beginning of an error's message; its type where there is none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_SHOWN]
