"""Training speeds as `benchmarks.train_step` measured them, for accuracy against speed."""

import os
from collections import defaultdict
from typing import NamedTuple

from lra import training_rows
from lra.errors import UserError
from lra.report.provenance import Platform, number_format_of
from lra.training_rows import StepRow


class Speeds(NamedTuple):
    """How fast the steps of the protocol train one seed, all on one platform.

    Attributes:
        platform: where they were measured.
        examples_per_second: by task and attention.
    """

    platform: Platform
    examples_per_second: dict[tuple[str, str], float]


def read(path: str | os.PathLike) -> Speeds:
    """The speeds of the platform that has most of them, the later one if two have as many.

    Rows of several seeds, of overrides, or of another batch than the protocol's are left out; of
    several rows of a task and attention the last counts.

    Raises:
        UserError: no such file, a line that is no row of a training step, or none that counts.
    """
    found: dict[Platform, dict[tuple[str, str], float]] = defaultdict(dict)
    latest: dict[Platform, int] = {}
    for position, values in enumerate(training_rows.read(path, StepRow)):
        if "failed" in values:
            continue
        row = StepRow(**values)
        if row.seeds == 1 and not row.overrides and row.protocol_hours:
            platform = _platform(row)
            found[platform][row.task, row.attention] = row.examples_per_second
            latest[platform] = position
    if not found:
        raise UserError(f"{path}: no step of the protocol with one seed was measured")
    chosen = max(found, key=lambda platform: (len(found[platform]), latest[platform]))
    return Speeds(chosen, found[chosen])


def _platform(row: StepRow) -> Platform:
    many = f"{row.num_devices} x " if row.num_devices > 1 else ""
    return Platform(
        f"{many}{row.device}", number_format_of(row), row.versions.get("jax", "unknown")
    )
