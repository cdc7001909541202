"""How long do the cells of Table 3 take on a device with one seed each, at measured speeds?

    python -m benchmarks.table_hours results/training/train_step.jsonl --device=H200

Adds up the protocol's training and evaluations, without compilation. If a cell has several rows,
the latest counts; cells without one are not counted.
"""

import itertools
import pathlib
from collections.abc import Mapping

from lra import training_rows
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.published import TABLE3, TABLE_TASKS
from lra.training_rows import StepRow, StepValues

Rows = Mapping[tuple[str, str], StepValues]

# In names of devices (`environment.device_name`).
_WITHOUT_KERNELS = ("(LRA_KERNELS=off)", "(no kernels")


def main(argv: list[str]) -> int:
    """Print the minutes of each task and of all."""
    rows = cells_of_flags(argv, "table_hours", __doc__)
    minutes = {task: minutes_of(task, rows) for task in TABLE_TASKS}
    print("| task | minutes | cells |\n|---|---|---|")
    for task, known in minutes.items():
        print(f"| {task} | {sum(known):.1f} | {len(known)} of {len(TABLE3)} |")
    known = list(itertools.chain(*minutes.values()))
    print(f"| all | {sum(known):.0f} | {len(known)} of {len(TABLE3) * len(TABLE_TASKS)} |")
    return 0


def cells_of_flags(argv: list[str], name: str, description: str) -> Rows:
    """Parse the flags of a benchmark that reads rows of a device; return these by cell.

    Raises:
        UserError: If there is no row of the device.
    """
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    add = parser.add_argument
    add("rows", type=pathlib.Path, metavar="ROWS.jsonl", help="of benchmarks.train_step")
    add("--device", required=True, help="a part of its name")
    add("--dtype", default="bfloat16", help="(%(default)s)")
    options = parser.parse_args(argv)
    rows = cells(training_rows.read(options.rows, StepRow), options.device, options.dtype)
    if not rows:
        raise UserError(f"{options.rows} has no row of one seed, {options.dtype}, on such a device")
    return rows


def cells(rows: list[StepValues], device: str, dtype: str) -> Rows:
    """Return the latest row per cell with one seed, one device and the protocol's model and batch.

    Rows with deterministic operations count only where there are no others.

    Args:
        rows: Rows of `benchmarks.train_step`.
        device: Part of the device's name. A device without the kernels of `models` is selected only
            if this part says so, as `(LRA_KERNELS=off)` does.
        dtype: Dtype of the rows.
    """
    return {
        (row["task"], row["attention"]): row
        for row in sorted(rows, key=lambda row: not row.get("deterministic"))
        if "failed" not in row
        if device in row["device"] and row["dtype"] == dtype
        if all(mark in device for mark in _WITHOUT_KERNELS if mark in row["device"])
        if row["seeds"] == row["num_devices"] == 1
        if row.get("protocol_hours") and not row.get("overrides")
    }


def minutes_of(task: str, rows: Rows) -> list[float]:
    """Return the minutes of those of a task's five cells that have a row."""
    own = (rows.get((task, attention)) for attention in TABLE3)
    return [60 * row["protocol_hours"] for row in own if row]


if __name__ == "__main__":
    run(main)
