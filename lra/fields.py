"""Rows as JSON: reading and writing a line, and checking its fields against a dataclass."""

import dataclasses
import functools
import json
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from lra.errors import UserError

# Fields that each status requires, or forbids.
Rules = Mapping[str, Sequence[str]]
_LARGEST = sys.float_info.max
_MAX_CHARACTERS = 60  # of a wrong value in a message
_NO_NUMBERS = frozenset((str, dict, list, bool, type(None)))


def check_fields(values: Mapping[str, Any], row: type, what: str) -> None:
    """Raise UserError for fields that are missing, unknown, of a wrong type, negative or too large.

    Numbers must fit in a float, since reports divide and average them, whereas an integer in JSON
    may have any number of digits.

    Args:
        values: Values by field name.
        row: Dataclass of the row; fields without a default are required.
        what: Name of the kind of row, for the message.
    """
    classes = _classes_of_fields(row)
    missing = [name for name in _required(row) if name not in values]
    if missing:
        raise UserError(f"not a {what}: {', '.join(missing)} missing")
    for name, value in values.items():
        if name not in classes:
            raise UserError(f"not a {what}: unknown field '{name}'")
        if not _fits(value, classes[name]):
            raise UserError(f"not a {what}: {name} cannot be {_shown(value)}")


@functools.cache
def _required(row: type) -> list[str]:
    """Names of the fields without a default."""
    return [
        field.name
        for field in dataclasses.fields(row)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


@functools.cache
def _classes_of_fields(row: type) -> dict[str, tuple[type, ...]]:
    return {field.name: _classes(field.type) for field in dataclasses.fields(row)}


def _classes(kind: Any) -> tuple[type, ...]:
    """Classes of the values that a field annotated with `kind` takes; a float may be an integer."""
    if isinstance(kind, types.UnionType):
        return tuple(cls for option in kind.__args__ for cls in _classes(option))
    return (int, float) if kind is float else (kind,)


def _fits(value: Any, classes: tuple[type, ...]) -> bool:
    """Whether a value is of one of the classes and, if it is a number, in range.

    True and False do not count as integers; NaN is never in range.
    """
    if type(value) in _NO_NUMBERS:
        return type(value) in classes
    if not isinstance(value, classes):
        return False
    return not isinstance(value, (int, float)) or 0 <= value <= _LARGEST


def _shown(value: Any) -> str:
    """The value's `repr`, truncated to keep messages readable."""
    text = repr(value)
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_MAX_CHARACTERS]}... ({len(text):,} characters)"


def can_be_shown(value: Any) -> bool:
    """Whether all numbers in a JSON value are finite and fit in a float."""
    if isinstance(value, (dict, list, tuple)):
        return all(map(can_be_shown, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (int, float)) or -_LARGEST <= value <= _LARGEST


def unfitting(values: Mapping[str, Any], required: Rules, forbidden: Rules) -> list[str]:
    """Fields that are None although `status` requires them, or set although it forbids them."""
    status = values["status"]
    missing = [name for name in required[status] if values.get(name) is None]
    return missing + [name for name in forbidden[status] if values.get(name) is not None]


def load(line: str | bytes) -> Any:
    """Parse a line of JSON.

    Raises:
        ValueError: If the line is not JSON.
        UserError: If it has NaN, an infinity, or half of a surrogate pair, which cannot be encoded.
    """
    values = json.loads(line, parse_constant=_refuse_constant)
    _check_text(values, line)
    return values


def dump(values: Any) -> str:
    """Serialise values as one line of JSON, the inverse of `load`; refuses the same values."""
    line = json.dumps(values, allow_nan=False)
    _check_text(values, line)
    return line


def _check_text(values: Any, line: str | bytes) -> None:
    """Raise UserError if `values`, serialised as `line`, have half of a surrogate pair."""
    if (b"\\ud" if isinstance(line, bytes) else "\\ud") in line.lower():
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UserError("not a row: it has half of a surrogate pair") from None


def _refuse_constant(name: str) -> float:
    raise UserError(f"not a row: {name} is no number")
