"""Evaluation of a run from its folder."""

import io
import os
import pathlib
from typing import Any

import jax
import numpy as np
from flax import nnx

from lra import arrays
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.files import write_atomically
from lra.pace import Pace
from lra.restored import Restored, restore_workdir
from lra.trainer import Trainer


def evaluate_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    split: str = "test",
    predictions: str | os.PathLike | None = None,
    eval_batch_size: int | None = None,
) -> None:
    """Print the accuracy of each seed's best and last parameters.

    Args:
        workdir: Folder of a run, complete or not.
        data_dir: Folder of the prepared data; None for the one the run was trained on.
        split: Name of the split to evaluate.
        predictions: Path of an .npz file to write, with `stored_split` (a name), `index` [n],
            `label` [n], `seeds` [s], `diverged` [s] and `logits` [s, n, classes]. Example i of the
            n is example `index[i]` of `prepared.split(str(stored_split))`: with `data.holdout` the
            splits `train` and `validation` are both parts of the stored `train`, and where the
            validation set is the test set, it is stored as `test`.
        eval_batch_size: Number of examples at a time; None for that of the run.

    Raises:
        UserError: If there is no run or checkpoint, the data are not those of the run, predictions
            are requested before the first validation, or the file cannot be written.
    """
    restored = restore_workdir(
        workdir, data_dir=data_dir, splits=(split,), eval_batch_size=eval_batch_size
    )
    trainer, state, step = restored.trainer, restored.state, restored.step
    diverged_step, val_accuracy, best_step = trainer.fetch(
        (state.diverged_step, state.best.val_accuracy, state.best.step)
    )
    if predictions is not None and np.any((diverged_step < 0) & (val_accuracy < 0)):
        raise UserError(
            f"no predictions: {workdir} has no validation yet (step {step}), so no best parameters "
            "that they could be of; let it train on"
        )
    last = evaluate(trainer, state.params, state.rest, split)
    none_better = np.all((val_accuracy < 0) | (best_step == step))
    if none_better and _are_equal(*trainer.fetch((state.best.rest, state.rest))):
        best = last
    else:
        best = evaluate(trainer, state.best.params, state.best.rest, split)
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


def evaluate(trainer: Trainer, params: nnx.State, rest: nnx.State, split: str) -> Evaluation:
    """Evaluate every example of a split, once, for all seeds.

    Args:
        trainer: Trainer that has the split on its devices.
        params: Trained arrays, [seeds, ...].
        rest: Untrained arrays, [seeds, ...].
        split: Name of the split.
    """
    return trainer.new_evaluation(params, rest, split).to_the_end(Pace())


def _are_equal(one: Any, other: Any) -> bool:
    """Whether trees of arrays are equal; features may have been redrawn after the last step."""
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def _write_predictions(
    path: pathlib.Path, restored: Restored, split: str, evaluation: Evaluation
) -> None:
    prepared, trainer, state = restored.prepared, restored.trainer, restored.state
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
