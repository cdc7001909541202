"""Options that take one of a few names."""

import difflib
from collections.abc import Collection, Iterable


def check_choices(option: str, values: object, known: Collection[str]) -> None:
    """Raises ValueError if `values` is no collection, or one with an element not among `known`."""
    if isinstance(values, str) or not isinstance(values, Collection):
        names = ", ".join(sorted(known))
        raise ValueError(f"{option} must be a collection of names (known: {names}), not {values!r}")
    for value in values:
        check_choice(f"element of {option}", value, known)


def check_choice(option: str, value: object, known: Iterable[str]) -> None:
    """Raises ValueError if `value` is not one of `known`; names the closest and lists all."""
    known = sorted(known)
    if value in known:
        return
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ValueError(f"unknown {option} {value!r}{hint} (known: {', '.join(known) or 'none'})")
