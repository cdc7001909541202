"""Runs restored from their folders, and `load_model` to call their models from other code."""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from ml_collections import config_dict

from lra import environment, hosts
from lra.checkpoints import Checkpoints, finished
from lra.data import prepared as prepared_data
from lra.errors import UserError
from lra.state import TrainState
from lra.trainer import Trainer
from lra.workdir import Workdir
from models.heads import Classifier

_ATTEMPTS = 5  # to read a checkpoint before another one takes its place


class Restored(NamedTuple):
    """A run restored from its folder: its data, a trainer, and the state after `step` steps."""

    prepared: prepared_data.Prepared
    trainer: Trainer
    state: TrainState
    step: int


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


def restore_workdir(
    workdir: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    splits: tuple[str, ...] = (),
    eval_batch_size: int | None = None,
) -> Restored:
    """Restore the latest state of a run onto the devices of this machine.

    Args:
        workdir: Folder of a run, complete or not.
        data_dir: Folder of the prepared data; None for the one the run was trained on.
        splits: Names of the splits that the trainer puts on the devices.
        eval_batch_size: Number of examples to evaluate at a time; None for that of the run.

    Raises:
        UserError: If there is no run or checkpoint, or the data are not those of the run.
    """
    environment.check_jax()
    folder = Workdir(workdir)
    config, prepared = hosts.on_every(lambda: _load(folder, data_dir))
    with config.unlocked():
        config.mesh.update(seed=0, data=0)  # chosen for the devices of this machine
        if eval_batch_size is not None:
            config.train.eval_batch_size = eval_batch_size
    trainer = hosts.on_every(lambda: Trainer(config, prepared, splits=splits))
    return Restored(prepared, trainer, *_restore(folder, trainer))


def seed_model(restored: Restored, seed: int, *, last: bool = False) -> tuple[Classifier, int]:
    """Classifier of one seed, on the default device, and the step of its parameters.

    Args:
        restored: The restored run.
        seed: Seed of the run.
        last: Whether to take the parameters of the last step instead of those with the highest
            validation accuracy.

    Raises:
        UserError: If the run does not have this seed, or best parameters are requested before the
            first validation.
    """
    trainer, seeds = restored.trainer, restored.trainer.config.seeds
    if seed not in seeds:
        raise UserError(f"the run has no seed {seed}, only {', '.join(map(str, seeds))}")
    row, source = seeds.index(seed), restored.state if last else restored.state.best
    diverged_step, val_accuracy = trainer.fetch(
        (restored.state.diverged_step, restored.state.best.val_accuracy)
    )
    if not last and val_accuracy[row] < 0:
        if diverged_step[row] < 0:
            problem = f"has no validation yet (step {restored.step})"
        else:
            problem = f"diverged at step {diverged_step[row]}, before its first validation"
        raise UserError(
            f"seed {seed} {problem}, so no best parameters: choose those of the last step "
            "(--last, last=True)"
        )
    # Copied by way of the host: arrays on the run's mesh cannot be combined with the caller's.
    params, rest = jax.tree.map(
        lambda x: jnp.asarray(x[row]), trainer.fetch((source.params, source.rest))
    )
    step = restored.step if last else int(trainer.fetch(source.step)[row])
    return nnx.merge(trainer.graphdef, params, rest), step


def _load(
    folder: Workdir, data_dir: str | os.PathLike | None
) -> tuple[config_dict.ConfigDict, prepared_data.Prepared]:
    """Load the configuration of a run and its data; UserError if these are missing or others."""
    config, run = folder.load_config(), folder.load_run()
    try:
        prepared = prepared_data.load(data_dir or run["data_dir"], config.task)
    except UserError as error:
        if data_dir is not None:
            raise
        raise UserError(
            f"{error}; if the data of {folder.root} were moved, link them there or, where the "
            "command is on that run, give --data_dir"
        ) from None
    if prepared.sha256 != run["data_sha256"]:
        raise UserError(f"{prepared.root} is not the data that {folder.root} was trained on")
    return config, prepared


def _restore(folder: Workdir, trainer: Trainer) -> tuple[TrainState, int]:
    """Restore the latest state, that of a run under way too, whose checkpoints may be replaced."""
    for _ in range(_ATTEMPTS):
        before = _finished(folder)
        try:
            return _restore_latest(folder, trainer)
        except Exception:
            if _finished(folder) == before:
                raise
    raise UserError(f"{folder.root} is being trained and saves too often to be read; try again")


def _finished(folder: Workdir) -> list[str]:
    """Names of the finished checkpoints, the same on all hosts, so that all read again or none."""
    return hosts.on_main(lambda: sorted(finished(folder.checkpoints)))


def _restore_latest(folder: Workdir, trainer: Trainer) -> tuple[TrainState, int]:
    restored = None
    if hosts.on_main(folder.checkpoints.is_dir):
        checkpoints = Checkpoints(folder.checkpoints)
        restored = checkpoints.restore(trainer.abstract_state())
        checkpoints.close()
    if restored is None:
        raise UserError(f"no checkpoint in {folder.root} yet; train.py writes them")
    state, progress = restored
    return state, progress.step
