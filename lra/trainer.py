"""The device's side of a run: data and state placed, steps and evaluations as compiled calls.

Seeds are a mapped axis. A training call gathers its batches by index and makes any number of
steps up to a bound without returning to the host; an evaluation call fills in the logits of any
number of batches. Both take that number as an argument, so each is compiled once.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int
from ml_collections import config_dict

from lra import arrays, sharding, state
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.losses import cross_entropy, is_correct
from lra.optimizer import make_optimizer
from lra.pace import MAX_STEPS_PER_CALL
from lra.state import TrainState
from lra.tasks import Task


class CallMetrics(NamedTuple):
    """Means over the steps of one call, and which seeds still train; all [seeds]."""

    loss: Float[Array, " seeds"]
    accuracy: Float[Array, " seeds"]
    alive: Array
    diverged_step: Int[Array, " seeds"]


class Evaluation(NamedTuple):
    """Of one split: `accuracy` and mean `loss` [seeds], `logits` [seeds, examples, classes]."""

    accuracy: np.ndarray
    loss: np.ndarray
    logits: np.ndarray


class Trainer:
    """A configuration on its data: makes states, trains and evaluates them.

    Args:
        config: of the run.
        task: of the benchmark.
        prepared: the task's prepared data.
        splits: those to hold on the devices.

    Raises:
        UserError: a configuration that does not fit the data or the devices.
    """

    def __init__(
        self,
        config: config_dict.ConfigDict,
        task: Task,
        prepared: Prepared,
        splits: tuple[str, ...] = ("train", "validation", "test"),
    ):
        self.config, self.task = config, task
        self.length = arrays.padded_length(prepared)
        self._make = functools.partial(state.make_model, config, task, self.length)
        self._check_zero_is_padding()
        self.shardings = sharding.make_shardings(
            config.mesh.seed,
            config.mesh.data,
            num_seeds=len(config.seeds),
            batch_sizes=(
                config.train.batch_size // config.train.microbatches,
                config.train.eval_batch_size,
            ),
        )
        self._optimizer = make_optimizer(config.train)
        self._graphdef = self._abstract_model()
        keys = [state.seed_keys(seed) for seed in config.seeds]
        self._init_keys, self._train_keys = (
            jax.device_put(jnp.stack(k), self.shardings.per_seed) for k in zip(*keys, strict=True)
        )
        examples = arrays.load_examples(prepared, splits, config.data.holdout)
        self._examples = arrays.put(examples, self.shardings.replicated)
        self._compile()

    @property
    def num_devices(self) -> int:
        """Devices of the mesh."""
        return self.shardings.mesh.size

    def num_examples(self, split: str) -> int:
        """Examples in a split."""
        return len(self._examples[split].labels)

    def labels(self, split: str) -> np.ndarray:
        """Labels of a split, int32 [examples]."""
        return np.asarray(self._examples[split].labels)

    def num_params(self, train_state: TrainState) -> int:
        """Trained numbers of one model."""
        return sum(x.size for x in jax.tree.leaves(train_state.params)) // len(self.config.seeds)

    def init(self) -> TrainState:
        """The state of all seeds before the first step."""
        return self._init(self._init_keys)

    def abstract_state(self) -> TrainState:
        """Shapes, formats and places of the state, for restoring it."""
        shapes = jax.eval_shape(self._init, self._init_keys)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.shardings.per_seed),
            shapes,
        )

    def train(
        self, train_state: TrainState, start: int, count: int
    ) -> tuple[TrainState, CallMetrics]:
        """Makes steps `start` to `start + count` (at most `MAX_STEPS_PER_CALL`); uses up the state.

        Returns without waiting for the device.
        """
        batch = self.config.train.batch_size
        indices = np.zeros((len(self.config.seeds), MAX_STEPS_PER_CALL, batch), np.int32)
        for row, seed in enumerate(self.config.seeds):
            stream = arrays.training_indices(
                self.num_examples("train"), seed, start * batch, count * batch
            )
            indices[row, :count] = stream.reshape(count, batch)
        placed = jax.device_put(indices, self.shardings.indices)
        return self._train(
            train_state, self._train_keys, self._examples["train"], placed, start, count
        )

    def redraw(self, train_state: TrainState, step: int) -> TrainState:
        """New untrained arrays (Performer's features), a function of seed and step alone."""
        return self._redraw(train_state, jnp.int32(step), self._train_keys)

    def update_best(
        self, train_state: TrainState, val_accuracy: np.ndarray, step: int
    ) -> TrainState:
        """Keeps, per seed, the present parameters where they are the best so far."""
        return self._update_best(train_state, jnp.asarray(val_accuracy), jnp.int32(step))

    def evaluation(self, params: nnx.State, rest: nnx.State, split: str) -> "EvaluationRun":
        """Starts an evaluation of every example of a split, once."""
        return EvaluationRun(self, params, rest, split)

    def _check_zero_is_padding(self) -> None:
        if self.config.data.zero_is_padding and not self.task.pixels:
            raise UserError(
                f"data.zero_is_padding is for pixels; {self.task.name} marks padding by length"
            )

    def _abstract_model(self) -> nnx.GraphDef:
        """The model's structure, after following its shapes through training and evaluation."""
        pair = (2,) if self.task.pairs else ()
        ids = jax.ShapeDtypeStruct((1, *pair, self.length), jnp.int32)
        mask = jax.ShapeDtypeStruct(ids.shape, jnp.bool_)
        try:
            model = nnx.eval_shape(lambda: self._make(nnx.Rngs(0)))
            graphdef, params, rest = nnx.split(model, nnx.Param, ...)
            for key in (jax.random.key(0), None):
                forward = functools.partial(_forward, graphdef, key=key)
                jax.eval_shape(forward, params, rest, ids, mask)
        except ValueError as error:
            raise UserError(f"model for {self.task.name}, length {self.length}: {error}") from error
        return graphdef

    def _compile(self) -> None:
        s = self.shardings
        precision = self.config.matmul_precision

        def compiled(function, **options):
            def with_precision(*args):
                with jax.default_matmul_precision(precision):
                    return function(*args)

            return jax.jit(with_precision, **options)

        init = functools.partial(state.init_state, make=self._make, optimizer=self._optimizer)
        redraw = functools.partial(state.redraw, graphdef=self._graphdef)
        self._init = compiled(jax.vmap(init), out_shardings=s.per_seed)
        self._train = compiled(
            self._train_call, donate_argnums=0, out_shardings=(s.per_seed, s.replicated)
        )
        self._redraw = compiled(
            jax.vmap(redraw, in_axes=(0, None, 0)), donate_argnums=0, out_shardings=s.per_seed
        )
        self._update_best = compiled(
            jax.vmap(state.update_best, in_axes=(0, 0, None)),
            donate_argnums=0,
            out_shardings=s.per_seed,
        )
        self._logits = compiled(self._logits_call, donate_argnums=0, out_shardings=s.logits)
        self._scores = compiled(_scores, static_argnums=2, out_shardings=s.replicated)

    def _train_call(self, train_state, keys, examples, indices, start, count):
        step = functools.partial(
            state.train_step,
            graphdef=self._graphdef,
            optimizer=self._optimizer,
            microbatches=self.config.train.microbatches,
        )

        def one_seed(seed_state, key, seed_indices):
            def body(i, carry):
                seed_state, totals = carry
                batch = self._gather(examples, seed_indices[i])
                seed_state, metrics = step(seed_state, start + i, batch, key)
                return seed_state, jax.tree.map(jnp.add, totals, metrics)

            totals = state.StepMetrics(jnp.zeros(()), jnp.zeros(()))
            seed_state, totals = jax.lax.fori_loop(0, count, body, (seed_state, totals))
            loss, accuracy = (total / count for total in totals)
            alive, diverged = seed_state.alive, seed_state.diverged_step
            return seed_state, CallMetrics(loss, accuracy, alive, diverged)

        return jax.vmap(one_seed)(train_state, keys, indices)

    def _logits_call(self, logits, params, rest, examples, table, start, count):
        forward = functools.partial(_forward, self._graphdef)

        def body(i, logits):
            batch = self._gather(examples, table[i])
            seeds = jax.vmap(forward, in_axes=(0, 0, None, None))
            new = seeds(params, rest, batch.ids, batch.mask)
            return logits.at[:, i].set(new.astype(logits.dtype))

        return jax.lax.fori_loop(start, start + count, body, logits)

    def _gather(self, examples: arrays.Examples, indices: Array) -> arrays.Batch:
        return arrays.gather(examples, indices, self.task, self.config.data.zero_is_padding)


class EvaluationRun:
    """An evaluation in progress: `advance` until `remaining` is 0, then `result`."""

    def __init__(self, trainer: Trainer, params: nnx.State, rest: nnx.State, split: str):
        self._trainer, self._params, self._rest = trainer, params, rest
        self._examples = trainer._examples[split]
        self._total = trainer.num_examples(split)
        batch = trainer.config.train.eval_batch_size
        self._batches = -(-self._total // batch)
        table = np.zeros(self._batches * batch, np.int32)  # the last batch is filled with example 0
        table[: self._total] = np.arange(self._total)
        self._table = jax.device_put(table.reshape(self._batches, batch), trainer.shardings.table)
        seeds, classes = len(trainer.config.seeds), trainer.task.num_classes
        self._logits = jnp.zeros(
            (seeds, self._batches, batch, classes), device=trainer.shardings.logits
        )
        self._done = 0

    @property
    def remaining(self) -> int:
        """Batches still to do."""
        return self._batches - self._done

    def advance(self, count: int) -> None:
        """Evaluates the next `count` batches and waits for them."""
        self._logits = self._trainer._logits(
            self._logits, self._params, self._rest, self._examples, self._table, self._done, count
        )
        self._logits.block_until_ready()
        self._done += count

    def result(self) -> Evaluation:
        """Accuracy, loss and logits of every example."""
        scores = self._trainer._scores(self._logits, self._examples.labels, self._total)
        accuracy, loss, logits = jax.device_get(scores)
        return Evaluation(accuracy, loss, logits)


def _forward(graphdef, params, rest, ids, mask, key=None):
    return nnx.merge(graphdef, params, rest)(ids, mask, key)


def _scores(logits: Array, labels: Array, total: int) -> tuple[Array, Array, Array]:
    """Accuracy and loss over the first `total` examples, and their logits."""
    logits = logits.reshape(logits.shape[0], -1, logits.shape[-1])[:, :total]
    correct = jax.vmap(is_correct, in_axes=(0, None))(logits, labels)
    losses = jax.vmap(cross_entropy, in_axes=(0, None))(logits, labels)
    # A sum of at most 2**24 ones is exact in float32.
    accuracy = jnp.sum(correct, axis=1, dtype=jnp.float32) / total
    return accuracy, jnp.mean(losses, axis=1), logits
