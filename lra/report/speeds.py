"""Training speeds measured by `benchmarks.train_step`, for figures of accuracy against speed."""

import os
from collections import defaultdict
from typing import NamedTuple

from lra import training_rows
from lra.errors import UserError
from lra.report.provenance import Platform, number_format_of
from lra.training_rows import StepRow


class Speeds(NamedTuple):
    """Training speeds of one seed with the steps of the protocol, all on one platform.

    Attributes:
        platform: Platform on which the speeds were measured.
        examples_per_second: Training examples per second, by task and attention.
    """

    platform: Platform
    examples_per_second: dict[tuple[str, str], float]


def read(path: str | os.PathLike) -> Speeds:
    """Read the speeds of the platform with most of them; in a tie, of the one measured last.

    Rows of several seeds, with overrides, or with another batch size than the protocol's are left
    out, and those with deterministic operations where the platform has others; of several rows of a
    task and attention the last counts.

    Raises:
        UserError: The file is missing, a line is no row of a training step, or no row counts.
    """
    speeds: dict[tuple[Platform, bool], dict[tuple[str, str], float]] = defaultdict(dict)
    latest: dict[tuple[Platform, bool], int] = {}
    for position, values in enumerate(training_rows.read(path, StepRow)):
        if "failed" in values:
            continue
        row = StepRow(**values)
        if row.seeds == 1 and not row.overrides and row.protocol_hours:
            group = _platform(row), row.deterministic
            speeds[group][row.task, row.attention] = row.examples_per_second
            latest[group] = position
    if not speeds:
        raise UserError(f"{path}: no step of the protocol with one seed was measured")
    candidates = [group for group in speeds if not group[1] or (group[0], False) not in speeds]
    chosen = max(candidates, key=lambda group: (len(speeds[group]), latest[group]))
    return Speeds(chosen[0], speeds[chosen])


def _platform(row: StepRow) -> Platform:
    many = f"{row.num_devices} x " if row.num_devices > 1 else ""
    return Platform(
        f"{many}{row.device}", number_format_of(row), row.versions.get("jax", "unknown")
    )
