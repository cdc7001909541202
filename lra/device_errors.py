"""Failures of a device that a user can put right, known by their text: JAX has no own types."""

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
TRAIN_IN_LESS = (
    "train.microbatches=2 (4, ...) and model.remat=True need less in training, a smaller "
    "train.eval_batch_size in evaluation (the table counts such rows as changed)"
)
_SHOWN = 200  # characters of JAX's own message


def explained(error: Exception, cure: str = "") -> str | None:
    """One line with cause and cure; None for any other exception.

    Args:
        error: that ended a command.
        cure: what needs less memory in that command.
    """
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY in str(error):
        return f"out of memory ({first_line(error)})" + (f"; {cure}" if cure else "")
    return None


def no_device(error: Exception, platforms: str) -> str:
    """Why JAX has no device.

    Args:
        error: what `jax.devices` raised.
        platforms: the value of `JAX_PLATFORMS`.
    """
    return (
        f"JAX finds no device for JAX_PLATFORMS='{platforms}' ({first_line(error)}); unset it, or "
        "install JAX for that device (make JAX=cuda13 install)"
    )


def first_line(error: Exception) -> str:
    """The beginning of an error's message; its type where there is none."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_SHOWN]
