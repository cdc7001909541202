"""How much memory does exact attention need, blockwise and with all scores in memory?

    python -m benchmarks.standard_memory --lengths=1024,2048,4096

Forward and backward pass of the implementations `chunked` and `xla` of standard attention, with and
without dropout of attention weights, and for comparison of the reference implementation and of
JAX's own function. Memory is what the compiled program reserves for temporary values by XLA's
analysis, without inputs and gradients. Times are those of the fastest of --runs runs, with the
implementations taking turns.
"""

import argparse
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks import turns
from lra.command_line import (
    ArgumentParser,
    integer_from_0,
    positive_integer,
    positive_integers,
    run,
)
from lra.environment import check_jax
from models.attention.chunked import chunked_attention
from models.attention.materialised import materialised_attention
from models.attention.standard import standard_attention


def main(argv: list[str]) -> int:
    """Measure every length and print a table."""
    parser = ArgumentParser(prog="python -m benchmarks.standard_memory", description=__doc__)
    add = parser.add_argument
    add("--lengths", type=positive_integers, default=[1024, 2048, 4096])
    add("--batch", type=positive_integer, default=4, help="sequences (%(default)s)")
    add("--heads", type=positive_integer, default=2, help="heads (%(default)s)")
    add("--head_dim", type=positive_integer, default=32, help="width of one (%(default)s)")
    add("--dropout", type=_rate, default=0.1, help="where named (%(default)s)")
    add("--runs", type=integer_from_0, default=3, help="0: only memory (%(default)s)")
    options = parser.parse_args(argv)
    check_jax()
    print(f"batch {options.batch}, {options.heads} heads of {options.head_dim}, float32")
    print(f"{'length':>6}  {'implementation':<24}{'memory, MB':>10}{'time, ms':>10}")
    for length in options.lengths:
        shape = (options.batch, length, options.heads, options.head_dim)
        for name, megabytes, milliseconds in _measure(shape, options.dropout, options.runs):
            print(f"{length:>6,}  {name:<24}{megabytes:>10,.1f}{milliseconds:>10,.0f}", flush=True)
    return 0


def _rate(text: str) -> float:
    """Parse the value of `--dropout`, a number in [0, 1)."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to below 1")
    return rate


def _measure(shape, dropout, runs):
    """Yield name, megabytes and milliseconds (0 without runs) of each implementation."""
    arrays = [jax.random.normal(key, shape) for key in jax.random.split(jax.random.key(0), 3)]
    arguments = (*arrays, jnp.ones(shape[:2], bool), jax.random.key(1))
    programs = {
        name: jax.jit(_gradients(attend)).lower(*arguments).compile()
        for name, attend in _implementations(dropout).items()
    }
    seconds = turns.fastest(programs, arguments, runs)
    for name, program in programs.items():
        memory = program.memory_analysis().temp_size_in_bytes
        yield name, memory / 1e6, seconds[name] * 1e3


def _implementations(dropout: float) -> dict[str, Callable]:
    def jax_nn(q, k, v, mask, key):
        del key
        return jax.nn.dot_product_attention(q, k, v, mask=mask[:, None, None, :])

    ours = {"xla": materialised_attention, "chunked": chunked_attention}
    deterministic = {name: _without_key(attend) for name, attend in ours.items()}
    with_dropout = {
        f"{name}, dropout {dropout:g}": functools.partial(_with_key, attend, dropout)
        for name, attend in ours.items()
    }
    reference = {"plain": _without_key(standard_attention)}
    return deterministic | with_dropout | reference | {"jax.nn, xla": jax_nn}


def _without_key(attend: Callable) -> Callable:
    return lambda q, k, v, mask, key: attend(q, k, v, mask)


def _with_key(attend: Callable, dropout: float, q, k, v, mask, key):
    return attend(q, k, v, mask, dropout=dropout, key=key)


def _gradients(attend: Callable) -> Callable:
    def loss(q, k, v, mask, key):
        return jnp.sum(jnp.square(attend(q, k, v, mask, key)))

    return jax.grad(loss, argnums=(0, 1, 2))


if __name__ == "__main__":
    run(main, out_of_memory="shorter --lengths or a smaller --batch need less")
