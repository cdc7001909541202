"""Where and how a row was computed: device, number format, JAX, commits."""

import re
from typing import NamedTuple

from lra.row import SEPARATOR, Row
from lra.training_rows import StepRow

FLOAT32 = "float32"
_UNKNOWN = "unknown"
_HASH = re.compile(r"^([0-9a-f]{7})[0-9a-f]*")


class Platform(NamedTuple):
    """What rows must share for their speeds to be compared; devices as `Row.devices`."""

    devices: str
    number_format: str
    jax_version: str

    @property
    def title(self) -> str:
        """`4 x a device, bfloat16`."""
        return f"{self.devices}, {self.number_format}"

    @property
    def title_with_jax(self) -> str:
        """`4 x a device, bfloat16, JAX 0.12.0`, without the version if it is unknown."""
        known = self.jax_version != _UNKNOWN
        return f"{self.title}, JAX {self.jax_version}" if known else self.title


class Program(NamedTuple):
    """What rows must share for their costs to be pooled: platform, seeds at once, and the code."""

    platform: Platform
    seeds: int | None
    commits: str


def number_format_of(row: Row | StepRow) -> str:
    """The number format of a row: `float32`, `bfloat16`, `tensorfloat32 products`."""
    if row.matmul_precision == FLOAT32:
        return row.dtype
    products = f"{row.matmul_precision} products"
    return products if row.dtype == FLOAT32 else f"{row.dtype}, {products}"


def platform_of(row: Row) -> Platform:
    """Where, in which format and with which JAX a row was computed."""
    return Platform(row.devices, number_format_of(row), _jax_version_of(row))


def program_of(row: Row) -> Program:
    """The program of which a row has the costs."""
    return Program(platform_of(row), row.seeds_in_program, commits_of(row))


def _jax_version_of(row: Row) -> str:
    """`A + B` if a run went on with another version; `unknown` if the row has none."""
    return (row.versions or {}).get("jax", _UNKNOWN).replace(SEPARATOR, " + ")


def commits_of(row: Row) -> str:
    """Short commits, `A + B` if a run went on with other code; `unknown` if the row has none."""
    commits = (row.commit or _UNKNOWN).split(SEPARATOR)
    return " + ".join(dict.fromkeys(map(short_commit, commits)))


def short_commit(commit: str) -> str:
    """Its first seven digits, and `-dirty` where it stands; other names are left as they are."""
    return _HASH.sub(r"\1", commit)
