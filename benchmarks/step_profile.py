"""Profile of the training step, for `benchmarks.train_step`."""

import pathlib

import jax

from benchmarks.largest_costs import largest_costs, table, trace
from lra.state import TrainState
from lra.trainer import Trainer

_PROFILED_STEPS = 10
_PROFILED_SECONDS = 2.0  # longer traces are slow to read
# Keeps XLA from launching kernels as CUDA graphs, whose kernels the profiler cannot tell apart.
_SEPARATE_KERNELS = {"xla_gpu_graph_min_graph_size": 2**30}


def profile(
    trainer: Trainer, state: TrainState, step: int, per_step: float, folder: pathlib.Path
) -> str:
    """Write a trace of some steps to `folder`; return a table of the most expensive operations.

    Args:
        trainer: Trainer whose step is profiled.
        state: State to start from, which is donated.
        step: Number of the first step.
        per_step: Seconds of a step, which limit the number of profiled steps.
        folder: Folder of the trace.
    """
    count = max(1, min(_PROFILED_STEPS, int(_PROFILED_SECONDS / per_step)))
    arguments = trainer.train_arguments(state, step, count)
    options = _SEPARATE_KERNELS if jax.default_backend() == "gpu" else None
    program = trainer.programs.train.lower(*arguments).compile(compiler_options=options)
    trace(folder, lambda: program(*arguments))
    return table(largest_costs(folder, program.as_text()), count)
