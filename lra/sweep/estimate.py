"""Estimate how long the runs of a sweep will take, from runs in progress and from rows."""

import json
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from lra.row import NUMBER_FORMAT, Row
from lra.sweep.runs import Run, count
from lra.sweep.under_way import UnderWay

# Prefixes of the config keys that determine the time per step and of evaluations.
_COSTLY = (
    "dtype",
    "matmul_precision",
    "mesh.",
    "model.",
    "train.batch_size",
    "train.eval_",
    "train.microbatches",
)

# Thousands of years: no run takes longer, but damaged rows and metrics can suggest so.
_MAX_SECONDS = 1e12


class Estimate(NamedTuple):
    """Estimated time left for a run.

    Attributes:
        seconds: Number of seconds left.
        basis: What the estimate is based on, in words.
        rough: Whether the rows used are from another device than the latest row, or on other data
            or of other settings than the run's.
    """

    seconds: float
    basis: str
    rough: bool = False

    def __str__(self) -> str:
        return f"{'~' if self.rough else 'about '}{duration(self.seconds)} {self.basis}"


def estimate(
    run: Run, progress: UnderWay, costs: list[Row], takes: Callable[[str], bool]
) -> Estimate | None:
    """Estimate the time left for `run`; None if there is no basis or the result is implausible.

    A run in progress is assumed to continue at its own speed, evaluations not counted. For other
    runs, the time of rows of the same task and attention is scaled by the number of training
    examples over all seeds, which overestimates where several seeds in one program cost little
    more than one. Rows of CPUs count only if the latest row is of one, and others only if not.

    Args:
        run: The run, restricted to the seeds to train.
        progress: Progress of the run.
        costs: Rows to estimate from, as returned by `rows_with_costs`.
        takes: Predicate of a row's data mark: whether it is acceptable for the run.
    """
    steps = max(0, run.config["train.steps"] - progress.step)  # damaged metrics may exceed the end
    examples = steps * _batch_size(run.config) * len(run.seeds)
    if progress.examples_per_second:
        speed = progress.examples_per_second
        basis = f"at {speed:,.0f} examples/s, evaluations aside"
        return _plausible(Estimate(examples / speed, basis))
    similar = [
        row
        for row in costs
        if (row.task, row.attention) == (run.task, run.attention)
        # A GPU may take a hundredth of a CPU's time, and another share for each attention.
        and row.on_cpu == costs[-1].on_cpu
    ]
    if not similar:
        return None
    same_device = [row for row in similar if row.devices == costs[-1].devices]
    return _plausible(
        _from_rows(run, examples, same_device or similar, takes, elsewhere=not same_device)
    )


def _plausible(result: Estimate) -> Estimate | None:
    """Return the estimate, or None if it is not a plausible time."""
    return result if result.seconds <= _MAX_SECONDS else None


def _from_rows(
    run: Run, examples: int, rows: list[Row], takes: Callable[[str], bool], elsewhere: bool
) -> Estimate:
    """Estimate from the rows most similar to the run.

    Of the rows from one device, use those on the run's data if there are any; of these, those with
    the same model and training settings if there are any, else those in the same number format if
    there are any. `basis` says how they differ from the run. Data take precedence, since examples
    of other data may have another length.
    """
    rows = [row for row in rows if row.devices == rows[-1].devices]
    on_data = [row for row in rows if takes(row.data)]
    rows = on_data or rows
    alike = [row for row in rows if _cost_settings(row.config) == _cost_settings(run.config)]
    in_format = [row for row in rows if not differing_formats(row, run)]
    rows = alike or in_format or rows
    seconds_per_example = statistics.median(
        # Successive divisions, since the product of the divisors may overflow.
        row.wall_seconds / row.steps / _batch_size(row.config) / row.seeds_in_program
        for row in rows
    )
    basis = f"by {count(len(rows), 'row')}"
    if in_format and not alike:
        basis += " of other settings"
    if not on_data:
        basis += " on other data"
    if not in_format:
        basis += " in another number format"
    if elsewhere:
        basis += f" on {rows[-1].devices}"
    return Estimate(seconds_per_example * examples, basis, elsewhere or not on_data or not alike)


def differing_formats(row: Row, run: Run) -> list[str]:
    """Return the keys of the number format in which `row` and `run` differ."""
    return [name for name in NUMBER_FORMAT if getattr(row, name) != run.config[name]]


def _batch_size(config: dict[str, Any]) -> int:
    return config["train.batch_size"]


def _cost_settings(config: dict[str, Any]) -> str:
    """Return the items of a flat config that determine the time of a run, as JSON.

    As JSON because the configs of rows were read from JSON, where tuples became lists.
    """
    costly = {name: value for name, value in config.items() if name.startswith(_COSTLY)}
    return json.dumps(costly, sort_keys=True)


def rows_with_costs(rows: list[Row]) -> list[Row]:
    """Select the rows whose time says what a step costs, in the order in which they were made.

    This excludes runs that diverged early, which mostly compiled, and runs resumed on other
    devices, whose time fits neither device.
    """
    selected = [
        row
        for row in rows
        if row.status == "ok"
        and not row.moved
        and row.wall_seconds
        and row.steps
        and row.seeds_in_program
        and _is_size(row.config.get("train.batch_size"))  # any value in a row from elsewhere
    ]
    return sorted(selected, key=lambda row: row.finished)


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def duration(seconds: float) -> str:
    """Format a duration: `45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
