"""How long does Nyström's convolution take, compared with two common implementations?

    export GLIBC_TUNABLES=glibc.malloc.hugetlb=1                as in `speed_memory`
    python -m benchmarks.depthwise_convolution --lengths=1024,8192

Forward and backward pass of `models.attention.convolution` with each block size of --blocks, of
`lax.conv_general_dilated`, and of a sum of shifted products. Times are those of the fastest of
--runs runs, with all implementations taking turns.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks import turns
from lra.command_line import ArgumentParser, positive_integer, positive_integers, run
from lra.environment import check_jax
from models.attention.convolution import depthwise_convolution


def main(argv: list[str]) -> int:
    """Measure every length and print a table."""
    parser = ArgumentParser(prog="python -m benchmarks.depthwise_convolution", description=__doc__)
    add = parser.add_argument
    add("--lengths", type=positive_integers, default=[1024, 2048, 8192])
    add("--batch", type=positive_integer, default=4, help="sequences (%(default)s)")
    add("--heads", type=positive_integer, default=2, help="heads (%(default)s)")
    add("--head_dim", type=positive_integer, default=32, help="width of one (%(default)s)")
    add("--width", type=positive_integer, default=35, help="of the kernel (%(default)s)")
    add("--blocks", type=positive_integers, default=[64, 128], help="positions (%(default)s)")
    add("--runs", type=positive_integer, default=10, help="(%(default)s)")
    options = parser.parse_args(argv)
    check_jax()
    print(f"batch {options.batch}, {options.heads} heads of {options.head_dim}, float32")
    print(f"{'length':>6}  {'form':<24}{'time, ms':>10}{'relative':>10}")
    for length in options.lengths:
        shape = (options.batch, length, options.heads, options.head_dim)
        seconds = _measure(shape, options.width, options.blocks, options.runs)
        first = next(iter(seconds.values()))
        for name, time in seconds.items():
            print(f"{length:>6,}  {name:<24}{1e3 * time:>10.2f}{time / first:>10.2f}", flush=True)
    return 0


def forms(blocks: list[int]) -> dict[str, Callable]:
    """Return implementations of `depthwise_convolution(x, kernel)` by name, ours first."""
    ours = {
        f"blocks of {size}": functools.partial(depthwise_convolution, block=size) for size in blocks
    }
    return ours | {"lax.conv_general_dilated": _by_lax, "shifted products": _by_shifts}


def _by_lax(x: jax.Array, kernel: jax.Array) -> jax.Array:
    batch, length, heads, head_dim = x.shape
    width = kernel.shape[1]
    feature_kernels = jnp.repeat(kernel, head_dim, axis=0)  # all features of a head share one
    out = jax.lax.conv_general_dilated(
        x.reshape(batch, length, heads * head_dim),
        feature_kernels.T[:, None, :],
        window_strides=(1,),
        padding=[((width - 1) // 2, width // 2)],
        dimension_numbers=("NHC", "HIO", "NHC"),
        feature_group_count=heads * head_dim,
    )
    return out.reshape(x.shape)


def _by_shifts(x: jax.Array, kernel: jax.Array) -> jax.Array:
    length, width = x.shape[1], kernel.shape[1]
    padded = jnp.pad(x, ((0, 0), ((width - 1) // 2, width // 2), (0, 0), (0, 0)))
    out = jnp.zeros_like(x)
    for offset in range(width):
        shifted = jax.lax.slice_in_dim(padded, offset, offset + length, axis=1)
        out += kernel[None, None, :, offset, None] * shifted
    return out


def _measure(shape: tuple, width: int, blocks: list[int], runs: int) -> dict[str, float]:
    """Return seconds of one forward and backward pass by implementation."""
    x, cotangent = (jax.random.normal(jax.random.key(i), shape) for i in (0, 1))
    kernel = jax.random.normal(jax.random.key(2), (shape[2], width))

    def forward_backward(form: Callable, *arguments: jax.Array) -> tuple:
        out, vjp = jax.vjp(form, *arguments)
        return out, vjp(cotangent)

    programs = {
        name: jax.jit(functools.partial(forward_backward, form)).lower(x, kernel).compile()
        for name, form in forms(blocks).items()
    }
    return turns.fastest(programs, (x, kernel), runs)


if __name__ == "__main__":
    run(main, out_of_memory="shorter --lengths or a smaller --batch need less")
