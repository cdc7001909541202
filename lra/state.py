"""Training state and the training step, as pure functions of one seed.

`lra.programs` maps them over seeds and places them on devices.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int
from ml_collections import config_dict

from lra.arrays import Batch
from lra.buckets import by_length, in_bucket
from lra.losses import cross_entropy, is_correct
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
    opt_state: Any
    diverged_step: Int[Array, ""]
    best: Best

    @property
    def alive(self) -> Bool[Array, "*seeds"]:
        """Whether the seed still trains, that is, has not diverged."""
        return self.diverged_step < 0


def still_training(diverged_step: np.ndarray) -> list[bool]:
    """Whether each seed still trains: `TrainState.alive`, for arrays fetched to the host."""
    return [bool(step < 0) for step in diverged_step]


class Microbatches(NamedTuple):
    """How a step divides its batch for gradient accumulation.

    Attributes:
        parts: Number of parts of a batch, processed one after another.
        shares: Number of shares of each part, one per device that shares the batch; gradients are
            summed over devices once, after the last part.
        place: Function that constrains arrays [shares, ...] to these devices.
        buckets: Lengths to which parts are cut (`lra.buckets`); with fewer than two, none is cut.
        packed: Whether parts are packed to these lengths instead, even to a single one.
        axis_name: Name of the mapped axis of seeds, if there is one.
    """

    parts: int = 1
    shares: int = 1
    place: Callable[[Any], Any] = lambda tree: tree
    buckets: tuple[int, ...] = ()
    packed: bool = False
    axis_name: str | None = None


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


def seed_keys(seed: int) -> tuple[Array, Array]:
    """Keys for initialisation and for training, derived from a seed."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(root, 0), jax.random.fold_in(root, 1)


def init_state(
    key: Array, make: Callable[[nnx.Rngs], nnx.Module], optimizer: optax.GradientTransformation
) -> TrainState:
    """Training state before the first step."""
    params_key, attention_key = jax.random.split(key)
    model = make(nnx.Rngs(params=params_key, attention=attention_key))
    _, params, rest = nnx.split(model, nnx.Param, ...)
    return TrainState(
        params=params,
        rest=rest,
        opt_state=optimizer.init(params),
        diverged_step=jnp.array(-1, jnp.int32),
        best=Best(params, rest, jnp.array(-1.0, jnp.float32), jnp.array(0, jnp.int32)),
    )


def train_step(
    state: TrainState,
    step: Int[Array, ""],
    batch: Batch,
    key: Array,
    *,
    graphdef: nnx.GraphDef,
    optimizer: optax.GradientTransformation,
    microbatches: Microbatches,
) -> tuple[TrainState, StepMetrics]:
    """Make one update; once loss or gradient are not finite, the state stays as it is.

    Each example has its own key, so the number of microbatches affects only rounding.
    """

    def loss_fn(
        params: nnx.State, batch: Batch, keys: Array, packed_length: int | None = None
    ) -> tuple[Array, Array]:
        model = nnx.merge(graphdef, params, state.rest)
        logits = model(batch.ids, batch.mask, keys, packed_length)
        accuracy = jnp.mean(is_correct(logits, batch.labels), dtype=jnp.float32)
        return jnp.mean(cross_entropy(logits, batch.labels)), accuracy

    rows = jnp.arange(len(batch.labels))
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.fold_in(key, step), rows)
    if len(microbatches.buckets) > 1:
        order = by_length(batch, packed=microbatches.packed)
        batch, keys = jax.tree.map(lambda x: x[order], (batch, keys))
    (loss, accuracy), gradients = _accumulate(
        jax.value_and_grad(loss_fn, has_aux=True), state.params, (batch, keys), microbatches
    )
    # One norm of the concatenated gradients: a GPU takes longer to launch a reduction per array.
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
    """Redraw the untrained arrays of every attention that has a `redraw` method."""
    # Redraw a copy, since a diverged seed keeps its arrays.
    model = nnx.merge(graphdef, state.params, state.rest, copy=True)
    # Training folds steps into `key` itself, so no step uses a key derived by way of `_REDRAWS`.
    step_key = jax.random.fold_in(jax.random.fold_in(key, _REDRAWS), step)
    for layer, block in enumerate(model.encoder.blocks):
        attention = block.attention.attention
        if hasattr(attention, "redraw"):
            attention.redraw(jax.random.fold_in(step_key, layer))
    _, _, drawn = nnx.split(model, nnx.Param, ...)
    return state._replace(rest=optax.tree.where(state.alive, drawn, state.rest))


def _accumulate(
    value_and_grad: Callable,
    params: nnx.State,
    batch: tuple[Batch, Array],
    microbatches: Microbatches,
) -> Any:
    """Mean value and gradient over a batch and its keys, accumulated over equal parts."""
    parts, shares, place, buckets, packed, axis_name = microbatches

    def without_padding(function: Callable, whole: Batch) -> Any:
        return in_bucket(function, buckets, whole, packed=packed, axis_name=axis_name)

    if parts == 1:
        whole, keys = batch
        return without_padding(
            lambda cut, packed_length=None: value_and_grad(params, cut, keys, packed_length), whole
        )
    # [part, share, example]: each device holds its share of every part, and of the running sum.
    split = jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(shares, parts, -1, *x.shape[1:]), 0, 1), batch
    )

    def add(total: Any, part: tuple[Batch, Array]) -> tuple[Any, None]:
        whole, keys = part

        def all_shares(cut: Batch, packed_length: int | None = None) -> Any:
            share_fn = functools.partial(value_and_grad, packed_length=packed_length)
            return jax.vmap(share_fn, in_axes=(None, 0, 0))(params, cut, keys)

        increment = without_padding(all_shares, whole)
        return place(jax.tree.map(jnp.add, total, increment)), None

    scalar = jnp.zeros((), jnp.float32)
    # Built by hand: `eval_shape` would trace the model once more.
    one_share = (scalar, scalar), params
    zeros = place(jax.tree.map(lambda x: jnp.zeros((shares, *x.shape), x.dtype), one_share))
    total, _ = jax.lax.scan(add, zeros, split)
    return jax.tree.map(lambda x: jnp.mean(x, axis=0) / parts, total)
