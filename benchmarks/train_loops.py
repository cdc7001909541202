"""Two extras of `benchmarks.train_step`: both forms of the training loop, and a profile."""

import pathlib
import statistics
import time

import jax

from benchmarks.largest_costs import largest_costs, table, trace
from lra.state import TrainState
from lra.trainer import Trainer

_ROUNDS = 5
_PROFILED_STEPS = 10
_PROFILED_SECONDS = 2.0  # a trace of more is slow to read
# A GPU's profiler tells the kernels apart that XLA does not launch together, as a graph.
_SEPARATE_KERNELS = {"xla_gpu_graph_min_graph_size": 2**30}


def compare(
    trainer: Trainer, state: TrainState, step: int, per_step: float
) -> tuple[TrainState, int, dict[str, float]]:
    """Times the trainer's loop, whose length is an argument, against one of known length.

    The two forms take turns, in calls of about a second.

    Returns:
        The state after, the next step, and median seconds a step: `dynamic` and `static`.
    """
    count = max(1, min(100, int(1.0 / per_step)))

    def train(state, keys, examples, indices, start):
        return trainer.programs.train_steps(state, keys, examples, indices, start, count)

    place = trainer.shardings.per_seed
    static = trainer.programs.compiled("static", train, donated=True, out_shardings=place)
    seconds = {"dynamic": [], "static": []}
    for number in range(1 + _ROUNDS):
        for form in seconds:
            arguments = trainer.train_arguments(state, step, count)
            begun = time.perf_counter()
            dynamic = form == "dynamic"
            result = trainer.programs.train(*arguments) if dynamic else static(*arguments[:-1])
            state, _ = jax.block_until_ready(result)
            step += count
            if number:  # the first compiles
                seconds[form].append((time.perf_counter() - begun) / count)
    return state, step, {form: statistics.median(times) for form, times in seconds.items()}


def profile(
    trainer: Trainer, state: TrainState, step: int, per_step: float, folder: pathlib.Path
) -> str:
    """Writes a trace of some steps to `folder`; returns the largest costs as text."""
    count = max(1, min(_PROFILED_STEPS, int(_PROFILED_SECONDS / per_step)))
    arguments = trainer.train_arguments(state, step, count)
    options = _SEPARATE_KERNELS if jax.default_backend() == "gpu" else None
    program = trainer.programs.train.lower(*arguments).compile(compiler_options=options)
    trace(folder, lambda: program(*arguments))
    return table(largest_costs(folder, program.as_text()), count)
