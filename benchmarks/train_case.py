"""One case of `benchmarks.train_step`, measured in the calling process."""

import functools
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import step_profile
from benchmarks.ceilings import product_rate
from benchmarks.flops import product_flops
from benchmarks.hlo_cost import memory_of
from benchmarks.memory import available_bytes
from benchmarks.random_data import LONGEST, usual_lengths, write_random
from benchmarks.worker import failure_kind
from lra import environment
from lra.data import prepared
from lra.pace import MAX_STEPS_PER_CALL, Pace
from lra.settings import load_config
from lra.state import TrainState, abstract_model
from lra.tasks import get_task
from lra.trainer import Trainer

_CALL_SECONDS = 1.0  # approximate duration of a timed call
# Examples drawn for each split; larger batches repeat some. A CPU takes long to evaluate them; on
# other devices there are enough for the calls of an evaluation to be as long as in a real run.
_CPU_EXAMPLES, EXAMPLES = 1024, 4096
_TRIAL_SECONDS = 3.0
_GROUPS = 16  # groups of lengths, for whose means FLOPs are counted
# Minimum number of timed evaluations, and their minimum time as a share of the time of steps.
_MIN_EVALUATIONS, _EVALUATION_SHARE = 3, 0.25
_NO_HOURS = {"protocol_hours": None, "whole_hours": None}  # if not the protocol's batch


class TrainCase(NamedTuple):
    """A training step to measure.

    Attributes:
        task, attention, dtype: Settings of the configuration.
        seeds: Number of seeds trained in one program.
        batch: Number of examples in a step; None for the protocol's.
        overrides: Overrides of the configuration, `KEY=VALUE`.
    """

    task: str
    attention: str
    seeds: int
    dtype: str
    batch: int | None = None
    overrides: tuple[str, ...] = ()


class Times(NamedTuple):
    """Measured times in seconds.

    Attributes:
        step: One step of all seeds.
        compilation: Compilation of the training step.
        evaluated: Evaluation of one example with one seed.
        eval_compilation: Compilation of the evaluation.
        other_compilation: Compilation of initialisation, of keeping the best parameters, and of
            the check after the last step.
    """

    step: float
    compilation: float
    evaluated: float
    eval_compilation: float
    other_compilation: float


class Measurement:
    """A case whose programs have all been called once, and so are compiled.

    Args:
        case: Case to measure, on random examples with the lengths of its task.
    """

    def __init__(self, case: TrainCase):
        self._case, self._trainer = case, make_trainer(case)
        self._state, self._step = None, 0
        self._pace = Pace()  # of all evaluations, as in a run
        self._first_seconds = {name: self._time_call(name) for name in self._calls()}

    def row(self, seconds: float, *, profile: pathlib.Path | None = None) -> dict[str, Any]:
        """Measure the case and return its row.

        Args:
            seconds: Seconds for which steps are timed.
            profile: Folder for a trace, whose most expensive operations are printed to stderr.
        """
        case, trainer = self._case, self._trainer
        times = self._times(seconds)
        row = case._asdict() | _facts(trainer, times)
        row |= _hours(trainer.config, times) if case.batch is None else _NO_HOURS
        if profile:
            folder = profile / f"{case.task}-{case.attention}-{case.seeds}"
            text = step_profile.profile(trainer, self._state, self._step, times.step, folder)
            print(f"{case.task}, {case.attention}, trace in {folder}\n{text}", file=sys.stderr)
        self._state = None  # profiling donated its buffers
        return row

    def _calls(self) -> dict[str, Callable[[TrainState | None], TrainState]]:
        """Return functions that call one program each, in a possible order of execution."""
        trainer = self._trainer
        scores = np.zeros(len(trainer.config.seeds), np.float32)

        def evaluate(state: TrainState) -> TrainState:
            trainer.new_evaluation(state.params, state.rest, "test").to_the_end(self._pace)
            return state

        return {
            "init": lambda _: trainer.init(),
            "train": lambda state: trainer.train(state, 0, 1)[0],
            "evaluation": evaluate,
            "update_best": lambda state: trainer.update_best(state, scores, 1),
            "check_end": lambda state: trainer.check_end(state, scores),
        }

    def _time_call(self, name: str) -> float:
        """Return the seconds of one call of a program."""
        start = time.perf_counter()
        self._state = jax.block_until_ready(self._calls()[name](self._state))
        return time.perf_counter() - start

    def _times(self, seconds: float) -> Times:
        other_compilation = sum(map(self._compilation, ("init", "update_best", "check_end")))
        self._state, self._step, step = time_steps(self._trainer.train, self._state, 1, seconds)
        evaluation = self._evaluation(_EVALUATION_SHARE * seconds)
        evaluated = len(self._trainer.config.seeds) * self._trainer.num_examples("test")
        return Times(
            step=step,
            compilation=max(0.0, self._first_seconds["train"] - step),
            evaluated=evaluation / evaluated,
            eval_compilation=max(0.0, self._first_seconds["evaluation"] - evaluation),
            other_compilation=other_compilation,
        )

    def _compilation(self, name: str) -> float:
        """Return by how many seconds the first call took longer than another one."""
        return max(0.0, self._first_seconds[name] - self._time_call(name))

    def _evaluation(self, seconds: float) -> float:
        """Return the median seconds of the evaluations that fit in `seconds`."""
        times = []
        start = time.perf_counter()
        while len(times) < _MIN_EVALUATIONS or time.perf_counter() - start < seconds:
            times.append(self._time_call("evaluation"))
        return statistics.median(times)


def trial(case: TrainCase) -> dict[str, Any]:
    """Try whether a case's batch fits in device memory; return a row, with its speed if so."""
    row = case._asdict() | {
        "device": environment.device_name(),
        "deterministic": environment.is_deterministic(),
    }
    try:
        return row | _trial(make_trainer(case))
    except Exception as error:
        if failure_kind(error) != "out_of_memory":
            raise
        return row | {"fits": False, "why": "out of memory"}


def _trial(trainer: Trainer) -> dict[str, Any]:
    state = trainer.init()
    compiled = trainer.programs.train.lower(*trainer.train_arguments(state, 0, 1)).compile()
    needed, limit = memory_of(compiled), device_bytes()
    if limit and needed > limit:
        why = f"needs {needed / 1e9:,.1f} GB of {limit / 1e9:,.1f}"
        return {"fits": False, "why": why, "needed_mb": needed / 1e6}

    def train(state: TrainState, step: int, count: int):
        return compiled(*trainer.train_arguments(state, step, count))

    state, step, _ = time_steps(train, state, 0, seconds=0)
    *_, per_step = time_steps(train, state, step, _TRIAL_SECONDS)
    examples = trainer.config.train.batch_size * len(trainer.config.seeds)
    speeds = {"seconds_per_step": per_step, "examples_per_second": examples / per_step}
    return {"fits": True, "needed_mb": needed / 1e6, **speeds}


def device_bytes() -> int | None:
    """Return bytes of device memory that JAX may use, free bytes on a CPU; None if unknown."""
    if jax.default_backend() == "cpu":
        return available_bytes()
    return (jax.devices()[0].memory_stats() or {}).get("bytes_limit")


def make_trainer(case: TrainCase, examples: int | None = None, **options: Any) -> Trainer:
    """Return the trainer of a case on random examples.

    Args:
        case: The case.
        examples: Number of examples of each split; None for as many as the device evaluates soon.
        **options: Arguments of `Trainer`.
    """
    overrides = [f"seeds={tuple(range(case.seeds))}", f"dtype={case.dtype}", *case.overrides]
    overrides += [f"train.batch_size={case.batch}"] if case.batch else []
    config = load_config(f"configs/{case.task}.py:{case.attention}", overrides)
    task = get_task(case.task)
    with tempfile.TemporaryDirectory() as folder:
        if examples is None:
            few = min(4 * config.train.batch_size, _CPU_EXAMPLES)
            examples = few if jax.default_backend() == "cpu" else EXAMPLES
        lengths = usual_lengths(case.task, examples)
        write_random(folder, task, lengths, LONGEST[case.task])
        return Trainer(config, prepared.load(folder, case.task), **options)


def time_steps(
    train: Callable, state: TrainState, step: int, seconds: float
) -> tuple[TrainState, int, float]:
    """Time training steps in calls of about a second each, for `seconds` or one call if longer.

    Returns:
        The state after the last call, the next step, and the median seconds of a step.
    """
    step_seconds = []
    start = time.perf_counter()
    count = 1
    while not step_seconds or time.perf_counter() - start < seconds:
        call_start = time.perf_counter()
        state, _ = jax.block_until_ready(train(state, step, count))
        step_seconds.append((time.perf_counter() - call_start) / count)
        step += count
        count = max(1, min(MAX_STEPS_PER_CALL, int(_CALL_SECONDS / step_seconds[-1])))
    return state, step, statistics.median(step_seconds)


def _facts(trainer: Trainer, times: Times) -> dict[str, Any]:
    """Return the fields of a row besides its case and hours."""
    config, seeds = trainer.config, len(trainer.config.seeds)
    return {
        "batch": config.train.batch_size,
        "device": environment.device_name(),
        "num_devices": trainer.shardings.mesh.size,
        "commit": environment.commit(),
        "versions": environment.versions(),
        "deterministic": environment.is_deterministic(),
        "matmul_precision": config.matmul_precision,
        "compile_seconds": times.compilation,
        "eval_compile_seconds": times.eval_compilation,
        "other_compile_seconds": times.other_compilation,
        "steps_per_second": 1 / times.step,
        "examples_per_second": config.train.batch_size * seeds / times.step,
        "eval_examples_per_second": 1 / times.evaluated,
        "peak_memory_mb": environment.peak_memory_mb(),
        "real_flops_per_step": seeds * model_flops(trainer),
        "peak_flops_per_second": _matmul_rate(config),
    }


def _hours(config, times: Times) -> dict[str, float]:
    """Return hours of the protocol (training, evaluations) and of a whole run with compilation.

    The test set is evaluated twice. If validation and test set differ in size, two programs are
    compiled for evaluation.
    """
    counts = get_task(config.task).counts
    test = counts["test"]
    validation = counts.get("validation", test)
    eval_compilation = times.eval_compilation * len({validation, test})
    evaluations = config.train.steps // config.train.eval_every
    evaluated = (evaluations * validation + 2 * test) * len(config.seeds)
    protocol = config.train.steps * times.step + evaluated * times.evaluated
    whole = protocol + times.compilation + eval_compilation + times.other_compilation
    return {"protocol_hours": protocol / 3600, "whole_hours": whole / 3600}


def model_flops(trainer: Trainer) -> int:
    """Return the average FLOPs of the matrix products in a training step of one seed.

    Padding is not counted: each sequence counts with its number of real tokens, both of a pair
    with that of the longer one, rounded to the means of `_GROUPS` groups of lengths. It is taken to
    be at the front of the sequence: where real tokens are spread over it, as in Pathfinder, more of
    Nyström's landmarks have some than are counted.
    """
    config, task = trainer.config, trainer.task
    graphdef, *arrays = abstract_model(config, task, trainer.length)

    @functools.cache
    def forward_flops(length: int) -> int:
        shape = (1, *((2,) if task.pairs else ()), length)
        ids = jax.ShapeDtypeStruct(shape, jnp.int32)
        mask = jax.ShapeDtypeStruct(shape, jnp.bool_)
        return product_flops(lambda a, i, m: nnx.merge(graphdef, *a)(i, m), arrays, ids, mask)

    lengths = np.sort(trainer.training_lengths)
    groups = np.array_split(lengths, min(_GROUPS, len(lengths)))
    total = sum(forward_flops(round(group.mean())) * len(group) for group in groups)
    return 3 * config.train.batch_size * total // len(lengths)  # the backward pass counts twice


def _matmul_rate(config) -> float:
    """Return FLOP/s of a large matrix product in the model's precision on one device."""
    with jax.default_matmul_precision(config.matmul_precision):
        return product_rate(config.dtype)
