"""Evaluation of a run from its folder, and `load_model` to call its models from other code."""

import io
import os
import pathlib
from typing import Any

import numpy as np

from lra import arrays
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.files import write_atomically
from lra.pace import Pace
from lra.restored import Restored, restore_workdir, seed_model
from lra.trainer import Trainer
from models.heads import Classifier


def evaluate_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    split: str = "test",
    predictions: str | os.PathLike | None = None,
) -> int:
    """Print the accuracy of each seed's best and last parameters; return the exit status, 0.

    Args:
        workdir: Folder of a run, complete or not.
        data_dir: Folder of the prepared data; None for the one the run was trained on.
        split: Name of the split to evaluate.
        predictions: Path of an .npz file to write, with `stored_split` (a name), `index` [n],
            `label` [n], `seeds` [s], `diverged` [s] and `logits` [s, n, classes]. Example i of the
            n is example `index[i]` of `prepared.split(str(stored_split))`: with `data.holdout` the
            splits `train` and `validation` are both parts of the stored `train`, and where the
            validation set is the test set, it is stored as `test`.

    Raises:
        UserError: If there is no run or checkpoint, the data are not those of the run, predictions
            are requested before the first validation, or the file cannot be written.
    """
    restored = restore_workdir(workdir, data_dir=data_dir, splits=(split,))
    _, trainer, state, step = restored
    diverged_step, val_accuracy, best_step = trainer.fetch(
        (state.diverged_step, state.best.val_accuracy, state.best.step)
    )
    if predictions is not None and np.any((diverged_step < 0) & (val_accuracy < 0)):
        raise UserError(
            f"no predictions: {workdir} has no validation yet (step {step}), so no best parameters "
            "that they could be of; let it train on"
        )
    best = evaluate(trainer, state.best.params, state.best.rest, split)
    last = evaluate(trainer, state.params, state.rest, split)
    if predictions is not None:  # before printing, which a closed pipe would interrupt
        _write_predictions(pathlib.Path(predictions), restored, split, best)
    for index, seed in enumerate(trainer.config.seeds):
        if diverged_step[index] >= 0:
            print(f"seed {seed}: diverged at step {diverged_step[index]}, no accuracy")
            continue
        caption, last_accuracy = f"seed {seed}: {split} accuracy", f"{last.accuracy[index]:.4f}"
        if val_accuracy[index] < 0:
            print(
                f"{caption} {last_accuracy} with the parameters of step {step}; no validation yet"
            )
            continue
        print(
            f"{caption} {best.accuracy[index]:.4f} with the parameters of step "
            f"{best_step[index]}, {last_accuracy} with those of step {step}"
        )
    return 0


def load_model(
    workdir: str | os.PathLike,
    seed: int | None = None,
    *,
    last: bool = False,
    data_dir: str | os.PathLike | None = None,
) -> Classifier:
    """Load the trained classifier of one seed; `model(ids, mask)` gives logits [batch, classes].

    `lra.arrays.gather` makes ids (int32) and mask (bool), both [batch, length] or, for pairs,
    [batch, 2, length], from stored tokens. For the first eight test examples, with `arrays` from
    `lra`, `prepared` from `lra.data` and `get_task` from `lra.tasks`:

        data = prepared.load("data", "listops")
        examples = arrays.load_examples(data, ("test",), holdout=0)["test"]
        batch = arrays.gather(examples, np.arange(8), get_task("listops"), zero_is_padding=False)
        logits = load_model("runs/listops-nystrom")(batch.ids, batch.mask)

    `holdout` and `zero_is_padding` must be those of the run's `config.data`. `lra.arrays.pad` makes
    the tokens and lengths of such `Examples` from other sequences, given as
    `prepared.Sequences(tokens, offsets)`: all tokens in one uint8 array, sequence i from
    `offsets[i]` to `offsets[i + 1]`. They may be padded to fewer positions than the run's data
    (`lra.arrays.padded_length`), but not to more. On a GPU or TPU, call the model within
    `jax.default_matmul_precision(config.matmul_precision)` to get the logits of the run; JAX's
    default rounds products more.

    Args:
        workdir: Folder of a run, complete or not.
        seed: Seed of the run, diverged or not; None for the first.
        last: Whether to take the parameters of the last step instead of those with the highest
            validation accuracy.
        data_dir: Folder of the prepared data; None for the one the run was trained on.

    Raises:
        UserError: If there is no run or checkpoint, the data are not those of the run, the run does
            not have this seed, or best parameters are requested before the seed's first validation.
    """
    restored = restore_workdir(workdir, data_dir=data_dir)
    seed = restored.trainer.config.seeds[0] if seed is None else seed
    model, _ = seed_model(restored, seed, last=last)
    return model


def evaluate(trainer: Trainer, params: Any, rest: Any, split: str) -> Evaluation:
    """Evaluate every example of a split, once, for all seeds.

    Args:
        trainer: Trainer that has the split on its devices.
        params: Trained arrays, [seeds, ...].
        rest: Untrained arrays, [seeds, ...].
        split: Name of the split.
    """
    return trainer.evaluation(params, rest, split).to_the_end(Pace())


def _write_predictions(
    path: pathlib.Path, restored: Restored, split: str, evaluation: Evaluation
) -> None:
    prepared, trainer, state, _ = restored
    stored, index = arrays.stored_index(prepared, split, trainer.config.data.holdout)
    content = io.BytesIO()
    np.savez_compressed(
        content,
        stored_split=stored,
        index=index,
        label=trainer.labels(split),
        seeds=np.asarray(trainer.config.seeds),
        diverged=trainer.fetch(state.diverged_step) >= 0,
        logits=evaluation.logits,
    )
    try:
        write_atomically(path, content.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
