"""How much memory does a training step move on a GPU? Compiled ahead of time; it needs no GPU.

    pip install "jax[cuda12]==VERSION"      of the installed JAX, in an environment of its own
    python -m benchmarks.gpu_traffic --tasks=image --attentions=linformer,nystrom

XLA compiles the step for an H200 without autotuning. The bytes that each kernel reads and writes
are summed as if nothing stayed in a cache; at 4.8 TB/s they bound the time of a step from below.
So do kernel launches, at some microseconds per kernel. Neither is a measurement.
"""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

from benchmarks.chosen_cases import add_options, chosen_cases
from benchmarks.hlo_cost import Kernel, kernels_of
from benchmarks.train_case import TrainCase, make_trainer
from lra.command_line import ArgumentParser, run
from lra.errors import UserError
from lra.trainer import Trainer
from models.machine import Machine, assumed

_NAME = "NVIDIA H200"
_MEMORY = 139 * 2**30  # bytes; JAX preallocates three quarters of them by default
_MACHINE = Machine("gpu", memory=_MEMORY * 3 // 4, has_cudnn=True, runs_kernels=True, inverts=True)
_BANDWIDTH = 4.8e12  # bytes per second
# Device description that XLA needs to compile for it: data sheet numbers in XLA's text format.
_TARGET = f"""
gpu_device_info {{
  cuda_compute_capability {{ major: 9 minor: 0 }}
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: {_BANDWIDTH:.0f}
  device_memory_size: {_MEMORY}
  l2_cache_size: {50 * 2**20}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
  registers_per_core_limit: {2**16}
  registers_per_block_limit: {2**16}
  shared_memory_per_core: {228 * 2**10}
  shared_memory_per_block: {48 * 2**10}
  shared_memory_per_block_optin: {227 * 2**10}
}}
platform_name: "CUDA"
device_description_str: "{_NAME}"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}
"""
_HEADER = """\
| task | attention | GB a step | least ms | kernels | temporary GB |
|---|---|---|---|---|---|"""


def main(argv: list[str]) -> int:
    """Compile the requested training steps and print a line for each."""
    options = _parser().parse_args(argv)
    cases = chosen_cases(options)
    device = _device()
    print(_HEADER, flush=True)
    for case in cases:
        compiled = compile_step(case, device)
        kernels = [kernel for kernel in kernels_of(compiled.as_text(), 1) if kernel.looped]
        moved = sum(kernel.size * kernel.turns for kernel in kernels)
        print(
            f"| {case.task} | {case.attention} | {moved / 1e9:.1f} | "
            f"{1e3 * moved / _BANDWIDTH:.1f} | {sum(kernel.turns for kernel in kernels):,.0f} | "
            f"{compiled.memory_analysis().temp_size_in_bytes / 1e9:.1f} |",
            flush=True,
        )
        _print_largest(kernels, options.largest)
    return 0


def compile_step(case: TrainCase, device: jax.Device) -> jax.stages.Compiled:
    """Compile the training call of a case for a device that need not be present."""
    with assumed(_MACHINE), _abstract_gpu():
        trainer = make_trainer(case)
        # Compiled again, since the program of the trainer is for this machine's devices.
        steps = jax.jit(trainer.programs.train.__wrapped__, donate_argnums=0)
        traced = steps.trace(*_abstract_arguments(trainer, device))
        lowered = traced.lower(lowering_platforms=("cuda",))
        return lowered.compile(compiler_options={"xla_gpu_autotune_level": 0})


def _abstract_arguments(trainer: Trainer, device: jax.Device) -> Any:
    sharding = SingleDeviceSharding(device)

    def shape_of(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(jnp.shape(x), jax.dtypes.result_type(x), sharding=sharding)

    return jax.tree.map(shape_of, trainer.train_arguments(trainer.abstract_state(), 0, 2))


def _device() -> jax.Device:
    try:
        return topologies.get_topology_desc(
            platform="cuda", topology_name=_NAME, topology="1x1x1", target_config=_TARGET
        ).devices[0]
    except NotImplementedError:
        raise UserError(
            "this JAX cannot compile for NVIDIA's GPUs: install its plugin, "
            f"pip install 'jax[cuda12]=={jax.__version__}'"
        ) from None


@contextlib.contextmanager
def _abstract_gpu() -> Iterator[None]:
    """Tell Pallas which GPU its kernels are lowered for."""
    device = AbstractDevice(_NAME, num_cores=None, platform="gpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        yield


def _print_largest(kernels: list[Kernel], number: int) -> None:
    for kernel in sorted(kernels, key=lambda kernel: -kernel.size * kernel.turns)[:number]:
        print(f"    {kernel.size * kernel.turns / 1e6:8,.1f} MB  {kernel.name}  {kernel.source}")


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.gpu_traffic", description=__doc__)
    add_options(parser, "kernels")
    return parser


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # even if there is a GPU
    run(main)
