"""What would training and evaluation cost on a TPU? Compiled ahead of time; it needs no TPU.

    pip install libtpu      in an environment of its own: with it JAX looks for a TPU
    python -m benchmarks.tpu_programs --tasks=image --attentions=linformer,nystrom
    python -m benchmarks.tpu_programs --chip=v6e --devices=4 --seeds=1 --program=evaluation

Compiles what `train.py` would call on such chips, and prints for each case the milliseconds of a
step (training) or of a batch (evaluation) by XLA's own estimate, the memory of the program on each
chip, and the seconds of compilation. Nothing runs, so none of the times is a measurement. What XLA
gives no estimate for is left out: gathers, sorts and communication, which are counted, and some
copies and updates of slices. --largest=N names the N most expensive of the other operations, and
all that are counted.
"""

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding

from benchmarks import hlo_cost, hlo_text
from benchmarks.chosen_cases import add_options, chosen_cases
from benchmarks.train_case import TrainCase, make_trainer
from benchmarks.worker import failure_kind
from lra import sharding
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.programs import Programs, make_programs
from lra.trainer import Trainer
from models.machine import Machine, assumed

_EXAMPLES = 512  # of each split; programs for more have only a larger table of tokens


class Chip(NamedTuple):
    """A TPU.

    Attributes:
        topology: Topology of four chips, as libtpu calls it.
        accelerator: Type of a virtual machine with these chips.
        memory: Bytes of memory of a chip.
        clock: Cycles per second.
    """

    topology: str
    accelerator: str
    memory: int
    clock: float


# https://cloud.google.com/tpu/docs: memory, and peak rate of bfloat16, which is the clock times the
# operations of a cycle (2 x 4 x 128 x 128, 2 x 4 x 256 x 256 and 2 x 8 x 128 x 128). For v6e the
# page names two units, but XLA's estimate of a product of matrices of 8,192 x 8,192 comes to
# 369,000 operations a cycle, more than two could do.
CHIPS = {
    "v5e": Chip("v5e:2x2", "v5litepod-4", 16 * 2**30, 197e12 / 2**17),
    "v6e": Chip("v6e:2x2", "v6e-4", 32 * 2**30, 918e12 / 2**19),
    "v5p": Chip("v5p:2x2x1", "v5p-8", 95 * 2**30, 459e12 / 2**18),
}
# Operations that are counted if they have no estimate.
_EXPENSIVE = {"fusion", "sort", "gather", "scatter", "all-reduce", "all-gather", "reduce-scatter"}
_EXPENSIVE |= {"all-to-all", "collective-permute", "all-reduce-start", "all-gather-start"}
_HEADER = """\
| task | attention | estimated ms | memory, MB | without estimate | compile s |
|---|---|---|---|---|---|"""


class Estimate(NamedTuple):
    """XLA's estimate of an operation: executions in one call, and cycles of all of them."""

    operation: hlo_text.Instruction
    turns: int
    cycles: int | None


def main(argv: list[str]) -> int:
    """Compile the requested programs and print a line for each."""
    options = _parser().parse_args(argv)
    cases = chosen_cases(options)
    chip = CHIPS[options.chip]
    mesh = _mesh(chip, options.devices)
    print(_HEADER, flush=True)
    for case in cases:
        cells, costs = _compile(case, options.program, chip, mesh)
        print(f"| {case.task} | {case.attention} | {' | '.join(cells)} |", flush=True)
        if options.largest:
            _print_largest(costs, options.largest, chip)
    return 0


def _compile(
    case: TrainCase, program: str, chip: Chip, mesh: Mesh
) -> tuple[list[str], list[Estimate]]:
    """Compile a case; return what its line says, and XLA's estimates."""
    start = time.perf_counter()
    try:
        compiled = compile_program(case, program, chip, mesh)
    except jax.errors.JaxRuntimeError as error:
        if failure_kind(error) != "out_of_memory":
            raise
        return ["–", f"more than {chip.memory / 1e6:,.0f}", "–", "–"], []
    seconds = time.perf_counter() - start
    costs = list(estimates(compiled.as_text()))
    milliseconds = 1e3 * sum(cost.cycles or 0 for cost in costs) / chip.clock
    memory = f"{hlo_cost.memory_of(compiled) / 1e6:,.0f}"
    unknown = sum(cost.turns for cost in costs if cost.cycles is None)
    return [f"{milliseconds:.1f}", memory, str(unknown), f"{seconds:.0f}"], costs


def compile_program(case: TrainCase, program: str, chip: Chip, mesh: Mesh) -> jax.stages.Compiled:
    """Compile the training or the evaluation of a case for chips that need not be present.

    Args:
        case: Case to compile.
        program: `training` or `evaluation`.
        chip: The chip of `mesh`.
        mesh: Mesh of `lra.sharding.make_mesh`.
    """
    with assumed(Machine("tpu", memory=chip.memory)):
        trainer = make_trainer(case, _EXAMPLES)
        programs, state = programs_on(trainer, mesh), trainer.abstract_state()
        function, arguments = programs.train, trainer.train_arguments(state, 0, 1)
        if program == "evaluation":
            evaluation = trainer.new_evaluation(state.params, state.rest, "test")
            function, arguments = programs.logits, evaluation.arguments(1)
        return function.lower(*abstract(arguments, mesh)).compile()


def programs_on(trainer: Trainer, mesh: Mesh) -> Programs:
    """Return the programs of a trainer for other devices than its own."""
    config, task = trainer.config, trainer.task
    return make_programs(
        config,
        task,
        trainer.length,
        graphdef=trainer.graphdef,
        plan=trainer.plan,
        shardings=sharding.shardings_on(mesh),
        donate=True,
    )


def abstract(arguments: tuple[Any, ...], mesh: Mesh) -> tuple[Any, ...]:
    """Return shapes and dtypes of arrays that are placed on `mesh` as they are on their own."""

    def shape_of(x: Any) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.result_type(x)
        placed = NamedSharding(mesh, x.sharding.spec)
        return jax.ShapeDtypeStruct(jnp.shape(x), dtype, sharding=placed)

    return jax.tree.map(shape_of, arguments)


def estimates(text: str) -> Iterator[Estimate]:
    """Yield XLA's estimates of the operations of a program; the loop over steps has one turn.

    Args:
        text: Compiled HLO of the program.
    """
    program = hlo_text.read(text)

    def trip_count(loop: hlo_text.Instruction) -> int:
        # Loops count from 0 to a constant, but for the one over steps or batches.
        condition = program.computations[loop.condition]
        ends = [each.arguments[1:-1] for each in condition if each.operation == "constant"]
        tests = [each.rest for each in condition if each.operation == "compare"]
        if len(tests) != 1 or "direction=LT" not in tests[0] or len(ends) > 1:
            raise ValueError(f"cannot tell how often {loop.name} is repeated: {condition}")
        return int(ends[0]) if ends else 1

    for each, _, turns, _ in hlo_cost.executions(program, trip_count):
        cycles = each.estimated_cycles
        if cycles is not None:
            yield Estimate(each, int(turns), int(turns) * cycles)
        elif each.operation in _EXPENSIVE:
            yield Estimate(each, int(turns), None)


def _mesh(chip: Chip, devices: int) -> Mesh:
    """Return a mesh that divides the batch among `devices` chips."""
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",  # do not ask Google Cloud where this machine is
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": chip.accelerator,
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is used, so another process may have it
    }
    try:
        chips = topologies.get_topology_desc(chip.topology, platform="tpu").devices
    except (NotImplementedError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"cannot compile for a TPU: {reason}; pip install libtpu") from None
    return sharding.make_mesh(list(chips[:devices]), 1, devices)


def _print_largest(costs: list[Estimate], number: int, chip: Chip) -> None:
    known = sorted((c for c in costs if c.cycles is not None), key=lambda cost: -cost.cycles)
    for operation, turns, cycles in known[:number] + [c for c in costs if c.cycles is None]:
        time_text = f"{1e3 * cycles / chip.clock:9.3f} ms" if cycles is not None else "  unknown   "
        shape = operation.shape.partition("{")[0]
        print(f"{time_text}  {turns:4} x {operation.name}  {shape}  {operation.source}")


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.tpu_programs", description=__doc__)
    add_options(parser, "operations")
    add = parser.add_argument
    add("--chip", default="v5e", choices=CHIPS, help="(%(default)s)")
    add("--devices", type=int, default=1, choices=(1, 2, 4), help="that share the batch (1)")
    add("--program", default="training", choices=("training", "evaluation"), help="(%(default)s)")
    return parser


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # even if there is a TPU
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is timed
    run(main)
