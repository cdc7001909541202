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
from flax import nnx
from jaxtyping import Array, Float, Int
from ml_collections import config_dict

from lra import arrays, parts, state
from lra.losses import cross_entropy, is_correct
from lra.optimizer import make_optimizer
from lra.plan import Buckets, Plan
from lra.sharding import Shardings
from lra.state import TrainState
from lra.tasks import Task
from models.machine import copies_on_a_device, this_backend, whole_sequences

_SEEDS = "seeds"  # the mapped axis
_LEVEL = "xla_backend_optimization_level"


class CallMetrics(NamedTuple):
    """Mean metrics over the steps of one call, and the step of divergence (else -1), per seed."""

    loss: Float[Array, " seeds"]
    accuracy: Float[Array, " seeds"]
    diverged_step: Int[Array, " seeds"]


# Function from the state and two arrays, such as a metric and a step, to the new state.
_Update = Callable[[TrainState, Array, Array], TrainState]


class Programs(NamedTuple):
    """Compiled functions of arrays that stay on the devices.

    Along the mesh axis `data`, a training step communicates once, to sum its gradients, and an
    evaluation only at its end. Along `seed`, only an evaluation's results are gathered.

    Attributes:
        keys, init, redraw, update_best, check_end: Functions of `lra.state`, mapped over seeds.
        train: `train_steps`.
        logits: `fill_logits`.
        scores: `score`.
        replicate: Gives all devices the whole arrays.
    """

    keys: Callable[[Array], tuple[Array, Array]]
    init: Callable[[Array], TrainState]
    train: Callable[..., tuple[TrainState, CallMetrics]]
    redraw: _Update
    update_best: _Update
    check_end: _Update
    logits: Callable[..., Array]
    scores: Callable[[Array, Array, Array, int], tuple[Array, Array, Array]]
    replicate: Callable[[Any], Any]


def make_programs(
    config: config_dict.ConfigDict,
    task: Task,
    length: int,
    *,
    graphdef: nnx.GraphDef,
    plan: Plan,
    shardings: Shardings,
    donate: bool,
) -> Programs:
    """Make the compiled functions of a run; nothing is compiled yet.

    Args:
        config: Config of the run.
        task: Task of the benchmark.
        length: Length of padded sequences, for which the model is built.
        graphdef: Structure of the model.
        plan: How batches are divided and cut.
        shardings: Shardings of inputs and outputs.
        donate: Whether calls donate the buffers of the state they are given.
    """
    compiled = _compiler(config, shardings, donate)
    mean_over_parts = functools.partial(
        parts.mean_over_parts,
        parts=plan.parts,
        buckets=plan.buckets,
        shares=shardings.mesh.shape["data"],
        place=lambda tree: jax.lax.with_sharding_constraint(tree, shardings.shares),
        axis_name=_SEEDS,
    )
    gather = functools.partial(
        arrays.gather, task=task, zero_is_padding=config.data.zero_is_padding
    )
    init = functools.partial(state.init_state, config=config, task=task, length=length)
    step = functools.partial(
        state.train_step,
        graphdef=graphdef,
        optimizer=make_optimizer(config.train),
        mean_over_parts=mean_over_parts,
    )
    train = functools.partial(train_steps, step=step, gather=gather)
    redraw = functools.partial(state.redraw, graphdef=graphdef)
    logits = functools.partial(
        fill_logits, graphdef=graphdef, gather=gather, buckets=plan.eval_buckets
    )
    per_seed = {"out_shardings": shardings.per_seed}
    replicated = {"out_shardings": shardings.replicated}
    update = {"donated": True, **per_seed}
    return Programs(
        keys=compiled("keys", jax.vmap(state.seed_keys), **per_seed),
        init=compiled("init", jax.vmap(init), **per_seed),
        train=compiled("train", train, **update),
        redraw=compiled("redraw", jax.vmap(redraw, (0, None, 0)), **update),
        update_best=compiled("update_best", jax.vmap(state.update_best, (0, 0, None)), **update),
        check_end=compiled("check_end", jax.vmap(state.check_end, (0, 0, None)), **update),
        logits=compiled("logits", logits, donated=True, out_shardings=shardings.logits),
        scores=compiled("scores", score, static_argnums=3, **replicated),
        replicate=compiled("replicate", lambda tree: tree, **replicated),
    )


def _compiler(
    config: config_dict.ConfigDict, shardings: Shardings, donate: bool
) -> Callable[..., Callable]:
    """Return a function that jits another as a program of the run; see `make_programs`."""
    # Several devices would have to agree on what is padding in all their sequences.
    loops_over_blocks = contextlib.nullcontext if shardings.mesh.size == 1 else whole_sequences
    copies = len(config.seeds) / shardings.mesh.size

    def compiled(name: str, function: Callable, *, donated: bool = False, **more: Any) -> Callable:
        """Jit `function` as a program that profiles and logs show as `name`."""

        def traced(*args):
            precision = jax.default_matmul_precision(config.matmul_precision)
            with precision, loops_over_blocks(), copies_on_a_device(copies):
                return function(*args)

        traced.__name__ = name
        donated_arguments = (0,) if donated and donate else ()
        options = compiler_options()
        return jax.jit(traced, donate_argnums=donated_arguments, compiler_options=options, **more)

    return compiled


def compiler_options() -> dict[str, Any] | None:
    """Compiler options: on a CPU a lower optimisation level, unless `XLA_FLAGS` sets one.

    Programs then compile in about 0.6 of the time; their speeds differ no more than between runs.
    """
    if this_backend() != "cpu" or _LEVEL in os.environ.get("XLA_FLAGS", ""):
        return None
    return {_LEVEL: 2}


def train_steps(
    train_state: TrainState,
    keys: Array,
    examples: arrays.Examples,
    indices: Int[Array, "seeds steps batch"],
    start: Int[Array, ""],
    count: Int[Array, ""],
    *,
    step: Callable[..., tuple[TrainState, state.StepMetrics]],
    gather: Callable[[arrays.Examples, Array], arrays.Batch],
) -> tuple[TrainState, CallMetrics]:
    """Make steps `start` to `start + count` of every seed; each seed gathers its own batches."""

    def one_seed(seed_state, batch_indices, key, number):
        return step(seed_state, number, gather(examples, batch_indices), key)

    seeds = jax.vmap(one_seed, in_axes=(0, 0, 0, None), axis_name=_SEEDS, spmd_axis_name="seed")

    def body(i, carry):
        train_state, totals = carry
        train_state, metrics = seeds(train_state, indices[:, i], keys, start + i)
        return train_state, jax.tree.map(jnp.add, totals, metrics)

    zeros = jnp.zeros(indices.shape[0])
    totals = state.StepMetrics(zeros, zeros)
    train_state, totals = jax.lax.fori_loop(0, count, body, (train_state, totals))
    loss, accuracy = (total / count for total in totals)
    return train_state, CallMetrics(loss, accuracy, train_state.diverged_step)


def fill_logits(
    logits: Float[Array, "seeds batches batch classes"],
    params: nnx.State,
    rest: nnx.State,
    examples: arrays.Examples,
    table: Int[Array, "batches batch"],
    start: Int[Array, ""],
    count: Int[Array, ""],
    *,
    graphdef: nnx.GraphDef,
    gather: Callable[[arrays.Examples, Array], arrays.Batch],
    buckets: Buckets,
) -> Float[Array, "seeds batches batch classes"]:
    """Fill in the logits of batches `start` to `start + count`; all seeds share the tokens."""

    def apply(batch, packed_length):
        def one_seed(params, rest):
            return state.forward(graphdef, params, rest, batch, packed_length=packed_length)

        return jax.vmap(one_seed)(params, rest).astype(logits.dtype)

    def body(i, logits):
        batch = gather(examples, table[i])
        return logits.at[:, i].set(parts.in_bucket(apply, buckets, batch))

    return jax.lax.fori_loop(start, start + count, body, logits)


def score(
    logits: Float[Array, "seeds batches batch classes"],
    labels: Int[Array, " examples"],
    table: Int[Array, "batches batch"],
    total: int,
) -> tuple[Array, Array, Array]:
    """Number of correct answers, mean loss, and logits by example, per seed.

    They cover the first `total` entries of `table`; what follows them fills up the last batch.
    """
    logits = logits.reshape(logits.shape[0], -1, logits.shape[-1])
    logits = logits[:, jnp.argsort(table.reshape(-1)[:total])]
    correct = jax.vmap(is_correct, in_axes=(0, None))(logits, labels)
    losses = jax.vmap(cross_entropy, in_axes=(0, None))(logits, labels)
    return jnp.sum(correct, axis=1), jnp.mean(losses, axis=1), logits
