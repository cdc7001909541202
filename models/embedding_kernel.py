"""Embeddings of tokens and positions with dropout, and the gradient of both in one GPU kernel.

    x_bi = dropout(token[ids_bi] + position_i)
    d_token_v = sum over b, i with ids_bi = v of d_bi        d_position_i = sum_b d_bi

with d the gradient of the sum inside dropout. XLA writes d, the one-hot matrix of the ids and other
intermediates to memory; here a program takes some positions of some examples and multiplies by
one-hot matrices that it makes from the ids. Each program writes its share of the sums, which XLA
adds up: no addition is atomic.

The gradients are float32 sums of values in the dtype of the activations, as in `models.embedding`.
The kernel is Pallas's, compiled by Triton, with the limits of `models.attention.flash`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, UInt32

from models import kernel_math
from models.dropout import dropped
from models.kernel_choice import LEAST_SIDE, ROWS

# Chosen with `python -m benchmarks.gpu_kernels --kernels=embed`.
_WARPS = 8
_PROGRAMS = 132  # approximate number, one per multiprocessor of an H100


class _Options(NamedTuple):
    vocabulary: int
    dropout: float
    dtype: DTypeLike
    interpret: bool


def embed(
    token: Float[Array, "vocabulary dim"],
    position: Float[Array, "length dim"] | None,
    ids: Int[Array, "batch length"],
    *,
    dropout: float,
    seeds: UInt32[Array, "batch length"] | None,
    dtype: DTypeLike,
    interpret: bool = False,
) -> Float[Array, "batch length dim"]:
    """Embed tokens and positions, with dropout.

    Args:
        token, position: Tables in float32, as their gradients are; position None: no positions.
        ids: Token ids within the table; their length is a multiple of `kernel_choice.ROWS`.
        dropout: Probability of dropping an entry.
        seeds: Row seeds of the dropout mask (`models.dropout.row_seeds`); None: nothing is dropped.
        dtype: Dtype of the activations.
        interpret: Whether to run the kernel as JAX operations, on any device, slowly.

    Raises:
        ValueError: Another length.
    """
    if ids.shape[1] % ROWS:
        raise ValueError(f"{ids.shape[1]} positions, which are no multiple of {ROWS}")
    options = _Options(len(token), dropout if seeds is not None else 0.0, dtype, interpret)
    return _embed(token, position, ids, seeds, options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _embed(token, position, ids, seeds, options):
    x = jnp.take(token, ids, axis=0, mode="clip")
    x = x if position is None else x + position[None]
    x = x.astype(options.dtype)
    return x if seeds is None else dropped(x, options.dropout, seeds)


def _forward(token, position, ids, seeds, options):
    return _embed(token, position, ids, seeds, options), (position is None, ids, seeds)


def _backward(options, saved, d):
    no_positions, ids, seeds = saved
    batch, length, dim = d.shape
    blocks = length // ROWS
    examples = max(1, batch * blocks // _PROGRAMS)
    groups = -(-batch // examples)
    parts = _powers_of_two(options.vocabulary)
    shapes = [(groups, blocks, part, dim) for part in parts]
    shapes += [] if no_positions else [(groups, blocks, ROWS, dim)]
    sums = pl.pallas_call(
        functools.partial(
            _gradients, examples=examples, dropout=options.dropout, ranges=len(parts)
        ),
        grid=(blocks, groups),
        in_specs=[_block_spec(x) for x in (d, ids, seeds)],
        out_specs=[
            pl.BlockSpec((None, None, *shape[2:]), lambda i, group: (group, i, 0, 0))
            for shape in shapes
        ],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        interpret=options.interpret,
        name="embedding_gradients",
    )(d, ids, seeds)
    token = jnp.concatenate([jnp.sum(x, axis=(0, 1)) for x in sums[: len(parts)]])
    token = token[: options.vocabulary]
    position = None if no_positions else jnp.sum(sums[-1], axis=0).reshape(length, dim)
    return token, position, None, None


_embed.defvjp(_forward, _backward)


def _powers_of_two(number):
    """Return few powers of two, as Triton requires, that add up to `number` or slightly more."""
    parts = []
    while number > 0:
        part = 1 << (number.bit_length() - 1)
        if part < number and number - part > part // 2:
            part *= 2
        parts.append(max(part, LEAST_SIDE))
        number -= parts[-1]
    return parts


def _block_spec(x):
    """Spec of a program's positions, for all examples."""
    if x is None:
        return None
    shape = (len(x), ROWS, *x.shape[2:])
    return pl.BlockSpec(shape, lambda i, group: (0, i, *(0 for _ in x.shape[2:])))


def _gradients(d_ref, ids_ref, seeds_ref, *refs, examples, dropout, ranges):
    """Write the sums over some examples for each of `ranges` ranges of ids.

    Also writes those for positions, if there is a reference for them.
    """
    first = pl.program_id(1) * examples

    def example(number, sums):
        d = d_ref[number]
        if seeds_ref is not None:
            d = kernel_math.dropped_in_kernel(d, dropout, seeds_ref[number]).astype(d.dtype)
        start, token_sums = 0, []
        for total in sums[:ranges]:
            range_ids = start + jnp.arange(len(total), dtype=jnp.int32)[None]
            one_hot = (ids_ref[number][:, None] == range_ids).astype(d.dtype)
            token_sums.append(total + kernel_math.product_over_rows(one_hot, d))
            start += len(total)
        return [*token_sums, *(total + d.astype(jnp.float32) for total in sums[ranges:])]

    start = [jnp.zeros(ref.shape, jnp.float32) for ref in refs]
    last = jnp.minimum(first + examples, d_ref.shape[0])
    for ref, total in zip(refs, jax.lax.fori_loop(first, last, example, start), strict=True):
        ref[...] = total
