"""What a command tells beside its output: lines on stderr."""

import contextlib
import sys


def say(text: str) -> None:
    """Prints a line on stderr; a reader that has gone (`2>&1 | head`) ends no work."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
