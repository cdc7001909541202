"""A training that starts from the parameters of another run, `train.init_from`.

So a hard task is learned after an easy one (Pathfinder's difficulties), or a model goes on with
another attention that has the same parameters, as the Nyströmformer paper does with BERT's, and
Performer's authors with a Transformer's (arXiv 2009.14794).
"""

import jax
import numpy as np
from flax import nnx

from lra import hosts, sharding
from lra.errors import UserError
from lra.evaluation import Restored, restore_workdir
from lra.state import TrainState
from lra.trainer import Trainer
from lra.workdir import Workdir


def initial_state(trainer: Trainer) -> TrainState:
    """The state before the first step.

    With `train.init_from` each seed takes the best parameters of the same seed there. Untrained
    arrays (Performer's features, Reformer's rotations) are taken from there as well if both models
    have the same ones. All else starts anew: optimizer, schedule and order of the data.

    Raises:
        UserError: no run or checkpoint there, or not its data; a run that is not complete, whose
            best parameters may still change; a seed that it has not or that has diverged;
            parameters of other names or shapes.
    """
    state, workdir = trainer.init(), trainer.config.train.init_from
    if not workdir:
        return state
    source = restore_workdir(workdir)
    best, diverged_step = source.trainer.fetch((source.state.best, source.state.diverged_step))
    _check_complete(source, workdir)
    _check_params(best.params, state.params, workdir)
    rows = [_row(seed, source, diverged_step, workdir) for seed in trainer.config.seeds]

    def taken(arrays: nnx.State) -> nnx.State:
        return jax.tree.map(lambda x: sharding.put(x[rows], trainer.shardings.per_seed), arrays)

    # Two copies: a step uses up the arrays it is given, and none can be used up twice.
    state = state._replace(
        params=taken(best.params), best=state.best._replace(params=taken(best.params))
    )
    if _shapes(best.rest) != _shapes(state.rest):
        return state
    return state._replace(rest=taken(best.rest), best=state.best._replace(rest=taken(best.rest)))


def _row(seed: int, source: Restored, diverged_step: np.ndarray, workdir: str) -> int:
    """Where a seed is among those of the source."""
    seeds = source.trainer.config.seeds
    if seed not in seeds:
        raise UserError(f"train.init_from: {workdir} has no seed {seed}, only {seeds}")
    row = seeds.index(seed)
    if diverged_step[row] >= 0:
        raise UserError(
            f"train.init_from: seed {seed} of {workdir} diverged at step {diverged_step[row]}; "
            "leave it out, or name a run in which it did not"
        )
    return row


def _check_complete(source: Restored, workdir: str) -> None:
    steps = source.trainer.config.train.steps
    # Where the last checkpoint is damaged, and so skipped, these may not be the best of the run.
    at_end = source.step == steps or all(source.trainer.fetch(source.state.diverged_step) >= 0)
    if not (hosts.on_main(lambda: Workdir(workdir).rows.exists()) and at_end):
        raise UserError(
            f"train.init_from: {workdir} is not complete (step {source.step} of {steps}), its best "
            "parameters may still change; let it train to its end"
        )


def _check_params(params: nnx.State, own: nnx.State, workdir: str) -> None:
    there, here = _shapes(params), _shapes(own)
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            raise UserError(
                f"train.init_from: {name} is {there.get(name, 'not')} in {workdir} and "
                f"{here.get(name, 'not')} in this model; give both the same model"
            )


def _shapes(arrays: nnx.State) -> dict[str, tuple[int, ...]]:
    """Of one seed, by name."""
    return {
        ".".join(map(str, path)): np.shape(array[...])[1:]
        for path, array in nnx.to_flat_state(arrays)
    }
