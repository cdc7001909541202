"""How long do the cells of Table 3 take on a device with one seed each, from measured speeds?

    python -m benchmarks.table_hours results/training/train_step.jsonl --device=H200 --like=H100

Counts the protocol's training and evaluations, without compilation. If a cell has no row for the
device, its speed is estimated, in this order:

- Pathfinder, with sequences and batches like Image's, from Image (an overestimate of the time, as
  Pathfinder's many zeros are left out and Image has few);
- Retrieval, whose pairs have twice as many positions as Text's examples, from Text at half speed
  (on a CPU an underestimate of the time, in the rows there are up to five times: reviews are short,
  and what is only padding is left out);
- from the cell's row on another device, --like, scaled by how much faster Image is on this one;
- else by the mean of the task's other attentions.

If a cell has several rows, the latest counts.
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from lra import training_rows
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.published import TABLE3, TABLE_TASKS
from lra.settings import load_config
from lra.tasks import get_task
from lra.training_rows import Row, StepRow

# Similar task whose speed may be used instead, and how many times its work the task takes.
_SIMILAR = {"pathfinder": ("image", 1), "retrieval": ("text", 2)}
_REFERENCE = "image"

Rows = Mapping[tuple[str, str], Row]


class Speed(NamedTuple):
    """Speed of a cell.

    Attributes:
        steps: Training steps per second.
        examples: Evaluated examples per second.
        source: How the speed was obtained, in words.
    """

    steps: float
    examples: float
    source: str


def main(argv: list[str]) -> int:
    """Print the minutes of each task and the sources of the speeds."""
    parser = ArgumentParser(prog="python -m benchmarks.table_hours", description=__doc__)
    add = parser.add_argument
    add("rows", type=pathlib.Path, metavar="ROWS.jsonl", help="of benchmarks.train_step")
    add("--device", required=True, help="a part of its name")
    add("--like", help="a part of another device's name, of which speeds are taken if need be")
    add("--dtype", default="bfloat16", help="(%(default)s)")
    options = parser.parse_args(argv)
    rows = training_rows.read(options.rows, StepRow)
    own, other = (cells(rows, name, options.dtype) for name in (options.device, options.like))
    if not own:
        raise UserError(f"{options.rows} has no row of one seed, {options.dtype}, on such a device")
    estimates = {task: minutes_of(task, own, other) for task in TABLE_TASKS}
    print("| task | minutes | speeds |\n|---|---|---|")
    for task, (minutes, sources) in estimates.items():
        print(f"| {task} | {minutes:.1f} | {'; '.join(sources)} |")
    print(f"| all | {sum(minutes for minutes, _ in estimates.values()):.0f} | |")
    return 0


# In names of devices (`environment.device_name`).
_WITHOUT_KERNELS = ("(LRA_KERNELS=off)", "(no kernels")


def cells(rows: list[Row], device: str | None, dtype: str) -> Rows:
    """Return the latest row per cell with one seed, one device and the protocol's model and batch.

    Rows with deterministic operations count only where there are no others.

    Args:
        rows: Rows of `benchmarks.train_step`.
        device: Part of the device's name; None selects no rows. A device without the kernels of
            `models` is selected only if this part says so, as `(LRA_KERNELS=off)` does.
        dtype: Dtype of the rows.
    """
    return {
        (row["task"], row["attention"]): row
        for row in sorted(rows, key=lambda row: not row.get("deterministic"))
        if "failed" not in row
        if device and device in row["device"] and row["dtype"] == dtype
        if all(mark in device for mark in _WITHOUT_KERNELS if mark in row["device"])
        if row["seeds"] == row["num_devices"] == 1
        if row.get("protocol_hours") and not row.get("overrides")
    }


def minutes_of(task: str, own: Rows, other: Rows) -> tuple[float, list[str]]:
    """Return the minutes of a task's five cells, and the sources of their speeds.

    Args:
        task: Name of the task.
        own: Rows of the device, by cell.
        other: Rows of another device, by cell.
    """
    speeds = {attention: speed_of(task, attention, own, other) for attention in TABLE3}
    known = [_minutes(task, speed) for speed in speeds.values() if speed]
    if not known:
        raise UserError(f"no speed of {task}, nor of a task like it: name a device with --like")
    minutes = sum(known) / len(known) * len(speeds)
    missing = [name for name, speed in speeds.items() if speed is None]
    sources = sorted({speed.source for speed in speeds.values() if speed})
    return minutes, sources + [f"mean for {name}" for name in missing]


def speed_of(task: str, attention: str, own: Rows, other: Rows) -> Speed | None:
    """Return the speed of a cell, measured or estimated; None if there is no basis for it."""
    if row := own.get((task, attention)):
        return Speed(row["steps_per_second"], row["eval_examples_per_second"], "measured")
    similar, work = _SIMILAR.get(task, (None, 1))
    if similar and (speed := speed_of(similar, attention, own, other)):
        source = similar if speed.source == "measured" else f"{similar}, {speed.source}"
        return Speed(speed.steps / work, speed.examples / work, source)
    references = [rows.get((_REFERENCE, attention)) for rows in (own, other)]
    row = other.get((task, attention))
    if row is None or None in references:
        return None
    own_reference, other_reference = references
    steps, examples = (
        row[field] * own_reference[field] / other_reference[field]
        for field in ("steps_per_second", "eval_examples_per_second")
    )
    return Speed(steps, examples, f"{row['device']}, as {_REFERENCE} is faster here")


def _minutes(task: str, speed: Speed) -> float:
    """Return minutes of a cell: training, its evaluations on validation data, two on test data."""
    counts = get_task(task).counts
    train = load_config(f"configs/{task}.py:{next(iter(TABLE3))}").train  # the same for all
    evaluated = train.steps // train.eval_every * counts.get("validation", counts["test"])
    seconds = train.steps / speed.steps + (evaluated + 2 * counts["test"]) / speed.examples
    return seconds / 60


if __name__ == "__main__":
    run(main)
