"""Training state and the training step, as pure functions of one seed.

`lra.programs` maps them over seeds and compiles them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int
from ml_collections import config_dict

from lra.arrays import Batch
from lra.losses import cross_entropy, is_correct
from lra.optimizer import make_optimizer
from lra.parts import MeanOverParts
from lra.tasks import Task
from models.heads import Classifier, PairClassifier

_REDRAWS = 2**32 - 1  # larger than any step


class Best(NamedTuple):
    """Parameters with the highest validation accuracy so far, and the step they are from."""

    params: nnx.State
    rest: nnx.State
    val_accuracy: Float[Array, ""]
    step: Int[Array, ""]


class TrainState(NamedTuple):
    """Everything that a step changes, which is what a checkpoint holds.

    Attributes:
        params: Trained arrays.
        rest: Untrained random arrays (Performer's features, Reformer's rotations).
        opt_state: State of the optimizer.
        diverged_step: First step whose loss or gradient was not finite, from which on the state is
            frozen; -1 if there was none. See also `check_end`.
        best: Parameters with the highest validation accuracy so far.
    """

    params: nnx.State
    rest: nnx.State
    opt_state: optax.OptState
    diverged_step: Int[Array, ""]
    best: Best

    @property
    def alive(self) -> Bool[Array, "*seeds"]:
        """Whether the seed still trains, that is, has not diverged."""
        return self.diverged_step < 0


def still_training(diverged_step: np.ndarray) -> list[bool]:
    """Whether each seed still trains: `TrainState.alive`, for arrays fetched to the host."""
    return (diverged_step < 0).tolist()


class StepMetrics(NamedTuple):
    """Metrics of one step's batch, computed before the update."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]


def make_model(
    config: config_dict.ConfigDict, task: Task, length: int, rngs: nnx.Rngs
) -> Classifier:
    """Build the model of a configuration for sequences of `length` positions.

    Raises:
        ValueError: If options do not fit each other or the length; the message is one line.
    """
    model = PairClassifier if task.pairs else Classifier
    return model(
        config.model.to_dict(),
        vocab_size=task.vocab_size,
        length=length,
        num_classes=task.num_classes,
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
    )


def seed_keys(seed: Int[Array, ""]) -> tuple[Array, Array]:
    """Keys for initialisation and for training, derived from a seed."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(root, 0), jax.random.fold_in(root, 1)


def abstract_model(
    config: config_dict.ConfigDict, task: Task, length: int
) -> tuple[nnx.GraphDef, nnx.State, nnx.State]:
    """Structure of the model, and shapes and dtypes of its trained and its untrained arrays.

    Raises:
        ValueError: See `make_model`.
    """
    model = nnx.eval_shape(lambda: make_model(config, task, length, nnx.Rngs(0)))
    return nnx.split(model, nnx.Param, ...)


def abstract_run(
    config: config_dict.ConfigDict, task: Task, length: int
) -> tuple[nnx.GraphDef, TrainState]:
    """Structure of the model, and shapes and dtypes of the state of all seeds of a run.

    Raises:
        ValueError: See `make_model`.
    """
    graphdef, *_ = abstract_model(config, task, length)
    init = functools.partial(init_state, config=config, task=task, length=length)
    keys, _ = jax.eval_shape(jax.vmap(seed_keys), np.asarray(config.seeds, np.int32))
    return graphdef, jax.eval_shape(jax.vmap(init), keys)


def init_state(key: Array, config: config_dict.ConfigDict, task: Task, length: int) -> TrainState:
    """Training state before the first step."""
    params_key, attention_key = jax.random.split(key)
    rngs = nnx.Rngs(params=params_key, attention=attention_key)
    _, params, rest = nnx.split(make_model(config, task, length, rngs), nnx.Param, ...)
    return TrainState(
        params=params,
        rest=rest,
        opt_state=make_optimizer(config.train).init(params),
        diverged_step=jnp.array(-1, jnp.int32),
        best=Best(params, rest, jnp.array(-1.0, jnp.float32), jnp.array(0, jnp.int32)),
    )


def forward(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    rest: nnx.State,
    batch: Batch,
    keys: Array | None = None,
    packed_length: int | None = None,
) -> Float[Array, "batch classes"]:
    """Logits of the model with structure `graphdef` and arrays `params` and `rest`."""
    return nnx.merge(graphdef, params, rest)(batch.ids, batch.mask, keys, packed_length)


def train_step(
    state: TrainState,
    step: Int[Array, ""],
    batch: Batch,
    key: Array,
    *,
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    mean_over_parts: MeanOverParts,
) -> tuple[TrainState, StepMetrics]:
    """Make one update; once loss or gradient are not finite, the state stays as it is.

    Args:
        state: State before the step.
        step: Number of the step, from 0.
        batch: Batch of examples.
        key: Key of the seed's training.
        graphdef: Structure of the model.
        optimizer: Optimizer of the parameters.
        mean_over_parts: Function that applies another, of loss, accuracy and gradients, to the
            batch as a whole or in parts (`lra.parts`). Each example has its own key, so how it is
            divided affects only rounding.
    """

    def loss_fn(
        params: nnx.State, batch: Batch, keys: Array, packed_length: int | None
    ) -> tuple[Array, Array]:
        logits = forward(graphdef, params, state.rest, batch, keys, packed_length)
        accuracy = jnp.mean(is_correct(logits, batch.labels), dtype=jnp.float32)
        return jnp.mean(cross_entropy(logits, batch.labels)), accuracy

    rows = jnp.arange(len(batch.labels))
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.fold_in(key, step), rows)
    loss_and_gradients = jax.value_and_grad(loss_fn, has_aux=True)
    (loss, accuracy), gradients = mean_over_parts(loss_and_gradients, state.params, batch, keys)
    # One norm of the concatenated gradients: a GPU takes longer to launch a reduction per array. It
    # is infinite where squares overflow, as Adam's second moments do, which then stop all updates.
    norm = jnp.linalg.norm(ravel_pytree(gradients)[0])
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    new = (optax.apply_updates(state.params, updates), opt_state)
    params, opt_state = optax.tree.where(state.alive & finite, new, (state.params, state.opt_state))
    diverged_step = jnp.where(state.alive & ~finite, step, state.diverged_step)
    state = state._replace(params=params, opt_state=opt_state, diverged_step=diverged_step)
    return state, StepMetrics(loss, accuracy)


def update_best(
    state: TrainState, val_accuracy: Float[Array, ""], step: Int[Array, ""]
) -> TrainState:
    """Keep the current parameters if their validation accuracy is higher than any before."""
    better = state.alive & (val_accuracy > state.best.val_accuracy)
    current = Best(state.params, state.rest, val_accuracy, step)
    return state._replace(best=optax.tree.where(better, current, state.best))


def check_end(state: TrainState, val_loss: Float[Array, ""], steps: Int[Array, ""]) -> TrainState:
    """Mark the seed as diverged if the last of `steps` updates made it so.

    Normally the next step notices a bad update. After the last one there is no next step, so
    parameters and validation loss are checked. Steps count from 0: `diverged_step` becomes `steps`.
    """
    finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(state.params)]
    all_finite = jnp.isfinite(val_loss) & jnp.all(jnp.stack(finite))
    diverged_step = jnp.where(state.alive & ~all_finite, steps, state.diverged_step)
    return state._replace(diverged_step=diverged_step)


def redraw(
    state: TrainState, step: Int[Array, ""], key: Array, *, graphdef: nnx.GraphDef
) -> TrainState:
    """Redraw the untrained arrays of every attention (`Attention.redraw`)."""
    # Redraw a copy, since a diverged seed keeps its arrays.
    model = nnx.merge(graphdef, state.params, state.rest, copy=True)
    # Training folds steps into `key` itself, so no step uses a key derived by way of `_REDRAWS`.
    step_key = jax.random.fold_in(jax.random.fold_in(key, _REDRAWS), step)
    for layer, attention in enumerate(model.encoder.attentions):
        attention.redraw(jax.random.fold_in(step_key, layer))
    _, _, drawn = nnx.split(model, nnx.Param, ...)
    return state._replace(rest=optax.tree.where(state.alive, drawn, state.rest))
