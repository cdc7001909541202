"""How rows differ from the protocol of Table 3: in attention options and in other keys."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from lra.protocol import ATTENTION_KEYS, TABLE3_PROTOCOL, defaults_of, departures
from lra.published import LRA_TASKS
from lra.row import NUMBER_FORMAT, Row


def is_table3(row: Row) -> bool:
    """Whether a row claims the protocol `table3` and follows it as the present code has it.

    Overrides of rows without a configuration count too.
    """
    if row.protocol != TABLE3_PROTOCOL:
        return False
    return not departures(row.task, row.attention, row.config | row.config_overrides)


def options(row: Row) -> dict[str, Any]:
    """Return the overrides of the attention's own options."""
    return {k: v for k, v in _overrides(row).items() if k.startswith(ATTENTION_KEYS)}


def of_protocol(row: Row) -> dict[str, Any]:
    """Return the overrides that change the protocol: neither attention options nor formats."""
    return {
        key: value
        for key, value in _overrides(row).items()
        if not key.startswith(ATTENTION_KEYS) and key not in NUMBER_FORMAT
    }


def varying(rows: list[Row]) -> list[str]:
    """Return the keys whose values differ, of those of the protocol that the first row changes."""
    names = of_protocol(rows[0])
    if not names:
        return []
    columns = zip(*(map(str, values(row, names).values()) for row in rows), strict=True)
    return [name for name, column in zip(names, columns, strict=True) if len(set(column)) > 1]


def values(row: Row, names: Iterable[str]) -> dict[str, Any]:
    """Return a row's values of the named keys, whether it changes them or not."""
    overrides, defaults = _overrides(row), defaults_of(row.task, row.attention)
    return {name: overrides.get(name, row.config.get(name, defaults.get(name))) for name in names}


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each key to its last word, or to itself if two keys share that word."""
    last = {key: key.rpartition(".")[2] for key in keys}
    count = Counter(last.values())
    return {key: word if count[word] == 1 else key for key, word in last.items()}


def describe_changes(rows: list[Row]) -> str:
    """Describe in a sentence which keys the rows change, with the values that all share."""
    several = varying(rows)
    parts = [k if k in several else f"{k}={v}" for k, v in of_protocol(rows[0]).items()]
    if any(options(row) for row in rows):
        parts.append("options of the attention")
    is_lra = any(row.task in LRA_TASKS for row in rows)
    base = "the protocol of Table 3" if is_lra else "the defaults of their configs"
    if not parts:
        return f"{base[0].upper()}{base[1:]}."
    return f"Changed from {base}: {', '.join(parts)}."


def _overrides(row: Row) -> dict[str, Any]:
    """Return changed keys: those that the row lists and those seen in its configuration."""
    return row.config_overrides | departures(row.task, row.attention, row.config)
