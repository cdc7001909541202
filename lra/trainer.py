"""The device's side of a run: data and state placed, steps and evaluations of all seeds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import config_dict

from lra import arrays, buckets, sharding, state
from lra.ahead import Ahead
from lra.data.prepared import Prepared
from lra.errors import UserError
from lra.evaluation_run import EvaluationRun
from lra.optimizer import make_optimizer
from lra.pace import MAX_STEPS_PER_CALL
from lra.parts import plan_batches
from lra.programs import CallMetrics, Programs, forward
from lra.state import TrainState
from lra.tasks import Task
from models.machine import this_backend


class Trainer:
    """A configuration on its data: makes states, trains and evaluates them.

    Args:
        config: of the run.
        task: of the benchmark.
        prepared: the task's prepared data.
        splits: those to hold on the devices.
        donate: whether calls may use up the state they are given, as they should.
        cut_padding: whether padding may be left out (`lra.buckets`).

    Attributes:
        config, task: as given.
        shardings: where arrays live.
        programs: the compiled functions.
        length: of padded sequences, for which the model is made.
        plan: how batches are computed.
        graphdef: the model's structure.
        training_lengths: of the stored training examples, int [examples], in positions; where zero
            is padding, in real ones.
        ahead: compiles programs before they are called; to be closed if it was used.

    Raises:
        UserError: a configuration that does not fit the data or the devices.
    """

    def __init__(
        self,
        config: config_dict.ConfigDict,
        task: Task,
        prepared: Prepared,
        splits: tuple[str, ...] = ("train", "validation", "test"),
        *,
        donate: bool = True,
        cut_padding: bool = True,
    ):
        self.config, self.task = config, task
        self.length = arrays.padded_length(prepared)
        self.ahead = Ahead()
        self._make = functools.partial(state.make_model, config, task, self.length)
        self._check_zero_is_padding()
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
        holes = config.data.zero_is_padding
        lengths = {
            name: arrays.stored_lengths(prepared, name, real=holes)
            for name in prepared.manifest["counts"]
        }
        self.training_lengths = lengths["train"]
        self.plan = plan_batches(
            config,
            self.training_lengths,
            self.length,
            pairs=task.pairs,
            devices=self.num_devices,
            longest=max(int(np.max(x)) for x in lengths.values()) if holes else None,
            cut_padding=cut_padding,
        )
        self.graphdef = self._abstract_model()
        self.programs = Programs(
            config,
            task,
            make=self._make,
            graphdef=self.graphdef,
            optimizer=make_optimizer(config.train),
            plan=self.plan,
            shardings=self.shardings,
            donate=donate,
        )
        seeds = sharding.put(np.asarray(config.seeds, np.int32), self.shardings.per_seed)
        self._init_keys, self._train_keys = sharding.call(self.programs.keys, seeds)
        examples = arrays.load_examples(prepared, splits, config.data.holdout)
        arrays.check_fits(examples.values(), task)
        indices = {n: arrays.stored_index(prepared, n, config.data.holdout) for n in splits}
        self._orders = {n: self._evaluation_order(lengths[of][i]) for n, (of, i) in indices.items()}
        self._examples = arrays.put(examples, self.shardings.replicated)

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
        return sharding.call(self.programs.init, self._init_keys)

    def abstract_state(self) -> TrainState:
        """Shapes, formats and places of the state, for restoring it."""
        shapes = jax.eval_shape(self.programs.init, self._init_keys)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=self.shardings.per_seed),
            shapes,
        )

    def compile_ahead(self) -> None:
        """Starts to compile what every run calls after `init`, and returns at once."""
        abstract, programs, submit = self.abstract_state(), self.programs, self.ahead.submit
        scores = np.zeros(len(self.config.seeds))

        def submit_evaluation(split: str) -> None:
            def begun() -> EvaluationRun:
                return self.evaluation(abstract.params, abstract.rest, split)

            submit(split, programs.logits, lambda: begun().arguments(1))
            submit(split, programs.scores, lambda: begun().score_arguments)

        submit("train", programs.train, lambda: self.train_arguments(abstract, 0, 1))
        submit_evaluation("validation")
        for name in ("update_best", "check_end"):
            program = getattr(programs, name)
            submit(name, program, lambda: self._scored(abstract, scores, 1))
        submit_evaluation("test")

    def train(
        self, train_state: TrainState, start: int, count: int
    ) -> tuple[TrainState, CallMetrics]:
        """Makes steps `start` to `start + count` (at most `MAX_STEPS_PER_CALL`); uses up the state.

        It need not wait for the device.
        """
        self.ahead.wait("train")
        arguments = self.train_arguments(train_state, start, count)
        return sharding.call(self.programs.train, *arguments)

    def train_arguments(self, train_state: TrainState, start: int, count: int) -> tuple[Any, ...]:
        """What the compiled training call takes."""
        batch = self.config.train.batch_size
        indices = np.zeros((len(self.config.seeds), MAX_STEPS_PER_CALL, batch), np.int32)
        for row, seed in enumerate(self.config.seeds):
            stream = arrays.training_indices(
                self.num_examples("train"), seed, start * batch, count * batch
            )
            indices[row, :count] = stream.reshape(count, batch)
        placed = sharding.put(indices, self.shardings.indices)
        numbers = self._number(start), self._number(count)
        return train_state, self._train_keys, self._examples["train"], placed, *numbers

    def redraw(self, train_state: TrainState, step: int) -> TrainState:
        """New untrained arrays (Performer's features), a function of seed and step alone."""
        return sharding.call(
            self.programs.redraw, train_state, self._number(step), self._train_keys
        )

    def update_best(
        self, train_state: TrainState, val_accuracy: np.ndarray, step: int
    ) -> TrainState:
        """Keeps, per seed, the present parameters where they are the best so far."""
        self.ahead.wait("update_best")
        return sharding.call(
            self.programs.update_best, *self._scored(train_state, val_accuracy, step)
        )

    def check_end(self, train_state: TrainState, val_loss: np.ndarray) -> TrainState:
        """After the last step: seeds whose parameters or loss are not finite have diverged."""
        self.ahead.wait("check_end")
        arguments = self._scored(train_state, val_loss, self.config.train.steps)
        return sharding.call(self.programs.check_end, *arguments)

    def evaluation(self, params: nnx.State, rest: nnx.State, split: str) -> EvaluationRun:
        """Starts an evaluation of every example of a split, once."""
        config = self.config
        return EvaluationRun(
            self.programs,
            self.shardings,
            self._examples[split],
            params,
            rest,
            order=self._orders[split],
            shape=(len(config.seeds), self.plan.eval_batch, self.task.num_classes),
            before_programs=lambda: self.ahead.wait(split),
        )

    def fetch(self, tree: Any) -> Any:
        """Arrays of all seeds as NumPy arrays, on every host.

        It waits first: on a CPU, fetching what there was no memory to compute never returns.
        """
        if self.shardings.mesh.is_multi_process:
            tree = sharding.call(self.programs.replicate, tree)
        return jax.device_get(jax.block_until_ready(tree))

    def _scored(self, train_state: TrainState, scores: np.ndarray, step: int) -> tuple[Any, ...]:
        scores = sharding.put(np.asarray(scores, np.float32), self.shardings.per_seed)
        return train_state, scores, self._number(step)

    def _number(self, number: int) -> jax.Array:
        return sharding.put_number(number, self.shardings.replicated)

    def _evaluation_order(self, lengths: np.ndarray) -> np.ndarray:
        """The order of examples: where batches are cut, those of similar length together."""
        if len(self.plan.eval_buckets) == 1:
            return np.arange(len(lengths))
        return buckets.evaluation_order(lengths, self.plan.eval_batch)

    def _check_zero_is_padding(self) -> None:
        if self.config.data.zero_is_padding and not self.task.pixels:
            raise UserError(
                f"data.zero_is_padding is for pixels; {self.task.name} marks padding by length"
            )

    def _check_precision(self) -> None:
        # JAX takes this for tensorfloat32 on a GPU: rows would name a format that was not used.
        if self.config.matmul_precision == "bfloat16" and this_backend() == "gpu":
            raise UserError(
                "matmul_precision=bfloat16: on a GPU these are the products of tensorfloat32; "
                "choose that, or dtype=bfloat16"
            )

    def _abstract_model(self) -> nnx.GraphDef:
        """The model's structure; traced once in training and evaluation, so that shapes that do not
        fit are told before anything is compiled."""
        pair = (2,) if self.task.pairs else ()
        ids = jax.ShapeDtypeStruct((1, *pair, self.length), jnp.int32)
        mask = jax.ShapeDtypeStruct(ids.shape, jnp.bool_)
        try:
            model = nnx.eval_shape(lambda: self._make(nnx.Rngs(0)))
            graphdef, params, rest = nnx.split(model, nnx.Param, ...)
            keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
            packed = self.plan.step_buckets[0] if self.plan.packed else None
            model = functools.partial(forward, graphdef, packed_length=packed)
            for key in (keys, None):
                jax.eval_shape(model, params, rest, ids, mask, key)
        except ValueError as error:
            raise UserError(f"model for {self.task.name}, length {self.length}: {error}") from error
        return graphdef
