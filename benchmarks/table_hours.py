"""How long do the cells of Table 3 take on a device, one seed each? Measured where there are rows.

    python -m benchmarks.table_hours results/training/train_step.jsonl --device=H200 --like=H100

Training and evaluations of the protocol, without compilation. Where a cell has no row on the
device, speeds are taken from elsewhere, in this order:

- of Pathfinder, whose sequences and batches are those of Image, from Image (too much: its zeros are
  left out, Image's are few);
- of Retrieval, whose pairs are twice as many positions as Text's, from Text, at half the speed;
- from the cell's row on another device, --like, times how much faster Image is on this one;
- else the mean of the task's other attentions.

Of several rows of a cell the latest counts.
"""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from lra import training_rows
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.published import TABLE3, TASKS
from lra.settings import load_config
from lra.tasks import get_task
from lra.training_rows import Row, StepRow

_TWINS = {"pathfinder": ("image", 1), "retrieval": ("text", 2)}  # and how many times the work
_REFERENCE = "image"

Rows = Mapping[tuple[str, str], Row]


class Speed(NamedTuple):
    """Of a cell.

    Attributes:
        steps, examples: a second, of training and of evaluation.
        source: where it is from.
    """

    steps: float
    examples: float
    source: str


def main(argv: list[str]) -> int:
    """Prints the minutes of each task, by where the speeds are from."""
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
    found = {task: minutes_of(task, own, other) for task in TASKS}
    print("| task | minutes | speeds |\n|---|---|---|")
    for task, (minutes, sources) in found.items():
        print(f"| {task} | {minutes:.1f} | {'; '.join(sources)} |")
    print(f"| all | {sum(minutes for minutes, _ in found.values()):.0f} | |")
    return 0


def cells(rows: list[Row], device: str | None, dtype: str) -> Rows:
    """The latest row of each cell with one seed, one device, the protocol's model and batch."""
    return {
        (row["task"], row["attention"]): row
        for row in rows
        if "failed" not in row
        if device and device in row["device"] and row["dtype"] == dtype
        if row["seeds"] == row["num_devices"] == 1
        if row["protocol_hours"] and not row.get("overrides")
    }


def minutes_of(task: str, own: Rows, other: Rows) -> tuple[float, list[str]]:
    """Minutes of a task's five cells, and where their speeds are from."""
    speeds = {attention: speed_of(task, attention, own, other) for attention in TABLE3}
    known = [_minutes(task, each) for each in speeds.values() if each]
    if not known:
        raise UserError(f"no speed of {task}, nor of a task like it: name a device with --like")
    minutes = sum(known) / len(known) * len(speeds)
    missing = [name for name, each in speeds.items() if each is None]
    sources = sorted({each.source for each in speeds.values() if each})
    return minutes, sources + [f"mean for {name}" for name in missing]


def speed_of(task: str, attention: str, own: Rows, other: Rows) -> Speed | None:
    """The speed of a cell, measured or extrapolated; None: there is nothing to go by."""
    if row := own.get((task, attention)):
        return Speed(row["steps_per_second"], row["eval_examples_per_second"], "measured")
    twin, work = _TWINS.get(task, (None, 1))
    if twin and (like := speed_of(twin, attention, own, other)):
        source = twin if like.source == "measured" else f"{twin}, {like.source}"
        return Speed(like.steps / work, like.examples / work, source)
    reference = [rows.get((_REFERENCE, attention)) for rows in (own, other)]
    row = other.get((task, attention))
    if row is None or None in reference:
        return None
    here, there = reference
    steps, examples = (
        row[field] * here[field] / there[field]
        for field in ("steps_per_second", "eval_examples_per_second")
    )
    return Speed(steps, examples, f"{row['device']}, as {_REFERENCE} is faster here")


def _minutes(task: str, speed: Speed) -> float:
    """Of the protocol: steps, evaluations on the validation set, two on the test set."""
    counts = get_task(task).counts
    train = load_config(f"configs/{task}.py:{next(iter(TABLE3))}").train  # the same for all
    evaluated = train.steps // train.eval_every * counts.get("validation", counts["test"])
    seconds = train.steps / speed.steps + (evaluated + 2 * counts["test"]) / speed.examples
    return seconds / 60


if __name__ == "__main__":
    run(main)
