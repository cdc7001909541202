"""Reformer's attention in three GPU kernels, without sorted copies of queries and values.

The results are those of `models.attention.reformer_chunks` for sorted copies, but only positions
are sorted: a program gathers the rows of its chunk, and of the previous one in the ring, by their
positions, and scatters its results back. In a round every position is in one chunk, so no two
programs write the same row: there are no atomic additions, and results are deterministic.

The first kernel computes the buckets. The second attends, round by round: a program per chunk and
head holds the chunk's scores in registers and writes its outputs o_r and the logarithms z_r of
their denominators. XLA combines the rounds:

    out_i = sum_r o_r(i) exp(z_r(i) - z_i)        z_i = log sum_r exp(z_r(i))

So out_i is the softmax over all keys that i sees, each counted as often as it is seen, and the
backward pass needs neither o_r nor z_r. With g the gradient of out and P_ij = exp(s_ij - z_i):

    ds_ij = P_ij (g_i . v_j - g_i . out_i),  0 where s_ij is a constant
    dq_i = sum_j ds_ij k_j      dk_j = sum_i ds_ij q_i      dv_j = sum_i P_ij g_i

The third kernel computes these for a chunk, whose keys are seen by its own queries and by those of
the next chunk, and whose queries see its own keys and those of the previous chunk: three blocks of
scores. Each round's gradients are rounded to the inputs' dtype, and XLA adds them up.

Most programs meet no padding and only chunks of one round, in which a token occurs once; their only
mask is that of the token itself. The others compute all masks, in a loop over their blocks, except
that chunks of padding far from any real token are written as zeros.

Where a token sees only itself, z_i is so large that it is rounded by up to 0.006, which changes the
token's dv by the same fraction. This happens only in a sequence of one token.

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

from models.attention.contract import Heads, Mask
from models.attention.hashing import split_columns
from models.attention.padding import padded_to
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
    """Return sort keys `bucket * padded + position`, with the buckets of `lsh_buckets`.

    Args:
        q, mask, rotations, factors: See `models.attention.hashing.lsh_buckets`.
        padded: Length including padding.
        block: Number of positions per program, a power of two that divides `padded`.
        interpret: Whether to run the kernel as JAX operations, on any device, slowly.
    """
    batch, _, heads, _ = q.shape
    hashes = rotations.shape[-2]
    by_round = jnp.moveaxis(rotations.astype(jnp.float32), -2, -3)
    parts = [_whole_block(x) for x in split_columns(by_round, factors)]
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
    """Pad the last axis with columns of 0, whose products are never the first largest."""
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
    """Attend from every chunk to itself and the previous chunk, and combine the rounds.

    Args:
        q, v: See `models.attention.contract`; their contents at padding are not used.
        order: Sorted positions of each round; those from the length on are padding.
        count: Number of real tokens, which come first in every round.
        chunk_length: Length of a chunk, a power of two that divides `padded`.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.
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
    weighted = jnp.sum(shares[..., None] * out.astype(jnp.float32), axis=1)
    out = (weighted / sums[..., None]).astype(q.dtype)
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
    # Without the barrier XLA would keep the sums in float32, since the gradient of a bias sums them
    # again.
    dq, dv = jax.lax.optimization_barrier((dq.astype(q.dtype), dv.astype(v.dtype)))
    return dq, dv, None, None


_attention.defvjp(_forward, _backward)


def _call(kernel: Any, inputs: Sequence[Array], outputs: Sequence[tuple], options: _Options):
    """Run a program for each chunk of every round, head and example.

    Args:
        inputs: `order`, `count` and arrays [batch, length, heads(, head_dim)]; a program gets all
            positions of its head.
        outputs: Shape per position and dtype of arrays [batch, hashes, padded, heads, ...]; a
            program gets all positions of its head and round.
    """
    order, count, *rows = inputs
    batch, heads, hashes, padded = order.shape
    flat = order.reshape(batch, heads, -1)

    def round_spec(shape: tuple[int, ...]) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, None, padded, None, *shape),
            lambda i, number, head, b: (b, number, 0, head, *(0 for _ in shape)),
        )

    return pl.pallas_call(
        kernel,
        # Programs of a head run one after the other, since they read the same arrays.
        grid=(padded // options.chunk_length, hashes, heads, batch),
        in_specs=[
            pl.BlockSpec((None, None, flat.shape[2]), lambda i, number, head, b: (b, head, 0)),
            pl.BlockSpec((None, 1), lambda i, number, head, b: (b, 0)),
            *map(_rows_of, rows),
        ],
        out_specs=[round_spec(shape) for shape, _ in outputs],
        out_shape=[
            jax.ShapeDtypeStruct((batch, hashes, padded, heads, *shape), dtype)
            for shape, dtype in outputs
        ],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=options.interpret,
    )(flat, count, *rows)


def _rows_of(x: Array) -> pl.BlockSpec:
    """Spec of all positions of a program's head in `x` [batch, length, heads(, head_dim)]."""
    shape = (None, x.shape[1], None, *x.shape[3:])

    def index(*grid_indices: Any) -> tuple:
        *_, head, example = grid_indices
        return (example, 0, head, *(0 for _ in x.shape[3:]))

    return pl.BlockSpec(shape, index)
