"""Hints for unknown names: which known one may be meant."""

import difflib
import pathlib
from collections.abc import Iterable


def near_match(name: str, known: Iterable[str]) -> str:
    """Hint for an unknown name: the most similar of `known`, or else all of them.

    The hint is ` (did you mean 'x'?)` or ` (known: x, y)`.
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" (did you mean '{close[0]}'?)"
    return f" (known: {', '.join(known)})" if known else ""


def near_file(path: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
    """Hint like that of `near_match` for Python files, whose names are compared without folders."""
    by_name = {file.stem: str(file) for file in files if file.name != "__init__.py"}
    close = difflib.get_close_matches(path.stem, by_name, n=1)
    return near_match(by_name[close[0]] if close else "", by_name.values())
