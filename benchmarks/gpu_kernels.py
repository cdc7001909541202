"""How long do the GPU kernels of training take, with their present tile sizes and with others?

    python -m benchmarks.gpu_kernels
    python -m benchmarks.gpu_kernels --kernels=finish,flash --runs=20

On one GPU, in bfloat16, with the shapes of Image: 256 sequences of 1,024 positions, 2 heads of 32.
Times the forward pass, and the forward and backward pass together, for each choice of sizes; those
in use come first. The choices take turns, with several calls dispatched at a time to hide launch
overhead, and the fastest turn counts. Times much below 0.1 ms are mostly launch overhead.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp

from benchmarks import turns
from benchmarks.train_step import choose
from lra.command_line import ArgumentParser, positive_integer, run
from lra.environment import check_jax
from lra.errors import UserError
from models import embedding_kernel, fused
from models.attention import convolution_kernels, favor_kernels, flash, pinv_kernel
from models.attention.blocks import Blocks
from models.attention.convolution import three_blocks
from models.attention.favor_kernels import FavorBlocks, favor_attention_by_kernels
from models.attention.low_rank import low_rank_attention
from models.attention.nystrom import PINV_ITERATIONS
from models.attention.reformer_kernels import chunk_attention
from models.machine import this_machine

_BATCH, _LENGTH, _HEADS, _HEAD_DIM = 256, 1024, 2, 32
_DIM, _MLP_DIM, _VOCABULARY, _FEATURES = 64, 128, 256, 256
_CALLS = 10  # calls that are dispatched before waiting for the last one


class Kernel(NamedTuple):
    """A kernel to time, and the sizes to try.

    Attributes:
        make: Returns a function and its arguments, with respect to which gradients are taken.
        module: Module that holds the sizes; None if they are not varied.
        name: Name of the sizes in `module`.
        others: Sizes to try besides those in use.
    """

    make: Callable[[], tuple[Callable, tuple]]
    module: ModuleType | None = None
    name: str = ""
    others: tuple = ()

    def sizes(self) -> Iterator[Any]:
        """Yield the sizes in use, then the others; a single None if sizes are not varied."""
        if self.module is None:
            yield None
            return
        current = getattr(self.module, self.name)
        yield current
        yield from (sizes for sizes in self.others if sizes != current)

    def with_sizes(self, sizes: Any) -> contextlib.AbstractContextManager:
        """Return a context within which programs are traced with the given sizes."""
        if self.module is None:
            return contextlib.nullcontext()
        return mock.patch.object(self.module, self.name, sizes)


def main(argv: list[str]) -> int:
    """Measure the requested kernels and print a line for each choice of sizes."""
    parser = ArgumentParser(prog="python -m benchmarks.gpu_kernels", description=__doc__)
    parser.add_argument("--kernels", default="all", help="comma-separated: " + ", ".join(KERNELS))
    parser.add_argument("--runs", type=positive_integer, default=5, help="(%(default)s)")
    options = parser.parse_args(argv)
    names = choose(options.kernels, KERNELS, KERNELS)
    check_jax()
    if not this_machine().runs_kernels:
        raise UserError(
            "the kernels need one NVIDIA GPU of compute capability 8.0, 9.0 or 10.0, and "
            "LRA_KERNELS not to be off"
        )
    print("| kernel | sizes | forward ms | forward and backward ms |\n|---|---|---|---|")
    for name in names:
        for sizes, forward, both in _measure(KERNELS[name], options.runs):
            print(f"| {name} | {_text(sizes)} | {forward:.3f} | {both:.3f} |", flush=True)
    return 0


class Program(NamedTuple):
    """A kernel's forward pass, and its forward and backward pass, lowered for a GPU."""

    forward: jax.stages.Lowered
    both: jax.stages.Lowered
    arguments: tuple


def programs(kernel: Kernel) -> Iterator[Program]:
    """Yield the lowered programs of a kernel for each choice of sizes."""
    for sizes in kernel.sizes():
        function, arguments = kernel.make()
        with kernel.with_sizes(sizes):
            lowered = (
                # A new partial each time, since JAX caches traces by function.
                jax.jit(functools.partial(apply, function))
                .trace(*arguments)
                .lower(lowering_platforms=("cuda",))
                for apply in (_forward, _forward_backward)
            )
            yield Program(*lowered, arguments)


def _forward(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


def _forward_backward(function: Callable, *arguments: Any) -> tuple:
    out, vjp = jax.vjp(function, *arguments)
    return out, vjp(out)


def _measure(kernel: Kernel, runs: int) -> Iterator[tuple[Any, float, float]]:
    """Yield sizes, milliseconds of a forward call, and milliseconds of forward and backward."""
    calls = {}
    for index, (forward, both, arguments) in enumerate(programs(kernel)):
        calls[index, "forward"] = functools.partial(_repeat, forward.compile(), arguments)
        calls[index, "both"] = functools.partial(_repeat, both.compile(), arguments)
    turns.fastest(calls, (), 1)  # warm-up
    seconds = turns.fastest(calls, (), runs)
    for index, sizes in enumerate(kernel.sizes()):
        yield sizes, *(1e3 * seconds[index, name] / _CALLS for name in ("forward", "both"))


def _repeat(program: Callable, arguments: tuple) -> Any:
    return [program(*arguments) for _ in range(_CALLS)][-1]


def _text(sizes: Any) -> str:
    return "" if sizes is None else str(sizes)


def _normal(seed: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def _heads(seed: int, length: int) -> jax.Array:
    return _normal(seed, _BATCH, length, _HEADS, _HEAD_DIM)


def _full_length_heads(count: int) -> tuple[jax.Array, ...]:
    return tuple(_heads(seed, _LENGTH) for seed in range(count))


def _full_mask(length: int) -> jax.Array:
    return jnp.ones((_BATCH, length), bool)


def _activations(seed: int) -> jax.Array:
    return _normal(seed, _BATCH, _LENGTH, _DIM)


def _dense(seed: int, fan_in: int, fan_out: int) -> fused.Dense:
    kernel = _normal(seed, fan_in, fan_out, dtype=jnp.float32) / 8
    return fused.Dense(kernel, jnp.zeros(fan_out))


def _dropout_seeds(seed: int) -> jax.Array:
    return jax.random.bits(jax.random.key(seed), (_BATCH, _LENGTH), jnp.uint32)


def _norm() -> fused.Norm:
    return fused.Norm(jnp.ones(_DIM), jnp.zeros(_DIM))


def _project() -> tuple[Callable, tuple]:
    projections = tuple(_dense(seed, _DIM, _DIM) for seed in range(3))
    return functools.partial(fused.project, epsilon=1e-5), (_activations(3), _norm(), projections)


def _finish() -> tuple[Callable, tuple]:
    weights = fused.FinishWeights(
        _dense(0, _DIM, _DIM), _norm(), _dense(1, _DIM, _MLP_DIM), _dense(2, _MLP_DIM, _DIM)
    )
    seeds = tuple(map(_dropout_seeds, range(3)))
    function = functools.partial(fused.finish, epsilon=1e-5, dropout=0.1, seeds=seeds)
    return function, (_activations(3), _activations(4), weights)


def _embed() -> tuple[Callable, tuple]:
    ids = jax.random.randint(jax.random.key(0), (_BATCH, _LENGTH), 0, _VOCABULARY)

    def function(token: jax.Array, position: jax.Array) -> jax.Array:
        return embedding_kernel.embed(
            token, position, ids, dropout=0.1, seeds=_dropout_seeds(1), dtype=jnp.bfloat16
        )

    tables = (_normal(2, n, _DIM, dtype=jnp.float32) for n in (_VOCABULARY, _LENGTH))
    return function, tuple(tables)


def _flash(dropout: float) -> tuple[Callable, tuple]:
    function = functools.partial(
        flash.flash_attention, mask=_full_mask(_LENGTH), dropout=dropout, key=jax.random.key(0)
    )
    return function, _full_length_heads(3)


def _low_rank(queries: int, keys: int) -> tuple[Callable, tuple]:
    function = functools.partial(low_rank_attention, mask=_full_mask(keys))
    return function, (_heads(0, queries), _heads(1, keys), _heads(2, keys))


def _favor() -> tuple[Callable, tuple]:
    projection = _normal(3, _FEATURES, _HEAD_DIM, dtype=jnp.float32)

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return favor_attention_by_kernels(q, k, v, _full_mask(_LENGTH), projection, 0.0)

    return function, _full_length_heads(3)


def _chunks() -> tuple[Callable, tuple]:
    order = jnp.argsort(jax.random.bits(jax.random.key(0), (_BATCH, _HEADS, 2, _LENGTH)))
    count = jnp.full(_BATCH, _LENGTH, jnp.int32)
    function = functools.partial(
        chunk_attention, order=order.astype(jnp.int32), count=count, chunk_length=64
    )
    return function, _full_length_heads(2)


def _pinv() -> tuple[Callable, tuple]:
    a = jax.nn.softmax(_normal(0, _BATCH, _HEADS, 64, 64, dtype=jnp.float32))
    return lambda a, z: pinv_kernel.iterate(a, z, PINV_ITERATIONS), (a, jnp.swapaxes(a, -1, -2) / 3)


def _convolution() -> tuple[Callable, tuple]:
    matrices = three_blocks(_normal(0, _HEADS, 35, dtype=jnp.float32))
    return convolution_kernels.convolve, (*_full_length_heads(1), matrices)


def _tiles(*sizes: tuple[int, int, int]) -> tuple[fused._Tile, ...]:
    return tuple(fused._Tile(*size) for size in sizes)


def _favor_sizes() -> tuple:
    """Return choices of sizes for the five kernels that each change the blocks of one kernel."""
    current = favor_kernels._NARROW
    choices = (FavorBlocks(64, 64), FavorBlocks(128, 32), FavorBlocks(128, 64))
    return tuple(
        (*current[:kernel], choice, *current[kernel + 1 :])
        for kernel in range(len(current))
        for choice in choices
    )


_FORWARD_TILES = _tiles((64, 4, 264), (64, 4, 528), (32, 4, 1056), (32, 8, 528))
_BACKWARD_TILES = _tiles((32, 4, 264), (32, 8, 132), (32, 8, 264), (16, 8, 132))
_BLOCKS = tuple(Blocks(*size) for size in ((64, 64), (64, 128), (128, 64), (128, 128)))

KERNELS = {
    "project": Kernel(_project, fused, "_PROJECT", _FORWARD_TILES),
    "project_gradient": Kernel(_project, fused, "_PROJECT_GRADIENT", _BACKWARD_TILES),
    "finish": Kernel(_finish, fused, "_FINISH", _FORWARD_TILES),
    "finish_gradient": Kernel(_finish, fused, "_FINISH_GRADIENT", _BACKWARD_TILES),
    "embed": Kernel(_embed, embedding_kernel, "_PROGRAMS", (132, 264, 528)),
    "flash": Kernel(functools.partial(_flash, 0.1), flash, "_FORWARD", _BLOCKS),
    "flash_gradient": Kernel(functools.partial(_flash, 0.1), flash, "_BACKWARD", _BLOCKS),
    "flash_stages": Kernel(functools.partial(_flash, 0.1), flash, "_STAGES", (1, 2, 3, 4)),
    "flash_kept": Kernel(functools.partial(_flash, 0.0)),
    "to_64_keys": Kernel(lambda: _low_rank(_LENGTH, 64)),
    "to_256_keys": Kernel(lambda: _low_rank(_LENGTH, 256)),
    "of_64_queries": Kernel(lambda: _low_rank(64, _LENGTH)),
    "favor": Kernel(_favor, favor_kernels, "_NARROW", _favor_sizes()),
    "chunks": Kernel(_chunks),
    "pinv": Kernel(_pinv),
    "convolution": Kernel(_convolution, convolution_kernels, "_GROUP", (1, 4, 16)),
}

if __name__ == "__main__":
    run(main)
