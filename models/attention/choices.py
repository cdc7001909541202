"""Options that take one of a few names."""

import difflib
from collections.abc import Iterable


def check_choice(option: str, value: object, known: Iterable[str]) -> None:
    """Raises ValueError if `value` is not one of `known`; names the closest and lists all."""
    known = sorted(known)
    if value in known:
        return
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ValueError(f"unknown {option} {value!r}{hint} (known: {', '.join(known) or 'none'})")
