"""How long do the GPU kernels of training take, with the sizes they have and with others?

    python -m benchmarks.gpu_kernels
    python -m benchmarks.gpu_kernels --kernels=finish,flash --runs=20

On one GPU, in bfloat16, with the shapes of Image: 256 sequences of 1,024 positions, 2 heads of 32.
Forward, and forward and backward together, once for each choice of sizes; the first are the ones in
use. Calls take turns, several at a time, so that starting them costs nothing; the fastest count.
Times much below 0.1 ms are those of starting a call.
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
from lra.errors import UserError
from models import embedding_kernel, fused
from models.attention import convolution_kernels, favor_kernels, flash, pinv_kernel
from models.attention.chunked import Blocks
from models.attention.convolution import three_blocks
from models.attention.favor_kernels import Blocks as FavorBlocks
from models.attention.low_rank import low_rank_attention
from models.attention.reformer_kernels import chunk_attention
from models.machine import this_machine

_BATCH, _LENGTH, _HEADS, _HEAD_DIM = 256, 1024, 2, 32
_DIM, _MLP_DIM, _VOCABULARY, _FEATURES = 64, 128, 256, 256
_CALLS = 10  # that are started before the first is waited for


class Kernel(NamedTuple):
    """What is timed.

    Attributes:
        make: returns a function and its arguments, which gradients are taken by.
        module, name: of the sizes; None: they are not varied.
        others: sizes besides those in use.
    """

    make: Callable[[], tuple[Callable, tuple]]
    module: ModuleType | None = None
    name: str = ""
    others: tuple = ()

    def sizes(self) -> Iterator[Any]:
        """The sizes in use first."""
        if self.module is None:
            yield None
            return
        used = getattr(self.module, self.name)
        yield used
        yield from (each for each in self.others if each != used)

    def with_sizes(self, sizes: Any) -> contextlib.AbstractContextManager:
        """Inside, programs are traced with these sizes."""
        if self.module is None:
            return contextlib.nullcontext()
        return mock.patch.object(self.module, self.name, sizes)


def main(argv: list[str]) -> int:
    """Measures the kernels asked for and prints a line for each choice of sizes."""
    parser = ArgumentParser(prog="python -m benchmarks.gpu_kernels", description=__doc__)
    parser.add_argument("--kernels", default="all", help="comma-separated: " + ", ".join(KERNELS))
    parser.add_argument("--runs", type=positive_integer, default=5, help="(%(default)s)")
    options = parser.parse_args(argv)
    names = choose(options.kernels, KERNELS, KERNELS)
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
    """The function of a kernel, and it with its gradients, lowered for a GPU with some sizes."""

    forward: jax.stages.Lowered
    both: jax.stages.Lowered
    arguments: tuple


def programs(kernel: Kernel) -> Iterator[Program]:
    """One for each choice of sizes."""
    for sizes in kernel.sizes():
        function, arguments = kernel.make()
        with kernel.with_sizes(sizes):
            lowered = (
                # A function of its own each time, since JAX keeps what it traced.
                jax.jit(functools.partial(each, function))
                .trace(*arguments)
                .lower(lowering_platforms=("cuda",))
                for each in (_alone, _with_gradients)
            )
            yield Program(*lowered, arguments)


def _alone(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


def _with_gradients(function: Callable, *arguments: Any) -> tuple:
    out, pull = jax.vjp(function, *arguments)
    return out, pull(out)


def _measure(kernel: Kernel, runs: int) -> Iterator[tuple[Any, float, float]]:
    """Milliseconds a call, for each choice of sizes."""
    calls = {}
    for number, (forward, both, arguments) in enumerate(programs(kernel)):
        calls[number, "forward"] = functools.partial(_repeat, forward.compile(), arguments)
        calls[number, "both"] = functools.partial(_repeat, both.compile(), arguments)
    turns.fastest(calls, (), 1)
    seconds = turns.fastest(calls, (), runs)
    for number, sizes in enumerate(kernel.sizes()):
        yield sizes, *(1e3 * seconds[number, what] / _CALLS for what in ("forward", "both"))


def _repeat(program: Callable, arguments: tuple) -> Any:
    return [program(*arguments) for _ in range(_CALLS)][-1]


def _text(sizes: Any) -> str:
    return "" if sizes is None else str(sizes)


def _normal(number: int, *shape: int, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.random.normal(jax.random.key(number), shape).astype(dtype)


def _heads(number: int, length: int) -> jax.Array:
    return _normal(number, _BATCH, length, _HEADS, _HEAD_DIM)


def _sequences(number: int) -> tuple[jax.Array, ...]:
    return tuple(_heads(each, _LENGTH) for each in range(number))


def _real(length: int) -> jax.Array:
    return jnp.ones((_BATCH, length), bool)


def _rows(number: int) -> jax.Array:
    return _normal(number, _BATCH, _LENGTH, _DIM)


def _dense(number: int, fan_in: int, fan_out: int) -> fused.Dense:
    kernel = _normal(number, fan_in, fan_out, dtype=jnp.float32) / 8
    return fused.Dense(kernel, jnp.zeros(fan_out))


def _seeds(number: int) -> jax.Array:
    return jax.random.bits(jax.random.key(number), (_BATCH, _LENGTH), jnp.uint32)


def _norm() -> fused.Norm:
    return fused.Norm(jnp.ones(_DIM), jnp.zeros(_DIM))


def _project() -> tuple[Callable, tuple]:
    projections = tuple(_dense(number, _DIM, _DIM) for number in range(3))
    return functools.partial(fused.project, epsilon=1e-5), (_rows(3), _norm(), projections)


def _finish() -> tuple[Callable, tuple]:
    weights = fused.Rest(
        _dense(0, _DIM, _DIM), _norm(), _dense(1, _DIM, _MLP_DIM), _dense(2, _MLP_DIM, _DIM)
    )
    seeds = tuple(map(_seeds, range(3)))
    function = functools.partial(fused.finish, epsilon=1e-5, dropout=0.1, seeds=seeds)
    return function, (_rows(3), _rows(4), weights)


def _embed() -> tuple[Callable, tuple]:
    ids = jax.random.randint(jax.random.key(0), (_BATCH, _LENGTH), 0, _VOCABULARY)

    def function(token: jax.Array, position: jax.Array) -> jax.Array:
        return embedding_kernel.embed(
            token, position, ids, dropout=0.1, seeds=_seeds(1), dtype=jnp.bfloat16
        )

    tables = (_normal(2, n, _DIM, dtype=jnp.float32) for n in (_VOCABULARY, _LENGTH))
    return function, tuple(tables)


def _flash(dropout: float) -> tuple[Callable, tuple]:
    function = functools.partial(
        flash.flash_attention, mask=_real(_LENGTH), dropout=dropout, key=jax.random.key(0)
    )
    return function, _sequences(3)


def _low_rank(queries: int, keys: int) -> tuple[Callable, tuple]:
    function = functools.partial(low_rank_attention, mask=_real(keys))
    return function, (_heads(0, queries), _heads(1, keys), _heads(2, keys))


def _favor() -> tuple[Callable, tuple]:
    projection = _normal(3, _FEATURES, _HEAD_DIM, dtype=jnp.float32)

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return favor_kernels.favor_kernels(q, k, v, _real(_LENGTH), projection, 0.0)

    return function, _sequences(3)


def _chunks() -> tuple[Callable, tuple]:
    order = jnp.argsort(jax.random.bits(jax.random.key(0), (_BATCH, _HEADS, 2, _LENGTH)))
    count = jnp.full(_BATCH, _LENGTH, jnp.int32)
    function = functools.partial(
        chunk_attention, order=order.astype(jnp.int32), count=count, chunk_length=64
    )
    return function, _sequences(2)


def _pinv() -> tuple[Callable, tuple]:
    a = jax.nn.softmax(_normal(0, _BATCH, _HEADS, 64, 64, dtype=jnp.float32))
    return lambda a, z: pinv_kernel.iterate(a, z, 6), (a, jnp.swapaxes(a, -1, -2) / 3)


def _convolution() -> tuple[Callable, tuple]:
    matrices = three_blocks(_normal(0, _HEADS, 35, dtype=jnp.float32))
    return convolution_kernels.convolve, (*_sequences(1), matrices)


def _tiles(*sizes: tuple[int, int, int]) -> tuple[fused._Tile, ...]:
    return tuple(fused._Tile(*each) for each in sizes)


def _favor_sizes() -> tuple:
    """All but one of the five kernels with the sizes they have."""
    used = favor_kernels._NARROW
    choices = (FavorBlocks(64, 64), FavorBlocks(128, 32), FavorBlocks(128, 64))
    return tuple(
        (*used[:kernel], choice, *used[kernel + 1 :])
        for kernel in range(len(used))
        for choice in choices
    )


_FORWARD_TILES = _tiles((64, 4, 264), (64, 4, 528), (32, 4, 1056), (32, 8, 528))
_BACKWARD_TILES = _tiles((32, 4, 264), (32, 8, 132), (32, 8, 264), (16, 8, 132))
_BLOCKS = tuple(Blocks(*each) for each in ((64, 64), (64, 128), (128, 64), (128, 128)))

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
