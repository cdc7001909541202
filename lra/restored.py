"""Runs read back from their folders; `load_model` and `load_batch` serve other code."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Int
from ml_collections import config_dict

from lra import arrays, environment, hosts, sharding
from lra.checkpoints import Checkpoints, Progress, finished
from lra.data import prepared as prepared_data
from lra.errors import UserError, with_place
from lra.settings import check
from lra.state import TrainState, abstract_run
from lra.tasks import get_task
from lra.trainer import Trainer
from lra.workdir import Workdir
from models.heads import Classifier

_ATTEMPTS = 5  # to read a checkpoint before another one takes its place


class SavedModels(NamedTuple):
    """The models of a run as it has saved them, on the host.

    Attributes:
        config: Config of the run.
        graphdef: Structure of the model.
        state: State of all seeds after `step` steps, NumPy arrays [seeds, ...].
        step: Number of steps.
        evaluated: Step of the latest validation.
    """

    config: config_dict.ConfigDict
    graphdef: nnx.GraphDef
    state: TrainState
    step: int
    evaluated: int


class Restored(NamedTuple):
    """A run restored from its folder: its data, a trainer, and the state after `step` steps.

    `evaluated` is the step of the latest validation.
    """

    prepared: prepared_data.Prepared
    trainer: Trainer
    state: TrainState
    step: int
    evaluated: int

    @property
    def models(self) -> SavedModels:
        """The models without the data."""
        trainer, state = self.trainer, self.trainer.fetch(self.state)
        return SavedModels(trainer.config, trainer.graphdef, state, self.step, self.evaluated)


def load_model(
    workdir: str | os.PathLike,
    seed: int | None = None,
    *,
    last: bool = False,
    data_dir: str | os.PathLike | None = None,
) -> Classifier:
    """Load the trained classifier of one seed; `model(ids, mask)` gives logits [batch, classes].

    The run's data are not needed. `load_batch` makes ids (int32) and mask (bool), both [batch,
    length] or, for pairs, [batch, 2, length], of examples of prepared data:

        batch = load_batch("runs/listops-nystrom", "test", range(8))
        logits = load_model("runs/listops-nystrom")(batch.ids, batch.mask)

    `lra.arrays.pad` and `gather` make them of other sequences. These may be padded to fewer
    positions than `model.length`, but not to more. On a GPU or TPU, call the model within
    `jax.default_matmul_precision(config.matmul_precision)` to get the logits of the run; JAX's
    default rounds products more.

    Args:
        workdir: Folder of a run, complete or not.
        seed: Seed of the run, diverged or not; None for the first.
        last: Whether to take the parameters of the last step instead of those with the highest
            validation accuracy.
        data_dir: See `read_models`.

    Raises:
        UserError: See `read_models`; or the run does not have this seed, or best parameters are
            requested before the seed's first validation.
    """
    models = read_models(workdir, data_dir=data_dir)
    model, _ = seed_model(models, models.config.seeds[0] if seed is None else seed, last=last)
    return model


def load_batch(
    workdir: str | os.PathLike,
    split: str,
    indices: Int[np.ndarray, " batch"] | Sequence[int],
    *,
    data_dir: str | os.PathLike | None = None,
) -> arrays.Batch:
    """Load examples of a run's data as its models are given them.

    Args:
        workdir: Folder of the run.
        split: Name of the split: `train`, `validation` or `test`.
        indices: Indices of the examples in the split of the run, which `data.holdout` changes.
        data_dir: Folder of the prepared data; None for the one the run was trained on.

    Raises:
        UserError: If there is no run, the data are not there or not those of the run, or there is
            no such split or example.
    """
    config, prepared = _load(Workdir(workdir), data_dir)
    if split not in prepared_data.SPLITS:
        raise UserError(f"no split {split!r}, only {', '.join(prepared_data.SPLITS)}")
    examples = arrays.load_examples(prepared, (split,), config.data.holdout)[split]
    positions, count = np.asarray(indices), len(examples.labels)
    if positions.ndim != 1 or (positions.size and not np.issubdtype(positions.dtype, np.integer)):
        raise UserError(f"indices are a list of integers, as in [0, 1], not {indices!r}")
    if np.any((positions < 0) | (positions >= count)):
        raise UserError(f"{split} has the examples 0 to {count - 1} only")
    return arrays.gather(
        examples, positions.astype(np.int64), get_task(config.task), config.data.zero_is_padding
    )


def read_models(
    workdir: str | os.PathLike, *, data_dir: str | os.PathLike | None = None
) -> SavedModels:
    """Read the latest models of a run; all hosts together, from the same folder.

    Args:
        workdir: Folder of a run, complete or not.
        data_dir: Folder of the prepared data, read only for a run of an older version, which did
            not note the length of its sequences; None for the one the run was trained on.

    Raises:
        UserError: If there is no run or no undamaged checkpoint; if this code cannot build the
            model, or builds one with other arrays; or if data that are needed are not there.
    """
    environment.check_jax()
    folder = Workdir(workdir)

    def expected() -> tuple[config_dict.ConfigDict, nnx.GraphDef, TrainState]:
        config, facts = folder.load_config(), folder.load_facts()
        length = facts["length"] or arrays.padded_length(_load_data(folder, config.task, data_dir))
        try:
            return config, *abstract_run(config, get_task(config.task), length)
        except ValueError as error:  # other code than that of the run
            message = f"the model of {folder.root}, length {length}: {error}"
            raise UserError(with_place(message, error)) from error

    config, graphdef, abstract = hosts.on_every(expected)
    one_per_host = sharding.copy_on_every_host()
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one_per_host), abstract
    )
    state, progress = _restore(folder, abstract)
    state = jax.device_get(state)
    return SavedModels(config, graphdef, state, progress.step, progress.evaluated)


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
        UserError: If there is no run or checkpoint, the data are not those of the run, or no run
            can have this `eval_batch_size`.
    """
    environment.check_jax()
    folder = Workdir(workdir)
    config, prepared = hosts.on_every(lambda: _load(folder, data_dir))
    with config.unlocked():
        config.mesh.update(seed=0, data=0)  # chosen for the devices of this machine
        if eval_batch_size is not None:
            config.train.eval_batch_size = eval_batch_size
            check(config)
    trainer = hosts.on_every(lambda: Trainer(config, prepared, splits=splits))
    state, progress = _restore(folder, trainer.abstract_state())
    return Restored(prepared, trainer, state, progress.step, progress.evaluated)


def seed_model(models: SavedModels, seed: int, *, last: bool = False) -> tuple[Classifier, int]:
    """Classifier of one seed, on the default device, and the step of its parameters.

    Args:
        models: The models of the run.
        seed: Seed of the run.
        last: Whether to take the parameters of the last step instead of those with the highest
            validation accuracy.

    Raises:
        UserError: If the run does not have this seed, or best parameters are requested before the
            first validation.
    """
    state, seeds = models.state, models.config.seeds
    if seed not in seeds:
        raise UserError(f"the run has no seed {seed!r}, only {', '.join(map(str, seeds))}")
    row, source = seeds.index(seed), state if last else state.best
    if not last and state.best.val_accuracy[row] < 0:
        if state.diverged_step[row] >= 0:
            raise UserError(
                f"seed {seed} diverged at step {state.diverged_step[row]}, before its first "
                "validation, so it has no best parameters: choose another seed or run"
            )
        raise UserError(
            f"seed {seed} has no validation yet (step {models.step}), so no best parameters: "
            "choose those of the last step (--last, last=True)"
        )
    params, rest = jax.tree.map(lambda x: jnp.asarray(x[row]), (source.params, source.rest))
    step = models.step if last else int(source.step[row])
    return nnx.merge(models.graphdef, params, rest), step


def _load(
    folder: Workdir, data_dir: str | os.PathLike | None
) -> tuple[config_dict.ConfigDict, prepared_data.Prepared]:
    """Load the configuration of a run and its data; UserError if these are missing or others."""
    config = folder.load_config()
    return config, _load_data(folder, config.task, data_dir)


def _load_data(
    folder: Workdir, task: str, data_dir: str | os.PathLike | None
) -> prepared_data.Prepared:
    facts = folder.load_facts()
    try:
        prepared = prepared_data.load(data_dir or facts["data_dir"], task)
    except UserError as error:
        if data_dir is not None:
            raise
        raise UserError(
            f"{error}; if the data of {folder.root} were moved, link them there or, where the "
            "command is on that run, give --data_dir"
        ) from None
    if prepared.sha256 != facts["data_sha256"]:
        raise UserError(f"{prepared.root} is not the data that {folder.root} was trained on")
    return prepared


def _restore(folder: Workdir, abstract: TrainState) -> tuple[TrainState, Progress]:
    """Restore the latest state, that of a run under way too, whose checkpoints may be replaced."""
    for _ in range(_ATTEMPTS):
        before = _finished(folder)
        try:
            return _restore_latest(folder, abstract)
        except Exception:
            if _finished(folder) == before:
                raise
    raise UserError(f"{folder.root} is being trained and saves too often to be read; try again")


def _finished(folder: Workdir) -> list[str]:
    """Names of the finished checkpoints, the same on all hosts, so that all read again or none."""
    return hosts.on_main(lambda: sorted(finished(folder.checkpoints)))


def _restore_latest(folder: Workdir, abstract: TrainState) -> tuple[TrainState, Progress]:
    restored = None
    if hosts.on_main(folder.checkpoints.is_dir):
        checkpoints = Checkpoints(folder.checkpoints)
        restored = checkpoints.restore(abstract)
        checkpoints.close()
    if restored is None:
        raise UserError(f"no checkpoint in {folder.root} yet; train.py writes them")
    return restored
