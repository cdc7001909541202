"""Does the loss fall? The first steps of every task and attention on the real prepared data.

    python -m benchmarks.first_steps --data_dir=data
    python -m benchmarks.first_steps --data_dir=data --tasks=text --attentions=nystrom --steps=200

The real step of `lra.trainer` on the benchmark's model and length, without evaluations, with
smaller batches and a larger learning rate than the protocol's, so that a CPU gets through all of
them in half an hour. Printed: the mean training loss of the first and of the last tenth of the
steps. Guessing by the frequencies of the labels costs ln 2 = 0.69 in the tasks of two classes, 2.2
to 2.3 in the others. A task that is not prepared is skipped with a line.
"""

import argparse
import sys

from benchmarks.train_step import TABLE
from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, near_match, run
from lra.errors import UserError
from lra.pace import MAX_STEPS_PER_CALL

_PARTS = 10


def main(argv: list[str]) -> int:
    """Trains every pair asked for and prints a table."""
    options = _parser().parse_args(argv)
    tasks, attentions = _known(options.tasks, TABLE), _known(options.attentions, ATTENTIONS)
    if not _PARTS <= options.steps <= MAX_STEPS_PER_CALL:
        raise UserError(f"--steps={options.steps} is not from {_PARTS} to {MAX_STEPS_PER_CALL}")
    print(f"| task | {' | '.join(attentions)} |\n|---|{'---|' * len(attentions)}", flush=True)
    shown = 0
    for task in tasks:
        try:
            cells = [_losses(task, attention, options) for attention in attentions]
        except UserError as error:
            print(f"{task} skipped: {error}", file=sys.stderr)
            continue
        shown += 1
        print(f"| {task} | {' | '.join(cells)} |", flush=True)
    if not shown:
        raise UserError("no task could be trained, see above")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.first_steps", description=__doc__)
    parser.add_argument("--data_dir", default="data", metavar="DIR", help="prepared data")
    parser.add_argument("--tasks", default=",".join(TABLE), metavar="A,B")
    parser.add_argument("--attentions", default=",".join(ATTENTIONS), metavar="A,B")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="examples a step")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    return parser


def _known(text: str, known) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"unknown '{name}'{near_match(name, known)}")
    return names


def _losses(task_name: str, attention: str, options: argparse.Namespace) -> str:
    """The mean loss of the first and of the last tenth of the steps, `2.41 -> 2.20`."""
    from lra.data import prepared
    from lra.settings import load_config
    from lra.tasks import get_task
    from lra.trainer import Trainer

    overrides = {
        "steps": options.steps,
        "warmup_steps": options.steps // _PARTS,
        "batch_size": options.batch,
        "learning_rate": options.learning_rate,
    }
    config = load_config(
        f"configs/{task_name}.py:{attention}", [f"train.{k}={v}" for k, v in overrides.items()]
    )
    data = prepared.load(options.data_dir, task_name)
    trainer = Trainer(config, get_task(task_name), data, splits=("train",))
    state, tenth = trainer.init(), options.steps // _PARTS
    state, first = trainer.train(state, 0, tenth)
    state, _ = trainer.train(state, tenth, options.steps - 2 * tenth)
    _, last = trainer.train(state, options.steps - tenth, tenth)
    return f"{float(first.loss[0]):.3f} → {float(last.loss[0]):.3f}"


if __name__ == "__main__":
    run(main)
