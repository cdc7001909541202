"""Checks of options: names, sizes and fractions; a wrong one raises ValueError."""

import difflib
import numbers
from collections.abc import Collection, Iterable


def check_fraction(**values: object) -> None:
    """Raise ValueError naming the first of `values` that is not a number in [0, 1)."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < 1:
            raise ValueError(f"{name} must be a number from 0 to less than 1, not {value!r}")


def check_positive(**sizes: object) -> None:
    """Raise ValueError naming the first of `sizes` that is not a positive integer."""
    for name, size in sizes.items():
        if not _is_integer(size) or size < 1:
            raise ValueError(f"{name} must be a positive integer, not {size!r}")


def check_not_negative(**sizes: object) -> None:
    """Raise ValueError naming the first of `sizes` that is not a non-negative integer."""
    for name, size in sizes.items():
        if not _is_integer(size) or size < 0:
            raise ValueError(f"{name} must be 0 or a positive integer, not {size!r}")


def _is_integer(value: object) -> bool:
    """Whether `value` is a Python or NumPy integer; booleans do not count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_choices(option: str, values: object, known: Collection[str]) -> None:
    """Raise ValueError unless `values` is a collection whose elements are all in `known`."""
    if isinstance(values, str) or not isinstance(values, Collection):
        names = ", ".join(sorted(known))
        raise ValueError(f"{option} must be a collection of names (known: {names}), not {values!r}")
    for value in values:
        check_choice(f"element of {option}", value, known)


def check_choice(option: str, value: object, known: Iterable[str]) -> None:
    """Raise ValueError, listing `known` and the closest match, if `value` is not in `known`."""
    known = sorted(known)
    if value in known:
        return
    close = difflib.get_close_matches(str(value), known, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ValueError(f"unknown {option} {value!r}{hint} (known: {', '.join(known) or 'none'})")
