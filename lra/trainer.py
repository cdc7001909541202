"""The device side of a run: places data and state, trains and evaluates all seeds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import config_dict

from lra import arrays, environment, plan, sharding, state
from lra.ahead import Ahead
from lra.data.prepared import Prepared
from lra.errors import UserError, with_place
from lra.evaluation_run import EvaluationRun
from lra.pace import MAX_STEPS_PER_CALL
from lra.programs import CallMetrics, make_programs
from lra.state import TrainState
from lra.tasks import get_task
from models.machine import this_backend


class Trainer:
    """Initialises, trains and evaluates all seeds of a configuration.

    Args:
        config: Config of the run.
        prepared: Prepared data of its task.
        splits: Names of the splits to put on the devices.
        donate: Whether calls donate the buffers of the state they are given; False only where a
            call may have to be repeated.
        cut_padding: Whether batches may be cut or packed to leave out padding (`lra.plan`).

    Attributes:
        config: Config of the run.
        task: Task of the benchmark.
        shardings: Shardings of all arrays.
        programs: Compiled functions.
        length: Length of padded sequences, for which the model is built.
        plan: How batches are divided and cut.
        graphdef: Structure of the model.
        training_lengths: Length of each stored training example in positions, int [examples]; where
            zero is padding, the number of real positions.
        ahead: Compiles programs before they are called; close it after use.

    Raises:
        UserError: If the configuration does not fit the data or the devices.
    """

    def __init__(
        self,
        config: config_dict.ConfigDict,
        prepared: Prepared,
        splits: tuple[str, ...] = ("train", "validation", "test"),
        *,
        donate: bool = True,
        cut_padding: bool = True,
    ):
        self.config, self.task = config, get_task(config.task)
        self.length = arrays.padded_length(prepared)
        self.ahead = Ahead()
        self._check_precision()
        self.shardings = sharding.make_shardings(
            config.mesh.seed,
            config.mesh.data,
            num_seeds=len(config.seeds),
            batch_sizes=(
                config.train.batch_size // config.train.microbatches,
                config.train.eval_batch_size,
            ),
        )
        environment.check_default_device(self.shardings.mesh.devices.flat[0].platform)
        zero_is_padding = config.data.zero_is_padding
        lengths = {
            name: arrays.stored_lengths(prepared, name, real=zero_is_padding)
            for name in prepared.manifest["counts"]
        }
        self.training_lengths = lengths["train"]
        self.plan = plan.plan_batches(
            config,
            self.training_lengths,
            self.length,
            pairs=self.task.pairs,
            devices=self.num_devices,
            longest=max(int(np.max(x)) for x in lengths.values()) if zero_is_padding else None,
            cut_padding=cut_padding,
        )
        self.graphdef = self._traced_model()
        self.programs = make_programs(
            config,
            self.task,
            self.length,
            graphdef=self.graphdef,
            plan=self.plan,
            shardings=self.shardings,
            donate=donate,
        )
        seeds = sharding.put(np.asarray(config.seeds, np.int32), self.shardings.per_seed)
        self._init_keys, self._train_keys = sharding.call(self.programs.keys, seeds)
        examples = arrays.load_examples(prepared, splits, config.data.holdout)
        arrays.check_fits(examples.values(), self.task)
        indices = {n: arrays.stored_index(prepared, n, config.data.holdout) for n in splits}
        self._orders = {
            name: self._evaluation_order(lengths[stored][index])
            for name, (stored, index) in indices.items()
        }
        self._examples = arrays.put(examples, self.shardings.replicated)

    @property
    def num_devices(self) -> int:
        """Number of devices in the mesh."""
        return self.shardings.mesh.size

    def num_examples(self, split: str) -> int:
        """Number of examples in a split."""
        return len(self._examples[split].labels)

    def labels(self, split: str) -> np.ndarray:
        """Labels of a split, int32 [examples]."""
        return np.asarray(self._examples[split].labels)

    def num_params(self, train_state: TrainState) -> int:
        """Number of trained parameters of one model."""
        return sum(x.size for x in jax.tree.leaves(train_state.params)) // len(self.config.seeds)

    def init(self) -> TrainState:
        """Make the state of all seeds before the first step."""
        return sharding.call(self.programs.init, self._init_keys)

    def abstract_state(self) -> TrainState:
        """Shapes, dtypes and shardings of the state, for restoring it."""
        shapes = jax.eval_shape(self.programs.init, self._init_keys)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.shardings.per_seed),
            shapes,
        )

    def compile_ahead(self) -> None:
        """Start to compile what every run calls after `init`, without waiting for it."""
        abstract, programs, submit = self.abstract_state(), self.programs, self.ahead.submit
        metric = np.zeros(len(self.config.seeds))

        def submit_evaluation(split: str) -> None:
            begin = functools.partial(self.new_evaluation, abstract.params, abstract.rest, split)
            submit(split, programs.logits, lambda: begin().arguments(1))
            submit(split, programs.scores, lambda: begin().score_arguments)

        submit("train", programs.train, lambda: self.train_arguments(abstract, 0, 1))
        submit_evaluation("validation")
        for name in ("update_best", "check_end"):
            program = getattr(programs, name)
            submit(name, program, lambda: self._metric_arguments(abstract, metric, 1))
        submit_evaluation("test")

    def train(
        self, train_state: TrainState, start: int, count: int
    ) -> tuple[TrainState, CallMetrics]:
        """Dispatch steps `start` to `start + count` (at most `MAX_STEPS_PER_CALL`).

        Donates the buffers of the state and need not wait for the device.
        """
        arguments = self.train_arguments(train_state, start, count)
        return self.ahead.call("train", self.programs.train, *arguments)

    def train_arguments(self, train_state: TrainState, start: int, count: int) -> tuple[Any, ...]:
        """Arguments of the compiled training call."""
        batch = self.config.train.batch_size
        indices = np.zeros((len(self.config.seeds), MAX_STEPS_PER_CALL, batch), np.int32)
        for row, seed in enumerate(self.config.seeds):
            stream = arrays.training_indices(
                self.num_examples("train"), seed, start * batch, count * batch
            )
            indices[row, :count] = stream.reshape(count, batch)
        indices = sharding.put(indices, self.shardings.indices)
        start_count = self._put_number(start), self._put_number(count)
        return train_state, self._train_keys, self._examples["train"], indices, *start_count

    def redraw(self, train_state: TrainState, step: int) -> TrainState:
        """Redraw untrained arrays (Performer's features) from the seed and the step alone."""
        return sharding.call(
            self.programs.redraw, train_state, self._put_number(step), self._train_keys
        )

    def update_best(
        self, train_state: TrainState, val_accuracy: np.ndarray, step: int
    ) -> TrainState:
        """Keep the current parameters of each seed for which they are the best so far."""
        arguments = self._metric_arguments(train_state, val_accuracy, step)
        return self.ahead.call("update_best", self.programs.update_best, *arguments)

    def check_end(self, train_state: TrainState, val_loss: np.ndarray) -> TrainState:
        """Mark seeds as diverged whose parameters or loss are not finite after the last step."""
        arguments = self._metric_arguments(train_state, val_loss, self.config.train.steps)
        return self.ahead.call("check_end", self.programs.check_end, *arguments)

    def new_evaluation(self, params: nnx.State, rest: nnx.State, split: str) -> EvaluationRun:
        """Begin an evaluation of every example of a split, once; nothing is computed yet."""
        config = self.config
        return EvaluationRun(
            self.programs,
            self.shardings,
            self._examples[split],
            params,
            rest,
            order=self._orders[split],
            shape=(len(config.seeds), self.plan.eval_batch, self.task.num_classes),
            call=functools.partial(self.ahead.call, split),
        )

    def fetch(self, tree: Any) -> Any:
        """Copy arrays of all seeds to NumPy arrays on every host.

        Waits for them first: on a CPU, fetching the result of a computation that ran out of memory
        never returns.
        """
        if self.shardings.mesh.is_multi_process:
            tree = sharding.call(self.programs.replicate, tree)
        return jax.device_get(jax.block_until_ready(tree))

    def _metric_arguments(
        self, train_state: TrainState, metric: np.ndarray, step: int
    ) -> tuple[Any, ...]:
        """Arguments of the compiled `update_best` and `check_end`."""
        metric = sharding.put(np.asarray(metric, np.float32), self.shardings.per_seed)
        return train_state, metric, self._put_number(step)

    def _put_number(self, number: int) -> jax.Array:
        return sharding.put_number(number, self.shardings.replicated)

    def _evaluation_order(self, lengths: np.ndarray) -> np.ndarray:
        """Order in which examples are evaluated; by length where batches are cut."""
        if len(self.plan.eval_buckets.ends) == 1:
            return np.arange(len(lengths))
        return plan.evaluation_order(lengths, self.plan.eval_batch)

    def _check_precision(self) -> None:
        # On a GPU, JAX uses tensorfloat32 for this: rows would name a format that was not used.
        if self.config.matmul_precision == "bfloat16" and this_backend() == "gpu":
            raise UserError(
                "matmul_precision=bfloat16: on a GPU these are the products of tensorfloat32; "
                "choose that, or dtype=bfloat16"
            )

    def _traced_model(self) -> nnx.GraphDef:
        """Structure of the model.

        Traces the model in training and in evaluation, so that shapes that do not fit are reported
        before anything is compiled.
        """
        pair = (2,) if self.task.pairs else ()
        shape = 1, *pair, self.length
        batch = arrays.Batch(
            ids=jax.ShapeDtypeStruct(shape, jnp.int32),
            mask=jax.ShapeDtypeStruct(shape, jnp.bool_),
            labels=jax.ShapeDtypeStruct((1,), jnp.int32),
        )
        buckets = self.plan.buckets
        packed_length = buckets.ends[0] if buckets.packed else None
        try:
            graphdef, params, rest = state.abstract_model(self.config, self.task, self.length)
            keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
            forward = functools.partial(state.forward, graphdef, packed_length=packed_length)
            for mode_keys in (keys, None):
                jax.eval_shape(forward, params, rest, batch, mode_keys)
        except ValueError as error:
            message = f"model for {self.task.name}, length {self.length}: {error}"
            # The place of a mistake in the code of a model.
            raise UserError(with_place(message, error)) from error
        return graphdef
