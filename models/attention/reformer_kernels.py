"""Reformer's attention in three GPU kernels, on positions left in their order.

The same numbers as `models.attention.reformer_chunks` gives for sorted copies, but nothing is
copied or sorted except the positions: a program fetches the rows of its chunk, and of the one
before it in the ring, by their positions, and puts its results back by them. In a round every
position is in one chunk, so that no two programs write the same row: there are no atomic additions,
and results are deterministic.

The first kernel numbers the buckets. The second attends, round by round: a program per chunk and
head holds the chunk's scores in registers and writes its outputs o_r and their logarithmic
denominators z_r, whose combination over rounds is left to XLA:

    out_i = sum_r o_r(i) exp(z_r(i) - z_i)        z_i = log sum_r exp(z_r(i))

So out_i is the softmax over all that i sees in any round, as often as it sees it, and the backward
pass needs neither o_r nor z_r. With g the gradient of out and P_ij = exp(s_ij - z_i):

    ds_ij = P_ij (g_i . v_j - g_i . out_i),  0 where s_ij is a constant
    dq_i = sum_j ds_ij k_j      dk_j = sum_i ds_ij q_i      dv_j = sum_i P_ij g_i

The third kernel computes them for a chunk, whose rows are seen by its own queries and by those of
the chunk after it, and see its own keys and those of the chunk before it: three blocks of scores.
Each round's gradients are rounded to the inputs' format, and XLA adds them up.

Most programs find no padding and only chunks of one round, where a token stands once; they compute
no masks but that of the token itself. The others do in a loop over their blocks, and chunks of
padding are written as zeros, as far as no real token is near.

Where a token sees only itself, z_i is so large that it is rounded by up to 0.006, and the token's
dv by as much of itself. This takes a sequence of one token.

Time O(n H c D) for n positions, H rounds, chunks of c and width D; memory O(n H D). Sums are
float32. Reverse mode only (`jax.custom_vjp`).
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, UInt

from models.attention.blocks import padded_to
from models.attention.contract import Heads, Mask
from models.attention.reformer_programs import attend_backward, attend_chunk, number_buckets
from models.kernel_choice import LEAST_SIDE

_WARPS, _STAGES = 4, 1  # no loop is long enough for stages


def bucket_kernel(
    q: Heads,
    mask: Mask,
    rotations: Float[Array, "*batch heads head_dim hashes half_buckets"],
    factors: tuple[int, ...],
    *,
    padded: int,
    block: int,
    interpret: bool = False,
) -> UInt[Array, "batch heads hashes padded"]:
    """`bucket * padded + position` for each position, with the buckets of `lsh_buckets`.

    Args:
        q, mask, rotations, factors: see `models.attention.hashing.lsh_buckets`.
        padded: the length, completed with padding.
        block: the positions of a program, a power of two that divides `padded`.
        interpret: whether to run the kernel as JAX operations, on any device, slowly.
    """
    batch, _, heads, _ = q.shape
    hashes = rotations.shape[-2]
    ends = [sum(factor // 2 for factor in factors[: i + 1]) for i in range(len(factors))]
    parts = jnp.split(jnp.moveaxis(rotations, -2, -3), ends[:-1], axis=-1)
    parts = [_whole_block(x.astype(jnp.float32)) for x in parts]
    real = padded_to(mask.astype(jnp.int32), padded)

    def rotation(x: Array) -> pl.BlockSpec:
        if x.ndim == 4:
            return pl.BlockSpec((None, *x.shape[1:]), lambda i, head, b: (head, 0, 0, 0))
        return pl.BlockSpec((None, None, *x.shape[2:]), lambda i, head, b: (b, head, 0, 0, 0))

    return pl.pallas_call(
        functools.partial(number_buckets, factors=factors, padded=padded),
        grid=(padded // block, heads, batch),
        in_specs=[
            pl.BlockSpec((None, block), lambda i, head, b: (b, i)),
            _rows_of(q),
            *map(rotation, parts),
        ],
        out_specs=pl.BlockSpec((None, None, hashes, block), lambda i, head, b: (b, head, 0, i)),
        out_shape=jax.ShapeDtypeStruct((batch, heads, hashes, padded), jnp.uint32),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
    )(real, q, *parts)


def _whole_block(x: Array) -> Array:
    """Completes the last axis with columns of 0, whose products are the first largest nowhere."""
    size = max(LEAST_SIDE, pl.next_power_of_2(x.shape[-1]))
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])


class _Options(NamedTuple):
    chunk_length: int
    interpret: bool


def chunk_attention(
    q: Heads,
    v: Heads,
    order: Int[Array, "batch heads hashes padded"],
    count: Int[Array, " batch"],
    *,
    chunk_length: int,
    interpret: bool = False,
) -> Heads:
    """Attention of every chunk to itself and to the chunk before it, its rounds combined.

    Args:
        q, v: see `models.attention.contract`; what they hold at padding is not used.
        order: the sorted positions of each round; those from the length on are padding.
        count: the number of real tokens, which are the first in every round.
        chunk_length: a power of two that divides `padded`.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.
    """
    return _attention(q, v, order, count[:, None], _Options(chunk_length, interpret))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(q, v, order, count, options):
    return _forward(q, v, order, count, options)[0]


def _forward(q, v, order, count, options):
    length = q.shape[1]
    out, total = _call(
        functools.partial(attend_chunk, size=options.chunk_length),
        [order, count, q, v],
        [(q.shape[3:], q.dtype), ((), jnp.float32)],
        options,
    )
    out, total = out[:, :, :length], total[:, :, :length]
    peak = jnp.max(total, axis=1)
    shares = jnp.exp2(total - peak[:, None])
    sums = jnp.sum(shares, axis=1)
    weighed = jnp.sum(shares[..., None] * out.astype(jnp.float32), axis=1)
    out = (weighed / sums[..., None]).astype(q.dtype)
    return out, (q, v, order, count, out, peak + jnp.log2(sums))


def _backward(options, saved, g):
    q, v, order, count, out, total = saved
    gradients = _call(
        functools.partial(attend_backward, size=options.chunk_length),
        [order, count, q, v, g, out, total],
        [(x.shape[3:], x.dtype) for x in (q, v)],
        options,
    )
    dq, dv = (jnp.sum(x[:, :, : q.shape[1]], axis=1, dtype=jnp.float32) for x in gradients)
    # XLA would keep the sums in float32, since the gradient of a bias sums them up again.
    dq, dv = jax.lax.optimization_barrier((dq.astype(q.dtype), dv.astype(v.dtype)))
    return dq, dv, None, None


_attention.defvjp(_forward, _backward)


def _call(kernel: Any, inputs: Sequence[Array], outputs: Sequence[tuple], options: _Options):
    """Runs a program for each chunk of every round, head and example.

    Args:
        inputs: `order`, `count` and arrays [batch, length, heads(, head_dim)]; a program gets all
            positions of its head.
        outputs: the shape of a position's entry, and the dtype, of arrays
            [batch, hashes, padded, heads, ...]; a program gets all positions of its head and round.
    """
    order, count, *rows = inputs
    batch, heads, hashes, padded = order.shape
    flat = order.reshape(batch, heads, -1)

    def of_round(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, None, padded, None, *shape),
            lambda i, number, head, b: (b, number, 0, head, *(0 for _ in shape)),
        )

    return pl.pallas_call(
        kernel,
        # Programs of a head come one after the other: they share what they read.
        grid=(padded // options.chunk_length, hashes, heads, batch),
        in_specs=[
            pl.BlockSpec((None, None, flat.shape[2]), lambda i, number, head, b: (b, head, 0)),
            pl.BlockSpec((None, 1), lambda i, number, head, b: (b, 0)),
            *map(_rows_of, rows),
        ],
        out_specs=[of_round(shape) for shape, _ in outputs],
        out_shape=[
            jax.ShapeDtypeStruct((batch, hashes, padded, heads, *shape), dtype)
            for shape, dtype in outputs
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=options.interpret,
    )(flat, count, *rows)


def _rows_of(x: Array) -> pl.BlockSpec:
    """All positions of a program's head and example, of [batch, length, heads(, head_dim)]."""
    shape = (None, x.shape[1], None, *x.shape[3:])

    def index(*of: Any) -> tuple:
        *_, head, example = of
        return (example, 0, head, *(0 for _ in x.shape[3:]))

    return pl.BlockSpec(shape, index)
