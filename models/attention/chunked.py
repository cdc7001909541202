"""Exact attention block by block, in memory linear in the length, on any backend.

    out_i = sum_j softmax_j(q_i . k_j / sqrt(head_dim)) v_j          over the real positions j

computed for one block of queries and one block of keys at a time. Forward, each row keeps the
largest score so far, the sum of exponentials and the weighted sum of values, rescaled whenever
the largest grows (online softmax, arXiv 1805.02867; blocks and recomputation as in arXiv
2112.05682 and 2205.14135). Only the output and each row's log of the sum of exponentials are
saved; the backward pass computes the blocks of probabilities again:

    p_ij = exp(s_ij - logsumexp_i)        dp_ij = g_i . v_j
    ds_ij = p_ij (dp_ij - g_i . out_i)    dq_i = sum_j ds_ij k_j    dk_j = sum_i ds_ij q_i
    dv_j = sum_i p_ij g_i

Time O(length^2 head_dim), five products of blocks backward instead of four; memory
O(length head_dim) plus one block of scores. Dropout draws a block's mask from the key folded with
the block's number, in both passes, so no mask is stored either.

Reverse mode only (`jax.custom_vjp`): no `jax.jvp`, no second derivatives.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models.attention.contract import accumulation_dtype
from models.dropout import keep_mask, keep_probability

# Forward and backward on one and two CPU cores, batch 1 to 32, 2 heads of 32, length 1,024 to
# 4,096, blocks of 64 to 2,048 queries and 32 to 1,024 keys: rarely more than a fourth slower than
# the best of them. Many queries and few keys keep the threads busy and the block in the cache.
_MAX_QUERIES = 1024
_MAX_KEYS = 128
_MULTIPLE = 8


class Blocks(NamedTuple):
    """How many queries and keys a block of scores has."""

    queries: int
    keys: int


def blocks_of(length: int) -> Blocks:
    """The blocks for sequences of `length` positions: equal ones, with little padding."""
    return Blocks(_even_size(length, _MAX_QUERIES), _even_size(length, _MAX_KEYS))


def block_keep_mask(
    key: jax.Array, number: Any, shape: tuple[int, int, int, int], dropout: float
) -> Bool[Array, "batch heads queries keys"]:
    """The dropout mask of block `number`: row-major, rows are blocks of queries."""
    return keep_mask(jax.random.fold_in(key, number), shape, dropout)


def chunked_attention(
    q: Float[Array, "batch length heads head_dim"],
    k: Float[Array, "batch length heads head_dim"],
    v: Float[Array, "batch length heads head_dim"],
    mask: Bool[Array, "batch length"],
    *,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    blocks: Blocks | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Softmax attention over the real keys, in O(length) memory forward and backward.

    Args:
        q, k, v, mask: see `models.attention.contract`; any length, any mask.
        dropout: the probability of dropping an attention weight; the others grow accordingly.
        key: where dropout masks are drawn from; None: no dropout.
        blocks: sizes of a block; None: those of `blocks_of`.
    """
    real = mask[:, :, None, None]
    k, v = jnp.where(real, k, 0), jnp.where(real, v, 0)
    rate = 0.0 if key is None else dropout
    return _attention(q, k, v, mask, key, rate, blocks or blocks_of(q.shape[1]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _attention(q, k, v, mask, key, dropout, blocks):
    return _forward(q, k, v, mask, key, dropout, blocks)[0]


def _attention_forward(q, k, v, mask, key, dropout, blocks):
    out, logsumexp = _forward(q, k, v, mask, key, dropout, blocks)
    return out, (q, k, v, mask, key, out, logsumexp)


def _attention_backward(dropout, blocks, saved, g):
    return (*_backward(dropout, blocks, saved, g), None, None)


_attention.defvjp(_attention_forward, _attention_backward)


def _forward(q, k, v, mask, key, dropout, blocks):
    """Returns the output and, by block of queries, the log of the sum of exponentials."""
    batch, length, heads, head_dim = q.shape
    dtype = accumulation_dtype(q.dtype)
    k, v, bias = _split(k, blocks.keys), _split(v, blocks.keys), _bias(mask, blocks.keys, dtype)
    columns = len(k)
    rows_shape = (batch, heads, blocks.queries)

    def query_block(inputs):
        row, q = inputs

        def key_block(carry, inputs):
            peak, total, out = carry
            column, k, v, bias = inputs
            scores = _scores(q, k, bias)
            new_peak = jnp.maximum(peak, jnp.max(scores, axis=-1))
            shrink = jnp.exp(peak - new_peak)
            p = jnp.exp(scores - new_peak[..., None])
            total = total * shrink + jnp.sum(p, axis=-1)
            if dropout:
                p = jnp.where(block_keep_mask(key, row * columns + column, p.shape, dropout), p, 0)
            out = out * shrink[..., None] + _product("bhqk,bhkd->bhqd", p.astype(v.dtype), v, dtype)
            return (new_peak, total, out), None

        start = (
            jnp.full(rows_shape, jnp.finfo(dtype).min, dtype),
            jnp.zeros(rows_shape, dtype),
            jnp.zeros((*rows_shape, head_dim), dtype),
        )
        (peak, total, out), _ = jax.lax.scan(key_block, start, (jnp.arange(columns), k, v, bias))
        safe_total = jnp.where(total > 0, total, 1)
        out = out / (safe_total * keep_probability(dropout))[..., None]
        return out, jnp.where(total > 0, peak + jnp.log(safe_total), 0)

    q_blocks = _split(q, blocks.queries)
    out, logsumexp = jax.lax.map(query_block, (jnp.arange(len(q_blocks)), q_blocks))
    return _join(out, length).astype(q.dtype), logsumexp


def _backward(dropout, blocks, saved, g):
    """Returns the gradients of q, k and v."""
    q, k, v, mask, key, out, logsumexp = saved
    length, dtype = q.shape[1], accumulation_dtype(q.dtype)
    scale = 1 / math.sqrt(q.shape[-1])
    # With dropout too: g . out is the mean of dp under p, since both hold the same mask.
    mean_dp = jnp.sum(g.astype(dtype) * out.astype(dtype), axis=-1, keepdims=True)
    mean_dp = _split(mean_dp, blocks.queries)[..., 0]
    q, g = _split(q, blocks.queries), _split(g, blocks.queries)
    k, v, bias = _split(k, blocks.keys), _split(v, blocks.keys), _bias(mask, blocks.keys, dtype)
    rows, columns = jnp.arange(len(q)), jnp.arange(len(k))

    def key_block(dq, inputs):
        column, k, v, bias = inputs

        def query_block(carry, inputs):
            dk, dv = carry
            row, q, g, logsumexp, mean_dp, dq = inputs
            p = jnp.exp(_scores(q, k, bias) - logsumexp[..., None])
            dp = _product("bhqd,bhkd->bhqk", g, v, dtype)
            kept = p
            if dropout:
                keep = block_keep_mask(key, row * len(columns) + column, p.shape, dropout)
                inverse = 1 / keep_probability(dropout)
                kept, dp = jnp.where(keep, p * inverse, 0), jnp.where(keep, dp * inverse, 0)
            ds = (p * (dp - mean_dp[..., None]) * scale).astype(q.dtype)
            dq = dq + _product("bhqk,bhkd->bhqd", ds, k, dtype)
            dk = dk + _product("bhqk,bhqd->bhkd", ds, q, dtype)
            dv = dv + _product("bhqk,bhqd->bhkd", kept.astype(g.dtype), g, dtype)
            return (dk, dv), dq

        start = (jnp.zeros(k.shape, dtype), jnp.zeros(v.shape, dtype))
        (dk, dv), dq = jax.lax.scan(query_block, start, (rows, q, g, logsumexp, mean_dp, dq))
        return dq, (dk, dv)

    dq, (dk, dv) = jax.lax.scan(key_block, jnp.zeros(q.shape, dtype), (columns, k, v, bias))
    return tuple(_join(x, length).astype(g.dtype) for x in (dq, dk, dv))


def _product(spec, a, b, dtype):
    return jnp.einsum(spec, a, b, preferred_element_type=dtype)


def _scores(q, k, bias):
    scale = 1 / math.sqrt(q.shape[-1])
    return _product("bhqd,bhkd->bhqk", q, k, bias.dtype) * scale + bias


def _bias(mask, size, dtype):
    """0 at real positions, minus infinity at others: [blocks, batch, 1, 1, size]."""
    bias = jnp.where(_split(mask[:, :, None, None], size), 0, -jnp.inf).astype(dtype)
    return jnp.swapaxes(bias, -1, -2)


def _split(x, size):
    """[batch, length, heads, width] to blocks [blocks, batch, heads, size, width], zero-padded."""
    batch, length, heads, width = x.shape
    count = -(-length // size)
    x = jnp.pad(x, ((0, 0), (0, count * size - length), (0, 0), (0, 0)))
    return x.reshape(batch, count, size, heads, width).transpose(1, 0, 3, 2, 4)


def _join(x, length):
    """The inverse of `_split`, without the padding."""
    count, batch, heads, size, width = x.shape
    return x.transpose(1, 0, 3, 2, 4).reshape(batch, count * size, heads, width)[:, :length]


def _even_size(length, largest):
    count = -(-length // largest)
    size = -(-length // count)
    return -(-size // _MULTIPLE) * _MULTIPLE
