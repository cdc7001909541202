"""What rows of accuracy and rows of cost check alike: the fields of a dataclass read from JSON."""

import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

from lra.errors import UserError

# Fields that a status demands or forbids.
Rules = Mapping[str, Sequence[str]]
_SHOWN = 60  # characters of a wrong value in a message


def check_fields(values: Mapping[str, Any], row: type, what: str) -> None:
    """Raises UserError for fields missing or unknown, of a wrong type, negative or too large.

    A number is at most what a float holds: reports divide and average all of them, whereas an
    integer of JSON may have any number of digits.

    Args:
        values: by field.
        row: the dataclass; a field without a default is required.
        what: names it in the message.
    """
    fields = {field.name: field for field in dataclasses.fields(row)}
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"not a {what}: {', '.join(missing)} missing")
    for name, value in values.items():
        if name not in fields:
            raise UserError(f"not a {what}: unknown field '{name}'")
        if not is_a(value, fields[name].type) or _beyond_range(value):
            raise UserError(f"not a {what}: {name} cannot be {_shown(value)}")


def _beyond_range(value: Any) -> bool:
    """Whether it is a number that is negative, NaN or more than a float holds."""
    return isinstance(value, int | float) and not 0 <= value <= sys.float_info.max


def _shown(value: Any) -> str:
    """As Python writes it, cut where a message would not be read any more."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def unfitting(values: Mapping[str, Any], demanded: Rules, forbidden: Rules) -> list[str]:
    """The fields that `status` demands and are None, or forbids and are not."""
    status = values["status"]
    missing = [name for name in demanded[status] if values.get(name) is None]
    return missing + [name for name in forbidden[status] if values.get(name) is not None]


def is_a(value: Any, kind: Any) -> bool:
    """Whether `value` is of the type a field is annotated with; an integer may be a float."""
    if isinstance(kind, types.UnionType):
        return any(is_a(value, option) for option in kind.__args__)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def refuse_constant(name: str) -> float:
    """For `json.loads`: NaN and infinities are no JSON."""
    raise UserError(f"not a row: {name} is no number")
