"""Training speeds measured by `benchmarks.train_step`, for figures of accuracy against speed."""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from lra import training_rows
from lra.command_line import literal
from lra.errors import UserError
from lra.protocol import defaults_of
from lra.report.provenance import Platform, number_format_of, short_commit
from lra.row import NUMBER_FORMAT
from lra.training_rows import StepRow

# Task, attention, and the keys that differ from the defaults, `KEY=VALUE`.
Case = tuple[str, str, frozenset[str]]


class Speeds(NamedTuple):
    """Training speeds of one seed, all on one platform.

    Attributes:
        platform: Platform on which the speeds were measured.
        examples_per_second: Training examples per second of each case.
        commits: Abbreviated commit at which each case was measured, the same for a task's.
    """

    platform: Platform
    examples_per_second: dict[Case, float]
    commits: dict[Case, str]


def read(path: str | os.PathLike) -> list[Speeds]:
    """Read the speeds of each platform, the one that was measured last first.

    Rows of several seeds or with another batch size than the protocol's are left out, and those
    with deterministic operations where the platform has others. The speeds of a task are all of one
    commit, since those of others are of another day too, on which the machine may be faster: that
    with most cases of the task, then the latest. Of several rows of a case the last counts.

    Raises:
        UserError: The file is missing, a line is no row of a training step, or no row counts.
    """
    rows: dict[tuple[Platform, bool], list[StepRow]] = defaultdict(list)
    latest: dict[tuple[Platform, bool], int] = {}
    for position, values in enumerate(training_rows.read(path, StepRow)):
        if "failed" in values:
            continue
        row = StepRow(**values)
        if row.seeds == 1 and row.protocol_hours:
            group = _platform(row), row.deterministic
            rows[group].append(row)
            latest[group] = position
    if not rows:
        raise UserError(f"{path}: no step with the protocol's batch and one seed was measured")
    fastest = [group for group in rows if not group[1] or (group[0], False) not in rows]
    fastest.sort(key=latest.__getitem__, reverse=True)
    return [_speeds(group[0], rows[group]) for group in fastest]


def _speeds(platform: Platform, rows: list[StepRow]) -> Speeds:
    of_commits: dict[str, dict[str, dict[Case, StepRow]]] = defaultdict(dict)
    for row in rows:
        cases = of_commits[row.task].pop(row.commit, {})
        of_commits[row.task][row.commit] = cases | {_case(row): row}  # the latest commit comes last
    speeds, commits = {}, {}
    for by_commit in of_commits.values():
        for each, row in max(reversed(by_commit.values()), key=len).items():
            speeds[each], commits[each] = row.examples_per_second, short_commit(row.commit)
    return Speeds(platform, speeds, commits)


def of_table(measured: Sequence[Speeds]) -> Speeds | None:
    """Return the speeds of the platform with most cases of the paper's table; None without any."""
    counts = [sum(not changes for *_, changes in each.examples_per_second) for each in measured]
    return measured[counts.index(max(counts))] if any(counts) else None


def case(task: str, attention: str, values: dict[str, Any]) -> Case:
    """Return the case of a configuration with these values; number formats are no part of it."""
    defaults = defaults_of(task, attention)
    changed = {k: v for k, v in values.items() if k not in NUMBER_FORMAT and defaults.get(k) != v}
    return task, attention, frozenset(f"{key}={value}" for key, value in changed.items())


def _case(row: StepRow) -> Case:
    pairs = (override.split("=", 1) for override in row.overrides)
    return case(row.task, row.attention, {key: literal(text) for key, text in pairs})


def _platform(row: StepRow) -> Platform:
    many = f"{row.num_devices} x " if row.num_devices > 1 else ""
    return Platform(
        f"{many}{row.device}", number_format_of(row), row.versions.get("jax", "unknown")
    )
