"""Names of sections: those of their files, and the keys that their titles name."""

import json
import re
import zlib

_LONGEST_SLUG, _LONGEST_NAME = 60, 120
_MOST_VARYING, _MOST_SHARED = 4, 2  # keys that a title names


def slug_of(keys: tuple[str, ...], data: str) -> str:
    """Return a name that depends only on keys and data, not on the other groups."""
    words = [name.rpartition(".")[2] for name in keys] or ["data"]
    number = zlib.crc32(json.dumps([keys, data]).encode()) & 0xFFFF
    return f"{file_name('-'.join(words)[:_LONGEST_SLUG])}-{number:04x}"


def file_name(text: str) -> str:
    """Turn `text` into the stem of a file name.

    If more than dots had to be replaced, a checksum is appended to keep names distinct.
    """
    dotless = text.replace(".", "-")
    name = re.sub(r"[^\w=-]+", "-", dotless, flags=re.ASCII)[:_LONGEST_NAME]
    if name == dotless:
        return name
    return f"{name}-{zlib.crc32(text.encode(errors='replace')) & 0xFFFF:04x}"


def named_keys(several: list[str], shared: list[str]) -> str:
    """Name what a title has room for: `epsilon and 5 shared`, `dim, dropout and 10 more`.

    Args:
        several: Keys whose values vary; of those only some are counted if there are many.
        shared: The other keys, which are named if they are few or nothing varies.
    """
    if len(several + shared) <= _MOST_SHARED:
        return ", ".join(several + shared)
    shown = several[:_MOST_VARYING] or shared[:_MOST_SHARED]
    more = len(several or shared) - len(shown)
    counts = [f"{more} more"] if more else []
    counts += [f"{len(shared)} shared"] if several and shared else []
    *first, last = [*shown, *counts]
    return f"{', '.join(first)} and {last}" if counts else ", ".join(shown)
