"""Does the loss fall? Every task and attention on a few real prepared examples, again and again.

    python -m benchmarks.first_steps --data_dir=data
    python -m benchmarks.first_steps --data_dir=data --tasks=text --attentions=nystrom --epochs=20

The real step of `lra.trainer` on the benchmark's model and length, dropout included, without
evaluations, with smaller batches and a larger learning rate than the protocol's, so that a CPU gets
through all pairs in half an hour. Printed: the mean training loss of the first and of the last
epoch, over the same examples, which are spread evenly over the training set. It says that data,
labels, gradients and optimizer fit together, not that anything general is learned. A pair that
cannot be trained, as of a task that is not prepared, is skipped with a line.
"""

import argparse
import sys

import numpy as np

from benchmarks.train_step import choose
from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, positive_number, run
from lra.data import prepared
from lra.data.prepared import Prepared, Sequences, Split
from lra.errors import UserError
from lra.pace import MAX_STEPS_PER_CALL
from lra.published import TASKS


def main(argv: list[str]) -> int:
    """Trains every pair asked for and prints a table."""
    options = _parser().parse_args(argv)
    tasks = choose(options.tasks, TASKS, TASKS)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    epoch, rest = divmod(options.examples, max(options.batch, 1))
    if rest or not 1 <= epoch <= MAX_STEPS_PER_CALL or min(options.batch, options.epochs - 2) < 1:
        raise UserError(
            f"--examples must be 1 to {MAX_STEPS_PER_CALL} times --batch, --epochs at least 3"
        )
    print(f"| task | {' | '.join(attentions)} |\n|---|{'---|' * len(attentions)}", flush=True)
    shown = 0
    for task in tasks:
        cells = []
        for attention in attentions:
            try:
                cells.append(_losses(task, attention, options))
                shown += 1
            except UserError as error:
                cells.append("–")
                print(f"{task}, {attention} skipped: {error}", file=sys.stderr)
        print(f"| {task} | {' | '.join(cells)} |", flush=True)
    if not shown:
        raise UserError("nothing could be trained, see above")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.first_steps", description=__doc__)
    parser.add_argument("--data_dir", default="data", metavar="DIR", help="prepared data")
    parser.add_argument("--tasks", default="all", metavar="A,B")
    parser.add_argument("--attentions", default="all", metavar="A,B")
    parser.add_argument("--examples", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="examples a step")
    parser.add_argument("--learning_rate", type=positive_number, default=1e-3)
    return parser


class _Few(Prepared):
    """A prepared task with so many training examples only."""

    number: int

    def split(self, name: str) -> Split:
        """Of `train`, examples spread evenly over it."""
        whole = super().split(name)
        chosen = np.linspace(0, len(whole.labels) - 1, self.number).astype(int)
        if whole.pairs is not None:
            return Split(whole.sequences, whole.labels[chosen], whole.pairs[chosen])
        texts = [whole.sequences[i] for i in chosen]
        offsets = np.cumsum([0, *map(len, texts)])
        return Split(Sequences(np.concatenate(texts), offsets), whole.labels[chosen], None)


def _losses(task_name: str, attention: str, options: argparse.Namespace) -> str:
    """The mean loss of the first and of the last epoch, `2.41 → 2.20`."""
    from lra.settings import load_config
    from lra.tasks import get_task
    from lra.trainer import Trainer

    epoch = options.examples // options.batch
    overrides = {
        "steps": options.epochs * epoch,
        "warmup_steps": epoch,
        "batch_size": options.batch,
        "learning_rate": options.learning_rate,
    }
    config = load_config(
        f"configs/{task_name}.py:{attention}", [f"train.{k}={v}" for k, v in overrides.items()]
    )
    data = _Few(*prepared.load(options.data_dir, task_name))
    data.number = options.examples
    trainer = Trainer(config, get_task(task_name), data, splits=("train",))
    state, losses = trainer.init(), []
    for start in range(0, options.epochs * epoch, epoch):
        state, metrics = trainer.train(state, start, epoch)
        losses.append(float(metrics.loss[0]))
    return f"{losses[0]:.2f} → {losses[-1]:.2f}"


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --batch needs less")
