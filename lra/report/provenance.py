"""Provenance of a row: device, number format, JAX version and commits."""

import re
from typing import NamedTuple

from lra.row import SEPARATOR, Row
from lra.training_rows import StepRow

FLOAT32 = "float32"
_UNKNOWN = "unknown"
_HASH = re.compile(r"^([0-9a-f]{7})[0-9a-f]*")


class Platform(NamedTuple):
    """What rows must share for their speeds to be comparable; `devices` is as in `Row.devices`."""

    devices: str
    number_format: str
    jax_version: str

    @property
    def title(self) -> str:
        """Devices and number format: `4 x a device, bfloat16`."""
        return f"{self.devices}, {self.number_format}"

    @property
    def title_with_jax(self) -> str:
        """`title` and the JAX version if known: `4 x a device, bfloat16, JAX 0.12.0`."""
        known = self.jax_version != _UNKNOWN
        return f"{self.title}, JAX {self.jax_version}" if known else self.title


class Program(NamedTuple):
    """What rows must share for their costs to be pooled: platform, seeds per program, commits."""

    platform: Platform
    seeds: int | None
    commits: str


def number_format_of(row: Row | StepRow) -> str:
    """Return the number format of a row: `float32`, `bfloat16`, `tensorfloat32 products`."""
    if row.matmul_precision == FLOAT32:
        return row.dtype
    products = f"{row.matmul_precision} products"
    return products if row.dtype == FLOAT32 else f"{row.dtype}, {products}"


def platform_of(row: Row) -> Platform:
    """Return the devices, number format and JAX version with which a row was computed."""
    return Platform(row.devices, number_format_of(row), _jax_version_of(row))


def program_of(row: Row) -> Program:
    """Return the program whose costs a row holds."""
    return Program(platform_of(row), row.seeds_in_program, commits_of(row))


def _jax_version_of(row: Row) -> str:
    """Return the JAX version; `A + B` if a run resumed with another, `unknown` if missing."""
    return (row.versions or {}).get("jax", _UNKNOWN).replace(SEPARATOR, " + ")


def commits_of(row: Row) -> str:
    """Return the short commit; `A + B` if a run resumed with other code, `unknown` if missing."""
    commits = (row.commit or _UNKNOWN).split(SEPARATOR)
    return " + ".join(dict.fromkeys(map(short_commit, commits)))


def short_commit(commit: str) -> str:
    """Shorten a hash to seven digits, keeping a suffix like `-dirty`; leave other names alone."""
    return _HASH.sub(r"\1", commit)
