"""Evaluates what a training left in its folder."""

import io
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from lra import arrays, environment
from lra.checkpoints import Checkpoints
from lra.data import prepared as prepared_data
from lra.errors import UserError
from lra.evaluation_run import Evaluation
from lra.files import write_atomically
from lra.pace import Pace
from lra.state import TrainState
from lra.tasks import get_task
from lra.trainer import Trainer
from lra.workdir import Workdir
from models.heads import Classifier


class Restored(NamedTuple):
    """A run as its folder has it: what it was trained on, and the state after `step` steps."""

    prepared: prepared_data.Prepared
    trainer: Trainer
    state: TrainState
    step: int


def evaluate_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    split: str = "test",
    predictions: str | os.PathLike | None = None,
) -> int:
    """Prints the accuracy of each seed's best and last parameters; returns the exit status, 0.

    Args:
        workdir: of a run, complete or not.
        data_dir: folder of the prepared data; None for the one it was trained on.
        split: of the data.
        predictions: an .npz file to write, with `stored_split` (a name), `index` [n], `label` [n],
            `seeds` [s], `diverged` [s] and `logits` [s, n, classes]. Example i of the n is
            `index[i]` of `prepared.split(str(stored_split))`: with `data.holdout` the splits
            `train` and `validation` are both parts of the stored `train`, and where the validation
            set is the test set, it is stored as `test`.

    Raises:
        UserError: no run or checkpoint, other data than the run's, predictions before the first
            validation, a file that cannot be written.
    """
    restored = restore_workdir(workdir, data_dir=data_dir, splits=(split,))
    _, trainer, state, step = restored
    if predictions is not None and np.any(state.alive & (state.best.val_accuracy < 0)):
        raise UserError(
            f"no predictions: {workdir} has no validation yet (step {step}), so no best parameters "
            "that they could be of; let it train on"
        )
    best = evaluate(trainer, state.best.params, state.best.rest, split)
    last = evaluate(trainer, state.params, state.rest, split)
    if predictions is not None:  # first: a closed pipe ends what is printed
        _write_predictions(pathlib.Path(predictions), restored, split, best)
    for index, seed in enumerate(trainer.config.seeds):
        if not state.alive[index]:
            print(f"seed {seed}: diverged at step {int(state.diverged_step[index])}, no accuracy")
            continue
        told, of_last = f"seed {seed}: {split} accuracy", f"{last.accuracy[index]:.4f} with"
        if state.best.val_accuracy[index] < 0:
            print(f"{told} {of_last} the parameters of step {step}; no validation yet")
            continue
        print(
            f"{told} {best.accuracy[index]:.4f} with the parameters of step "
            f"{int(state.best.step[index])}, {of_last} those of step {step}"
        )
    return 0


def restore_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    splits: tuple[str, ...] = (),
) -> Restored:
    """The latest state of a run, on whatever devices there are here.

    Args:
        workdir: of a run, complete or not.
        data_dir: folder of the prepared data; None for the one it was trained on.
        splits: those the trainer is to hold on the devices.

    Raises:
        UserError: no run or checkpoint, other data than the run's.
    """
    environment.check_jax()
    folder = Workdir(workdir)
    config, run = folder.load_config(), folder.load_run()
    task = get_task(config.task)
    prepared = prepared_data.load(data_dir or run["data_dir"], task.name)
    if prepared.sha256 != run["data_sha256"]:
        raise UserError(f"{prepared.root} is not the data that {folder.root} was trained on")
    with config.unlocked():
        config.mesh.update(seed=0, data=0)  # whatever devices there are here
    trainer = Trainer(config, task, prepared, splits=splits)
    return Restored(prepared, trainer, *_restore(folder, trainer))


def load_model(
    workdir: str | os.PathLike,
    seed: int | None = None,
    *,
    last: bool = False,
    data_dir: str | os.PathLike | None = None,
) -> Classifier:
    """The trained classifier of one seed; `model(ids, mask)` returns its logits [batch, classes].

    `lra.arrays.gather` makes ids, int32, and mask, bool, both [batch, length] and for pairs
    [batch, 2, length], from stored tokens. For the first eight test examples, with `arrays` from
    `lra`, `prepared` from `lra.data` and `get_task` from `lra.tasks`:

        data = prepared.load("data", "listops")
        examples = arrays.load_examples(data, ("test",), holdout=0)["test"]
        batch = arrays.gather(examples, np.arange(8), get_task("listops"), zero_is_padding=False)
        logits = load_model("runs/listops-nystrom")(batch.ids, batch.mask)

    `holdout` and `zero_is_padding` are those of the run, `config.data`. `lra.arrays.pad` makes the
    tokens and lengths of such `Examples` from other sequences; they may be padded to fewer
    positions than the run's data (`lra.arrays.padded_length`), not to more. On a GPU or TPU the
    logits are those of the run within `jax.default_matmul_precision(config.matmul_precision)`;
    JAX's default rounds products more.

    Args:
        workdir: of a run, complete or not.
        seed: of the run, diverged or not; None for its first.
        last: the parameters of the last step, not those that were best on the validation set.
        data_dir: folder of the prepared data; None for the one it was trained on.

    Raises:
        UserError: no run or checkpoint, other data than the run's, a seed that the run does not
            have, best parameters before the seed's first validation.
    """
    restored = restore_workdir(workdir, data_dir=data_dir)
    seed = restored.trainer.config.seeds[0] if seed is None else seed
    model, _ = seed_model(restored, seed, last=last)
    return model


def seed_model(restored: Restored, seed: int, *, last: bool = False) -> tuple[Classifier, int]:
    """The classifier of one seed, on the default device, and the step its parameters are of.

    Args:
        restored: the run.
        seed: of the run.
        last: the parameters of the last step, not those that were best on the validation set.

    Raises:
        UserError: a seed that the run does not have, best parameters before its first validation.
    """
    trainer, seeds = restored.trainer, restored.trainer.config.seeds
    if seed not in seeds:
        raise UserError(f"the run has no seed {seed}, only {', '.join(map(str, seeds))}")
    row, chosen = seeds.index(seed), restored.state if last else restored.state.best
    if not last and trainer.fetch(restored.state.best.val_accuracy)[row] < 0:
        raise UserError(
            f"seed {seed} has no validation yet (step {restored.step}), so no best parameters: "
            "choose those of the last step (--last, last=True)"
        )
    # By way of the host: arrays on the run's mesh cannot be used together with a caller's.
    params, rest = jax.tree.map(
        lambda x: jnp.asarray(x[row]), trainer.fetch((chosen.params, chosen.rest))
    )
    step = restored.step if last else int(trainer.fetch(chosen.step)[row])
    return nnx.merge(trainer.graphdef, params, rest), step


def evaluate(trainer: Trainer, params: Any, rest: Any, split: str) -> Evaluation:
    """Evaluates every example of a split, once, for all seeds.

    Args:
        trainer: holds the split.
        params: trained arrays, per seed.
        rest: untrained arrays, per seed.
        split: of the data.
    """
    return trainer.evaluation(params, rest, split).to_the_end(Pace())


def _restore(folder: Workdir, trainer: Trainer) -> tuple[TrainState, int]:
    restored = None
    if folder.checkpoints.is_dir():
        checkpoints = Checkpoints(folder.checkpoints)
        restored = checkpoints.restore(trainer.abstract_state())
        checkpoints.close()
    if restored is None:
        raise UserError(f"no checkpoint in {folder.root} yet; train.py writes them")
    state, progress = restored
    return state, progress.step


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
