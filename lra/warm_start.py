"""Initialisation from the parameters of another run, `train.init_from`.

It serves to learn a hard task after an easy one (Pathfinder's difficulties), or to continue with
another attention that has the same parameters, as the Nyströmformer paper does with BERT's and
Performer's authors do with a Transformer's (arXiv 2009.14794).
"""

import os

import jax
import numpy as np
from flax import nnx

from lra import hosts, sharding
from lra.errors import UserError
from lra.restored import SavedModels, read_models
from lra.state import TrainState
from lra.trainer import Trainer
from lra.workdir import Workdir


def initial_state(trainer: Trainer) -> TrainState:
    """Make the state before the first step.

    With `train.init_from`, each seed takes the best parameters of the same seed of that run.
    Untrained arrays (Performer's features, Reformer's rotations) are taken too if they have the
    same shapes in both models. Optimizer, schedule and data order start anew.

    Raises:
        UserError: If the other run has no checkpoint; if it is not complete, so that its best
            parameters may still change; if a seed is missing there or diverged; or if parameters
            differ in names or shapes.
    """
    state, workdir = trainer.init(), trainer.config.train.init_from
    # All hosts restore the same run from the same folder, and so have the same errors.
    return hosts.on_every(lambda: _take_over(state, trainer, workdir)) if workdir else state


def _take_over(state: TrainState, trainer: Trainer, workdir: str) -> TrainState:
    """Replace the parameters of `state` by the best ones of the run in `workdir`."""
    workdir = os.path.expanduser(workdir)
    try:
        source = read_models(workdir)
    except UserError as error:
        raise UserError(f"train.init_from: {error}") from None
    best = source.state.best
    _check_complete(source, workdir)
    _check_params(best.params, state.params, workdir)
    rows = [_row(seed, source, workdir) for seed in trainer.config.seeds]

    def copy(arrays: nnx.State) -> nnx.State:
        return jax.tree.map(lambda x: sharding.put(x[rows], trainer.shardings.per_seed), arrays)

    # Two copies: a step donates all arrays of the state, and none can be donated twice.
    state = state._replace(
        params=copy(best.params), best=state.best._replace(params=copy(best.params))
    )
    if _shapes(best.rest) != _shapes(state.rest):
        return state
    return state._replace(rest=copy(best.rest), best=state.best._replace(rest=copy(best.rest)))


def _row(seed: int, source: SavedModels, workdir: str) -> int:
    """Index of a seed among the seeds of the other run."""
    seeds, diverged_step = source.config.seeds, source.state.diverged_step
    if seed not in seeds:
        raise UserError(f"train.init_from: {workdir} has no seed {seed}, only {seeds}")
    row = seeds.index(seed)
    if diverged_step[row] >= 0:
        raise UserError(
            f"train.init_from: seed {seed} of {workdir} diverged at step {diverged_step[row]}; "
            "leave it out, or name a run in which it did not"
        )
    return row


def _check_complete(source: SavedModels, workdir: str) -> None:
    steps = source.config.train.steps
    # If the last checkpoint was damaged and skipped, the restored parameters may not be the best:
    # the one before it may be of the last step too, but of the time before its validation.
    validated = source.step == source.evaluated == steps
    at_end = validated or all(source.state.diverged_step >= 0)
    if not (hosts.on_main(lambda: Workdir(workdir).rows.exists()) and at_end):
        raise UserError(
            f"train.init_from: {workdir} is not complete (step {source.step} of {steps}), its best "
            "parameters may still change; let it train to its end"
        )


def _check_params(source: nnx.State, own: nnx.State, workdir: str) -> None:
    source_shapes, own_shapes = _shapes(source), _shapes(own)
    for name in sorted(source_shapes.keys() | own_shapes.keys()):
        if source_shapes.get(name) != own_shapes.get(name):
            raise UserError(
                f"train.init_from: {name} is {source_shapes.get(name, 'not')} in {workdir} and "
                f"{own_shapes.get(name, 'not')} in this model; give both the same "
                "model, and data of the same padded length"
            )


def _shapes(arrays: nnx.State) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of one seed, by name."""
    return {
        ".".join(map(str, path)): np.shape(array[...])[1:]
        for path, array in nnx.to_flat_state(arrays)
    }
