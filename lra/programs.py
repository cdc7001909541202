"""The compiled calls of a run: initialisation, training, evaluation, each one program.

Seeds are a mapped axis. A training call makes any number of steps up to a bound, an evaluation call
fills in the logits of any number of batches. Both take that number as an argument, so each is
compiled once. The price on a GPU: XLA does not know the number either, so it reads the loop
condition, one byte, back between steps. In a profile of steps of 5 to 22 ms on an H100 that did not
show: the operations of a step took its time.
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
    """Means over the steps of one call, and where seeds diverged (else -1); all [seeds]."""

    loss: Float[Array, " seeds"]
    accuracy: Float[Array, " seeds"]
    diverged_step: Int[Array, " seeds"]


class Programs:
    """Functions of arrays that stay on the devices.

    Along the axis `data` a training step communicates once, to add up its gradients, and an
    evaluation not at all until its end; along `seed` nothing does.

    Args:
        config: of the run.
        task: of the benchmark.
        make: builds the model from `nnx.Rngs`.
        graphdef: the model's structure.
        optimizer: of the parameters.
        plan: how batches are computed.
        shardings: where inputs and outputs live.
        donate: whether a call may use up the memory of the state it is given.
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
        alone = shardings.mesh.size == 1
        # Several devices would have to agree on what is padding in all their sequences.
        self._lengths = contextlib.nullcontext if alone else whole_sequences
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
        of_state = functools.partial(compiled, donated=True, out_shardings=s.per_seed)
        self.train = of_state("train", self.train_steps)
        self.redraw = of_state("redraw", jax.vmap(redraw, (0, None, 0)))
        self.update_best = of_state("update_best", jax.vmap(state.update_best, (0, 0, None)))
        self.check_end = of_state("check_end", jax.vmap(state.check_end, (0, 0, None)))
        self.logits = compiled("logits", self._logits, donated=True, out_shardings=s.logits)
        self.scores = compiled("scores", _scores, static_argnums=3, out_shardings=s.replicated)
        self.replicate = compiled("replicate", lambda tree: tree, out_shardings=s.replicated)

    def compiled(
        self, name: str, function: Callable, *, donated: bool = False, **options: Any
    ) -> Callable:
        """`function` in one program, called `name` in profiles and logs."""

        def traced(*args):
            with jax.default_matmul_precision(self._precision), self._lengths():
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
        """Makes steps `start` to `start + count` of every seed; `train` is this, compiled."""

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
        """Fills in batches `start` to `start + count`; the seeds share their tokens."""

        def logits_of(batch, packed_length=None):
            model = functools.partial(forward, self._graphdef, packed_length=packed_length)
            seeds = jax.vmap(model, in_axes=(0, 0, None, None))
            return seeds(params, rest, batch.ids, batch.mask).astype(logits.dtype)

        def body(i, logits):
            batch = self._gather(examples, table[i])
            found = in_bucket(logits_of, self._buckets, batch, packed=self._packed)
            return logits.at[:, i].set(found)

        return jax.lax.fori_loop(start, start + count, body, logits)

    def _gather(self, examples: arrays.Examples, indices: Array) -> arrays.Batch:
        return arrays.gather(examples, indices, self._task, self._zero_is_padding)


def compiler_options() -> dict[str, Any] | None:
    """Options of all programs: on a CPU a lower optimisation level, unless `XLA_FLAGS` sets one.

    They compile in about 0.6 of the time; speeds differ by no more than between runs.
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
    """The logits of a model given in its parts."""
    return nnx.merge(graphdef, params, rest)(ids, mask, key, packed_length)


def _scores(logits: Array, labels: Array, table: Array, total: int) -> tuple[Array, Array, Array]:
    """Over the first `total` examples of a table: correct answers, loss, logits by example."""
    logits = logits.reshape(logits.shape[0], -1, logits.shape[-1])
    logits = logits[:, jnp.argsort(table.reshape(-1)[:total])]
    correct = jax.vmap(is_correct, in_axes=(0, None))(logits, labels)
    losses = jax.vmap(cross_entropy, in_axes=(0, None))(logits, labels)
    return jnp.sum(correct, axis=1), jnp.mean(losses, axis=1), logits
