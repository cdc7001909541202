"""How rows differ from the protocol of Table 3: in options of the attention, in other keys."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from lra.protocol import TABLE3, defaults_of, departures
from lra.row import NUMBER_FORMAT, Row

# What the keys of an attention's own options begin with.
OPTIONS = "model.attention."


def is_table3(row: Row) -> bool:
    """Whether it follows the protocol of the present code: the row's own word is not enough."""
    return row.protocol == TABLE3 and not _departures(row)


def options(row: Row) -> dict[str, Any]:
    """Overrides of the attention's own options."""
    return {k: v for k, v in _overrides(row).items() if k.startswith(OPTIONS)}


def of_protocol(row: Row) -> dict[str, Any]:
    """Overrides that change the protocol: all but the attention's options and number formats."""
    return {
        key: value
        for key, value in _overrides(row).items()
        if not key.startswith(OPTIONS) and key not in NUMBER_FORMAT
    }


def varying(rows: list[Row]) -> list[str]:
    """Of rows that change the same keys of the protocol, the keys whose values differ."""
    names = of_protocol(rows[0])
    return [k for k in names if len({str(values(row, [k])[k]) for row in rows}) > 1]


def values(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """The values that a row has for some keys, whether it changes them or not."""
    overrides, defaults = _overrides(row), defaults_of(row.task, row.attention)
    return {name: overrides.get(name, row.config.get(name, defaults.get(name))) for name in names}


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """By key what titles call it: its last word, or all of it where two keys share that."""
    last = {key: key.rpartition(".")[2] for key in keys}
    number = Counter(last.values())
    return {key: word if number[word] == 1 else key for key, word in last.items()}


def told(rows: list[Row]) -> str:
    """In a sentence, which keys such rows have changed, with the values that all of them share."""
    several = varying(rows)
    parts = [k if k in several else f"{k}={v}" for k, v in of_protocol(rows[0]).items()]
    if any(options(row) for row in rows):
        parts.append("options of the attention")
    if not parts:
        return "The protocol of Table 3."
    return f"Changed from the protocol of Table 3: {', '.join(parts)}."


def _overrides(row: Row) -> dict[str, Any]:
    """Changed keys: those that the row lists, and those seen in its configuration."""
    return row.config_overrides | _departures(row)


def _departures(row: Row) -> dict[str, Any]:
    return departures(row.task, row.attention, row.config)
