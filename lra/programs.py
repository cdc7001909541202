"""Compiled functions of a run: initialisation, training and evaluation, one program each.

Seeds are a mapped axis. A training call makes any number of steps up to a bound; an evaluation call
fills in the logits of any number of batches. Both take that number as an argument, so each is
compiled once. The price on a GPU: the trip count of the loop is unknown to XLA, which therefore
copies the loop condition, one byte, back to the host between steps. In a profile of steps of 5 to
22 ms on an H100 this did not show: the operations of a step took all of its time.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int
from ml_collections import config_dict

from lra import arrays, state
from lra.buckets import in_bucket
from lra.losses import cross_entropy, is_correct
from lra.parts import Plan
from lra.sharding import Shardings
from lra.state import TrainState
from lra.tasks import Task
from models.attention.blocks import whole_sequences
from models.machine import this_backend

_SEEDS = "seeds"  # the mapped axis
_LEVEL = "xla_backend_optimization_level"


class CallMetrics(NamedTuple):
    """Mean metrics over the steps of one call, and the step of divergence (else -1), per seed."""

    loss: Float[Array, " seeds"]
    accuracy: Float[Array, " seeds"]
    diverged_step: Int[Array, " seeds"]


class Programs:
    """Compiled functions of arrays that stay on the devices.

    Along the mesh axis `data`, a training step communicates once, to sum its gradients, and an
    evaluation only at its end. Along `seed`, nothing communicates.

    Args:
        config: Config of the run.
        task: Task of the benchmark.
        make: Function that builds the model from `nnx.Rngs`.
        graphdef: Structure of the model.
        optimizer: Optimizer of the parameters.
        plan: How batches are divided and cut.
        shardings: Shardings of inputs and outputs.
        donate: Whether calls donate the buffers of the state they are given.
    """

    def __init__(
        self,
        config: config_dict.ConfigDict,
        task: Task,
        *,
        make: Callable[[nnx.Rngs], nnx.Module],
        graphdef: nnx.GraphDef,
        optimizer: optax.GradientTransformation,
        plan: Plan,
        shardings: Shardings,
        donate: bool,
    ):
        self._task, self._graphdef = task, graphdef
        self._buckets, self._packed = plan.eval_buckets, plan.packed
        self._zero_is_padding = config.data.zero_is_padding
        self._precision, self._donate = config.matmul_precision, donate
        one_device = shardings.mesh.size == 1
        # Several devices would have to agree on what is padding in all their sequences.
        self._length_context = contextlib.nullcontext if one_device else whole_sequences
        self._step = functools.partial(
            state.train_step,
            graphdef=graphdef,
            optimizer=optimizer,
            microbatches=state.Microbatches(
                plan.microbatches,
                shardings.mesh.shape["data"],
                lambda tree: jax.lax.with_sharding_constraint(tree, shardings.shares),
                plan.step_buckets,
                plan.packed,
                _SEEDS,
            ),
        )
        init = functools.partial(state.init_state, make=make, optimizer=optimizer)
        redraw = functools.partial(state.redraw, graphdef=graphdef)
        compiled, s = self.compiled, shardings
        self.keys = compiled("keys", jax.vmap(state.seed_keys), out_shardings=s.per_seed)
        self.init = compiled("init", jax.vmap(init), out_shardings=s.per_seed)
        update = functools.partial(compiled, donated=True, out_shardings=s.per_seed)
        self.train = update("train", self.train_steps)
        self.redraw = update("redraw", jax.vmap(redraw, (0, None, 0)))
        self.update_best = update("update_best", jax.vmap(state.update_best, (0, 0, None)))
        self.check_end = update("check_end", jax.vmap(state.check_end, (0, 0, None)))
        self.logits = compiled("logits", self._logits, donated=True, out_shardings=s.logits)
        self.scores = compiled("scores", _scores, static_argnums=3, out_shardings=s.replicated)
        self.replicate = compiled("replicate", lambda tree: tree, out_shardings=s.replicated)

    def compiled(
        self, name: str, function: Callable, *, donated: bool = False, **options: Any
    ) -> Callable:
        """Jit `function` as a program that profiles and logs show as `name`."""

        def traced(*args):
            with jax.default_matmul_precision(self._precision), self._length_context():
                return function(*args)

        traced.__name__ = name
        return jax.jit(
            traced,
            donate_argnums=0 if donated and self._donate else (),
            compiler_options=compiler_options(),
            **options,
        )

    def train_steps(
        self,
        train_state: TrainState,
        keys: Array,
        examples: arrays.Examples,
        indices: Int[Array, "seeds steps batch"],
        start: Int[Array, ""],
        count: Int[Array, ""],
    ) -> tuple[TrainState, CallMetrics]:
        """Make steps `start` to `start + count` of every seed; compiled, this is `train`."""

        def one_seed(seed_state, key, seed_indices):
            def body(i, carry):
                seed_state, totals = carry
                batch = self._gather(examples, seed_indices[i])
                seed_state, metrics = self._step(seed_state, start + i, batch, key)
                return seed_state, jax.tree.map(jnp.add, totals, metrics)

            totals = state.StepMetrics(jnp.zeros(()), jnp.zeros(()))
            seed_state, totals = jax.lax.fori_loop(0, count, body, (seed_state, totals))
            loss, accuracy = (total / count for total in totals)
            return seed_state, CallMetrics(loss, accuracy, seed_state.diverged_step)

        seeds = jax.vmap(one_seed, axis_name=_SEEDS, spmd_axis_name="seed")
        return seeds(train_state, keys, indices)

    def _logits(
        self,
        logits: Float[Array, "seeds batches batch classes"],
        params: nnx.State,
        rest: nnx.State,
        examples: arrays.Examples,
        table: Int[Array, "batches batch"],
        start: Int[Array, ""],
        count: Int[Array, ""],
    ) -> Float[Array, "seeds batches batch classes"]:
        """Fill in the logits of batches `start` to `start + count`; all seeds share the tokens."""

        def apply(batch, packed_length=None):
            model = functools.partial(forward, self._graphdef, packed_length=packed_length)
            seeds = jax.vmap(model, in_axes=(0, 0, None, None))
            return seeds(params, rest, batch.ids, batch.mask).astype(logits.dtype)

        def body(i, logits):
            batch = self._gather(examples, table[i])
            batch_logits = in_bucket(apply, self._buckets, batch, packed=self._packed)
            return logits.at[:, i].set(batch_logits)

        return jax.lax.fori_loop(start, start + count, body, logits)

    def _gather(self, examples: arrays.Examples, indices: Array) -> arrays.Batch:
        return arrays.gather(examples, indices, self._task, self._zero_is_padding)


def compiler_options() -> dict[str, Any] | None:
    """Compiler options: on a CPU a lower optimisation level, unless `XLA_FLAGS` sets one.

    Programs then compile in about 0.6 of the time; their speeds differ no more than between runs.
    """
    if this_backend() != "cpu" or _LEVEL in os.environ.get("XLA_FLAGS", ""):
        return None
    return {_LEVEL: 2}


def forward(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    rest: nnx.State,
    ids: Array,
    mask: Array,
    key: Array | None = None,
    packed_length: int | None = None,
) -> Array:
    """Logits of the model with structure `graphdef` and arrays `params` and `rest`."""
    return nnx.merge(graphdef, params, rest)(ids, mask, key, packed_length)


def _scores(logits: Array, labels: Array, table: Array, total: int) -> tuple[Array, Array, Array]:
    """Number of correct answers, mean loss, and logits by example, per seed.

    They cover the first `total` entries of `table`; what follows them fills up the last batch.
    """
    logits = logits.reshape(logits.shape[0], -1, logits.shape[-1])
    logits = logits[:, jnp.argsort(table.reshape(-1)[:total])]
    correct = jax.vmap(is_correct, in_axes=(0, None))(logits, labels)
    losses = jax.vmap(cross_entropy, in_axes=(0, None))(logits, labels)
    return jnp.sum(correct, axis=1), jnp.mean(losses, axis=1), logits
