"""Messages on stderr."""

import contextlib
import sys


def say(text: str) -> None:
    """Print a line on stderr; a closed pipe (`2>&1 | head`) or a full disk is ignored."""
    with contextlib.suppress(OSError):
        # In one write, or lines of several processes would mix where stderr is not buffered.
        print(f"{text}\n", end="", file=sys.stderr, flush=True)
