"""Training speeds measured by `benchmarks.train_step`, for figures of accuracy against speed."""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from lra import training_rows
from lra.errors import UserError
from lra.protocol import TABLE3_PROTOCOL
from lra.report.provenance import Platform, number_format_of
from lra.training_rows import StepRow

# Task, attention, and protocol in the words of a row of accuracy.
Case = tuple[str, str, str]


class Speeds(NamedTuple):
    """Training speeds of one seed, all on one platform.

    Attributes:
        platform: Platform on which the speeds were measured.
        examples_per_second: Training examples per second of each case.
    """

    platform: Platform
    examples_per_second: dict[Case, float]


def read(path: str | os.PathLike) -> list[Speeds]:
    """Read the speeds of each platform, the one that was measured last first.

    Rows of several seeds or with another batch size than the protocol's are left out, and those
    with deterministic operations where the platform has others; of several rows of a case the last
    counts.

    Raises:
        UserError: The file is missing, a line is no row of a training step, or no row counts.
    """
    speeds: dict[tuple[Platform, bool], dict[Case, float]] = defaultdict(dict)
    latest: dict[tuple[Platform, bool], int] = {}
    for position, values in enumerate(training_rows.read(path, StepRow)):
        if "failed" in values:
            continue
        row = StepRow(**values)
        if row.seeds == 1 and row.protocol_hours:
            group = _platform(row), row.deterministic
            speeds[group][row.task, row.attention, _protocol(row)] = row.examples_per_second
            latest[group] = position
    if not speeds:
        raise UserError(f"{path}: no step with the protocol's batch and one seed was measured")
    fastest = [group for group in speeds if not group[1] or (group[0], False) not in speeds]
    fastest.sort(key=latest.__getitem__, reverse=True)
    return [Speeds(group[0], speeds[group]) for group in fastest]


def of_table(measured: Sequence[Speeds]) -> Speeds | None:
    """Return the speeds of the platform with most cases of the paper's table; None without any."""
    counts = [
        sum(protocol == TABLE3_PROTOCOL for *_, protocol in each.examples_per_second)
        for each in measured
    ]
    return measured[counts.index(max(counts))] if any(counts) else None


def _protocol(row: StepRow) -> str:
    """Return the protocol of a run with such steps, as `lra.protocol.protocol_of` writes it."""
    return f"changed: {', '.join(sorted(row.overrides))}" if row.overrides else TABLE3_PROTOCOL


def _platform(row: StepRow) -> Platform:
    many = f"{row.num_devices} x " if row.num_devices > 1 else ""
    return Platform(
        f"{many}{row.device}", number_format_of(row), row.versions.get("jax", "unknown")
    )
