"""Messages on stderr."""

import contextlib
import sys


def say(text: str) -> None:
    """Print a line on stderr; a closed pipe (`2>&1 | head`) or a full disk is ignored."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
