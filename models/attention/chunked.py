"""Exact attention block by block, in memory linear in the length, on any backend.

    out_i = sum_j softmax_j(q_i . k_j / sqrt(head_dim)) v_j          over the real positions j

computed for one block of queries and one block of keys at a time. Forward, each query keeps the
largest score so far, the sum of exponentials and the weighted sum of values, rescaled whenever
the largest grows (online softmax, arXiv 1805.02867; blocks and recomputation as in arXiv
2112.05682 and 2205.14135). Only the output and each query's logsumexp are saved; the backward pass
recomputes the blocks of probabilities:

    p_ij = exp(s_ij - logsumexp_i)        dp_ij = g_i . v_j
    ds_ij = p_ij (dp_ij - g_i . out_i)    dq_i = sum_j ds_ij k_j    dk_j = sum_i ds_ij q_i
    dv_j = sum_i p_ij g_i

The numbers of keys and queries may differ: low-rank methods use the same code to attend to, or
from, a few positions that stand for many. Those few may have a wider dtype than the sequence, whose
blocks are then cast to it one by one.

Blocks of scores are stored keys by queries. Each of the seven products then contracts the last axis
of its first factor or multiplies a small factor by a block: none transposes a block of scores,
which on a CPU makes a product 2 to 5 times slower. Per-query values are broadcast along rows. Heads
are moved before positions, and padding is masked, block by block: on whole sequences each would be
another pass through memory.

On a CPU, blocks after the last real query or key of all examples are skipped.

Time O(queries keys head_dim), with five products of blocks backward instead of four; memory
O((queries + keys) head_dim) plus one block of scores. Both passes compute a block's dropout mask
from a seed per key and the indices of the queries, so no mask is stored either, and it does not
depend on the size of blocks (`models.dropout`).

Reverse mode only (`jax.custom_vjp`): no `jax.jvp`, no second derivatives.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models.attention.blocks import (
    Blocks,
    add_to_block,
    even_size,
    read_block,
    restored,
    row_sums,
    stored,
    swap_heads,
    tile_bytes,
    used_blocks,
    wide_einsum,
    write_block,
)
from models.attention.padding import padded
from models.dropout import keep_probability, keep_weights, weight_seeds
from models.dtypes import accumulation_dtype, common_dtype
from models.machine import Machine, heads_on_a_device, this_machine

# Sizes per head. Forward and backward with dropout, 2 heads of 32: on one CPU core none of eight
# shapes with 128 to 512 queries and 256 to 2,048 keys beat 256 x 512 by 2 %; on two cores 256 x 512
# takes 0.8 of the time of 512 x 256, and 256 x 1,024 takes 0.95 of that of 256 x 512, in twice the
# memory. With few queries or keys, such as 64 landmarks or 256 projections, blocks of 256 of the
# others instead of 512 or 2,048 took 0.9 to 1.07 of the time and, at up to 1,024 positions, need an
# eighth to a quarter less memory. With 64 heads in the batch, as in a training step of ListOps,
# they take 8 % longer: so they are used for up to 16 heads.
_CPU_QUERIES, _CPU_SCORES = 256, 2**17
_CPU_FEW, _FEW_HEADS = 256, 16
_QUERIES, _MIN_SCORES = 2048, 2**14
# On a TPU, blocks of about 64 MiB have as many queries as fit beside 128 keys. They stay in the
# vector memory of a v5e or v6e (128 MiB); for others, with 16 to 64 MiB, they were not chosen. By
# XLA's estimates for a v5e (`python -m benchmarks.tpu_programs --attentions=standard`), a training
# step of Image takes 83 ms with blocks of 256 x 128, 102 with 1,024 x 128 in main memory and 114
# with 1,024 x 32; one of ListOps 24 ms with 2,048 x 128, 27 with 512 x 512 and 39 with 2,048 x 512
# in main memory. No TPU has run it.
_TPU_KEYS, _TPU_SCORES = 128, 2**24


def blocks_of(queries: int, keys: int, *, heads: int, machine: Machine) -> Blocks:
    """Return the size of equal blocks that cover the queries and keys with little padding.

    Args:
        queries, keys: Numbers of queries and keys of each head.
        heads: Number of heads in the whole batch. Axes added by `vmap`, and devices that share the
            batch, count on TPUs only (`machine.copies_on_a_device`).
        machine: Machine that computes.
    """
    if machine.backend == "cpu":
        if min(queries, keys) <= _CPU_FEW and heads <= _FEW_HEADS:
            return Blocks(even_size(queries, _CPU_FEW), even_size(keys, _CPU_FEW))
        largest, scores = _CPU_QUERIES, _CPU_SCORES
    elif machine.backend == "tpu":
        scores = max(_TPU_SCORES // heads_on_a_device(heads), _MIN_SCORES)
        largest = min(scores // _TPU_KEYS, _QUERIES)
    else:
        largest, scores = _QUERIES, max(tile_bytes(machine) // (4 * heads), _MIN_SCORES)
    size = even_size(queries, largest)
    return Blocks(size, even_size(keys, scores // size))


def chunked_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"],
    *,
    query_mask: Bool[Array, "batch queries"] | None = None,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    blocks: Blocks | None = None,
) -> Float[Array, "batch queries heads head_dim"]:
    """Compute softmax attention in O(length) memory, forward and backward.

    Args:
        q, k, v: See `models.attention.contract`; lengths may be unequal. Different dtypes are
            promoted to the widest; the output has that of q.
        mask: Which keys are real.
        query_mask: Which queries are real; None: all. The contents of the others reach no gradient,
            and their outputs are arbitrary.
        dropout: Probability of dropping an attention weight; the others are scaled up.
        key: PRNG key of the dropout masks; None: no dropout.
        blocks: Size of a block; None: that of `blocks_of`.
    """
    batch, queries, heads, _ = q.shape
    keys = k.shape[1]
    if blocks is None:
        blocks = blocks_of(queries, keys, heads=batch * heads, machine=this_machine())
    query_mask = jnp.ones(q.shape[:2], bool) if query_mask is None else query_mask
    q, query_mask = (padded(x, blocks.queries) for x in (q, query_mask))
    k, v, mask = (padded(x, blocks.keys) for x in (k, v, mask))
    seeds = None
    if key is not None and dropout > 0:
        seeds = padded(weight_seeds(key, (batch, keys, heads)), blocks.keys)
    return _attention(q, k, v, query_mask, mask, seeds, dropout, blocks)[:, :queries]


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def _attention(q, k, v, query_mask, mask, seeds, dropout, blocks):
    """`chunked_attention` for lengths that are multiples of the block sizes."""
    return _forward(q, k, v, query_mask, mask, seeds, dropout, blocks)[0]


def _forward(q, k, v, query_mask, mask, seeds, dropout, blocks):
    """Return the output and the residuals of the backward pass."""
    batch, length, heads, head_dim = q.shape
    common, dtype = _dtypes(q, k, v)
    rows, columns = _used_rows_and_columns(query_mask, mask, blocks)
    empty = stored(jnp.zeros(q.shape, q.dtype)), jnp.zeros((batch, heads, 1, length), dtype)
    stored_q, stored_k, stored_v = (stored(x) for x in (q, k, v))
    row_shape = (batch, heads, 1, blocks.queries)

    def query_block(row, outputs):
        out, logsumexp = outputs
        q_block = _queries(stored_q, query_mask, row, blocks, common)

        def key_block(column, state):
            peak, total, weighted = state
            k_block, v_block, bias = _keys(stored_k, stored_v, mask, column, blocks, common)
            scores = _scores(k_block, q_block, bias)
            new_peak = jnp.maximum(peak, jnp.max(scores, axis=2, keepdims=True))
            shrink = jnp.exp(peak - new_peak)
            p = jnp.exp(scores - new_peak)
            total = total * shrink + jnp.sum(p, axis=2, keepdims=True)
            if seeds is not None:
                p = jnp.where(_keep(seeds, row, column, blocks, dropout), p, 0)
            weighted = weighted * shrink
            weighted += wide_einsum("bhkd,bhkq->bhdq", v_block, p.astype(common))
            return new_peak, total, weighted

        start = (
            jnp.full(row_shape, jnp.finfo(dtype).min, dtype),
            jnp.zeros(row_shape, dtype),
            jnp.zeros((batch, heads, head_dim, blocks.queries), dtype),
        )
        peak, total, weighted = jax.lax.fori_loop(0, columns, key_block, start)
        safe_total = jnp.where(total > 0, total, 1)
        keep_rate = 1 if seeds is None else keep_probability(dropout)
        weighted = weighted / (safe_total * keep_rate)
        out = write_block(out, _token_major(weighted), row, axis=1)
        block_logsumexp = jnp.where(total > 0, peak + jnp.log(safe_total), 0)
        return out, write_block(logsumexp, block_logsumexp, row, axis=3)

    out, logsumexp = jax.lax.fori_loop(0, rows, query_block, empty)
    out = restored(out)
    return out, (q, k, v, query_mask, mask, seeds, out, logsumexp)


def _backward(dropout, blocks, saved, g):
    q, k, v, query_mask, mask, seeds, out, logsumexp = saved
    common, dtype = _dtypes(q, k, v)
    batch, length, heads, head_dim = q.shape
    scale = 1 / math.sqrt(head_dim)
    rows, columns = _used_rows_and_columns(query_mask, mask, blocks)
    # With a single row of blocks, dk and dv are written only once and need no wider dtype for sums.
    sums = [x.dtype if length == blocks.queries else dtype for x in (k, v)]
    dtypes = (q.dtype, *sums)
    zeros = [jnp.zeros(x.shape, x_dtype) for x, x_dtype in zip((q, k, v), dtypes, strict=True)]
    q, k, v, g, out = (stored(x) for x in (q, k, v, g, out))

    def query_block(row, gradients):
        dq, dk, dv = gradients
        q_block, g_block, out_block = (
            _queries(x, query_mask, row, blocks, common) for x in (q, g, out)
        )
        logsumexp_row = read_block(logsumexp, row, blocks.queries, axis=3)
        # Also with dropout, g . out is the mean of dp under p, since both contain the same mask.
        mean_dp_row = row_sums(g_block.astype(dtype) * out_block.astype(dtype))

        def key_block(column, state):
            dq_block, dk, dv = state
            k_block, v_block, bias = _keys(k, v, mask, column, blocks, common)
            p = jnp.exp(_scores(k_block, q_block, bias) - logsumexp_row)
            dp = wide_einsum("bhkd,bhqd->bhkq", v_block, g_block)
            kept = p
            if seeds is not None:
                keep = _keep(seeds, row, column, blocks, dropout)
                inverse = 1 / keep_probability(dropout)
                kept, dp = jnp.where(keep, p * inverse, 0), jnp.where(keep, dp * inverse, 0)
            ds = (p * (dp - mean_dp_row) * scale).astype(common)
            kept = kept.astype(common)
            dq_block += wide_einsum("bhkd,bhkq->bhdq", k_block, ds)
            dk_block = swap_heads(wide_einsum("bhkq,bhqd->bhkd", ds, q_block))
            dv_block = swap_heads(wide_einsum("bhkq,bhqd->bhkd", kept, g_block))
            dk = add_to_block(dk, dk_block, column, axis=1)
            dv = add_to_block(dv, dv_block, column, axis=1)
            return dq_block, dk, dv

        start = jnp.zeros((batch, heads, head_dim, blocks.queries), dtype)
        dq_block, dk, dv = jax.lax.fori_loop(0, columns, key_block, (start, dk, dv))
        return write_block(dq, _token_major(dq_block), row, axis=1), dk, dv

    gradients = jax.lax.fori_loop(0, rows, query_block, tuple(stored(x) for x in zeros))
    dq, dk, dv = (restored(x) for x in gradients)
    return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None, None


_attention.defvjp(_forward, _backward)


def _used_rows_and_columns(query_mask, mask, blocks):
    """Numbers of rows and columns of blocks that the loops visit."""
    return used_blocks(query_mask, blocks.queries), used_blocks(mask, blocks.keys)


def _dtypes(q, k, v):
    """Dtype of the factors of all products, and dtype of their sums."""
    common = common_dtype(q.dtype, k.dtype, v.dtype)
    return common, accumulation_dtype(common)


def _queries(x, mask, row, blocks, dtype):
    """A block of queries, or of other per-query rows, heads first and 0 at padding."""
    real = read_block(mask, row, blocks.queries, axis=1)[:, None, :, None]
    block = swap_heads(read_block(x, row, blocks.queries, axis=1)).astype(dtype)
    return jnp.where(real, block, 0)


def _keys(k, v, mask, column, blocks, dtype):
    """A block of keys and one of values, heads first and 0 at padding; the bias of its scores."""
    real = read_block(mask, column, blocks.keys, axis=1)[:, None, :, None]
    k, v = (swap_heads(read_block(x, column, blocks.keys, axis=1)).astype(dtype) for x in (k, v))
    bias = jnp.where(real, 0, jnp.asarray(-jnp.inf, accumulation_dtype(dtype)))
    return jnp.where(real, k, 0), jnp.where(real, v, 0), bias


def _keep(seeds, row, column, blocks, dropout):
    """Which weights of a block are kept, [batch, heads, keys, queries]."""
    seeds = read_block(seeds, column, blocks.keys, axis=1)
    queries = row * blocks.queries + jnp.arange(blocks.queries, dtype=jnp.int32)
    return keep_weights(seeds, queries, dropout)


def _token_major(x: Float[Array, "batch heads head_dim queries"]) -> Array:
    return jnp.transpose(x, (0, 3, 1, 2))


def _scores(k, q, bias):
    scale = 1 / math.sqrt(q.shape[-1])
    return wide_einsum("bhkd,bhqd->bhkq", k, q) * scale + bias
