"""Count the operations of real tokens in measured training steps whose rows have all operations.

    python -m benchmarks.real_flops results/training/train_step.jsonl --device=H200

Older rows of `benchmarks.train_step` count padding too, which the kernels leave out, so that their
shares of the rate of a matrix product are only bounds (≤). This prints the shares of real tokens:
their operations in random examples with the lengths of the task, times the steps per second of the
row, over its rate. The device is not needed.
"""

from benchmarks.table_hours import cells_of_flags
from benchmarks.train_case import EXAMPLES, TrainCase, make_trainer, model_flops
from lra.command_line import run
from lra.published import TABLE3, TABLE_TASKS
from lra.training_rows import StepValues


def main(argv: list[str]) -> int:
    """Print the share of each cell of the paper's table."""
    rows = cells_of_flags(argv, "real_flops", __doc__)
    print(f"| | {' | '.join(TABLE3)} |\n|{'---|' * (1 + len(TABLE3))}")
    for task in TABLE_TASKS:
        shares = (_text(rows.get((task, attention))) for attention in TABLE3)
        print(f"| {task} | {' | '.join(shares)} |", flush=True)
    return 0


def share(row: StepValues) -> float:
    """Return the row's share of the rate of a matrix product, by the operations of real tokens."""
    case = TrainCase(row["task"], row["attention"], row["seeds"], row["dtype"], row["batch"])
    flops = row["seeds"] * model_flops(make_trainer(case, EXAMPLES))
    return flops * row["steps_per_second"] / (row["peak_flops_per_second"] * row["num_devices"])


def _text(row: StepValues | None) -> str:
    return "–" if row is None else f"{share(row):.1%}"


if __name__ == "__main__":
    run(main)
