"""Does the loss fall? Every task and attention, trained repeatedly on a few prepared examples.

    python -m benchmarks.first_steps --data_dir=data
    python -m benchmarks.first_steps --data_dir=data --tasks=text --attentions=nystrom --epochs=20

Runs the real step of `lra.trainer` on the benchmark's model and length, dropout included, without
evaluations. Batches are smaller and the learning rate is larger than the protocol's, so that a CPU
gets through all pairs in half an hour. Prints the mean training loss of the first and the last
epoch over the same examples, which are spread evenly over the training set; --out writes the loss
of every epoch. This shows that data, labels, gradients and optimizer fit together, not that the
model generalises. A pair that cannot be trained (for example, because its task is not prepared) is
skipped with a message.
"""

import argparse
import math
import sys

import numpy as np

from benchmarks import markdown
from benchmarks.train_step import choose
from configs.default import ATTENTIONS
from lra import training_rows
from lra.command_line import ArgumentParser, file_to_write, positive_number, run
from lra.data import prepared
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.pace import MAX_STEPS_PER_CALL
from lra.published import TABLE_TASKS


def main(argv: list[str]) -> int:
    """Train every requested pair of task and attention and print a table."""
    options = _parser().parse_args(argv)
    tasks = choose(options.tasks, TABLE_TASKS, TABLE_TASKS)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    steps_per_epoch, rest = divmod(options.examples, max(options.batch, 1))
    if (
        rest
        or not 1 <= steps_per_epoch <= MAX_STEPS_PER_CALL
        or min(options.batch, options.epochs - 2) < 1
    ):
        raise UserError(
            f"--examples must be 1 to {MAX_STEPS_PER_CALL} times --batch, --epochs at least 3"
        )
    training_rows.check(options.out, training_rows.LossRow)
    from lra.environment import check_jax  # here, since JAX is slow to import

    check_jax()
    print(markdown.header(["task", *attentions]), flush=True)
    trained = 0
    for task in tasks:
        cells = []
        for attention in attentions:
            try:
                losses = _losses(task, attention, options)
            except UserError as error:
                cells.append("–")
                print(f"{task}, {attention} skipped: {error}", file=sys.stderr)
                continue
            cells.append(cell(losses))
            trained += 1
            if options.out:
                row = _row(task, attention, losses, options)
                training_rows.append(options.out, row, training_rows.LossRow)
        print(markdown.line([task, *cells]), flush=True)
    if not trained:
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
    parser.add_argument("--out", type=file_to_write, metavar="FILE", help="append a row a pair")
    return parser


def few(data: Prepared, number: int) -> Prepared:
    """Reduce a prepared task to `number` training examples, evenly spaced over all of them."""
    train = data.split("train")
    chosen = np.linspace(0, len(train.labels) - 1, number).astype(int)
    arrays = {"labels": train.labels[chosen]}
    if train.pairs is not None:
        arrays["pairs"] = train.pairs[chosen]
    else:
        texts = [train.sequences[i] for i in chosen]
        arrays |= {"tokens": np.concatenate(texts), "offsets": np.cumsum([0, *map(len, texts)])}
    reduced = {f"train/{name}.npy": array for name, array in arrays.items()}
    return data._replace(arrays=data.arrays | reduced)


def _losses(task_name: str, attention: str, options: argparse.Namespace) -> list[float]:
    """Train one pair of task and attention; return the mean loss of each epoch."""
    from lra.settings import load_config
    from lra.trainer import Trainer

    steps_per_epoch = options.examples // options.batch
    overrides = {
        "steps": options.epochs * steps_per_epoch,
        "warmup_steps": steps_per_epoch,
        "batch_size": options.batch,
        "learning_rate": options.learning_rate,
    }
    config = load_config(
        f"configs/{task_name}.py:{attention}", [f"train.{k}={v}" for k, v in overrides.items()]
    )
    data = few(prepared.load(options.data_dir, task_name), options.examples)
    trainer = Trainer(config, data, splits=("train",))
    state, losses = trainer.init(), []
    for start in range(0, options.epochs * steps_per_epoch, steps_per_epoch):
        state, metrics = trainer.train(state, start, steps_per_epoch)
        losses.append(float(metrics.loss[0]))
    return losses


def cell(losses: list[float | None]) -> str:
    """Format the losses of the first and last epoch, `2.41 → 2.20`; None is shown as `nan`."""
    first, last = (math.nan if loss is None else loss for loss in (losses[0], losses[-1]))
    return f"{first:.2f} → {last:.2f}"


def _row(
    task: str, attention: str, losses: list[float], options: argparse.Namespace
) -> training_rows.StepValues:
    from lra import environment

    return {
        "task": task,
        "attention": attention,
        "examples": options.examples,
        "batch": options.batch,
        "learning_rate": options.learning_rate,
        "losses": [loss if math.isfinite(loss) else None for loss in losses],
        "device": environment.device_name(),
        "commit": environment.commit(),
        "versions": environment.versions(),
    }


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --batch needs less")
