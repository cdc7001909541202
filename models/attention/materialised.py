"""Exact attention, implementation `xla`: all scores in memory, with a hand-written gradient.

    w = softmax(q k^T / sqrt(head_dim))    kept = dropout(w)    out = kept v
    d_kept = g v^T                         ds = kept d_kept - w (g . out)
    dq = ds k    dk = ds^T q    dv = kept^T g

Since g . out, one number per query, is the sum over keys of kept d_kept, the backward pass sums no
rows of scores, even with dropout. Products that contract queries are computed as g^T kept and
q^T ds, for which XLA on a CPU transposes no matrix of scores. On one CPU core, forward and backward
take a third of the time of the plain form, `models.attention.standard.standard_attention`, for one
sequence and nine tenths for four together, in half to two thirds of its memory, or as much memory
for four with dropout (`python -m benchmarks.standard_memory`).

Time and memory O(length^2). Reverse mode only (`jax.custom_vjp`): no `jax.jvp`, no second
derivatives.
"""

import functools
import math

import jax
import jax.numpy as jnp

from models.attention.blocks import swap_heads, wide_einsum
from models.attention.contract import Heads, Mask
from models.attention.padding import zeroed
from models.dropout import keep_probability, keep_weights, weight_seeds
from models.dtypes import accumulation_dtype


def materialised_attention(
    q: Heads, k: Heads, v: Heads, mask: Mask, *, dropout: float = 0.0, key: jax.Array | None = None
) -> Heads:
    """Compute `models.attention.standard.standard_attention`, with the same dropout masks."""
    dtype = accumulation_dtype(q.dtype)
    seeds = weight_seeds(key, k.shape[:3]) if key is not None and dropout > 0 else None
    q, k, v = (swap_heads(x) for x in (q, zeroed(k, mask), zeroed(v, mask)))
    # Without any real key all weights are equal, and all values are 0.
    bias = jnp.where(mask, 0, jnp.finfo(dtype).min / 2).astype(dtype)[:, None, None, :]
    return swap_heads(_attention(q, k, v, bias, seeds, dropout)).astype(q.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attention(q, k, v, bias, seeds, dropout):
    """Attend head-major; `out` is not rounded yet, and without seeds nothing is dropped."""
    return _forward(q, k, v, bias, seeds, dropout)[0]


def _forward(q, k, v, bias, seeds, dropout):
    weights = jax.nn.softmax(
        wide_einsum("bhld,bhmd->bhlm", q, k) * (1 / math.sqrt(q.shape[-1])) + bias
    )
    kept = weights
    if seeds is not None:
        keep = keep_weights(seeds, jnp.arange(q.shape[2], dtype=jnp.int32), dropout)
        kept = jnp.where(jnp.swapaxes(keep, 2, 3), weights * (1 / keep_probability(dropout)), 0)
    kept = kept.astype(v.dtype)
    out = wide_einsum("bhlm,bhmd->bhld", kept, v)
    return out, (q, k, v, weights, kept, out)


def _backward(_, saved, g):
    q, k, v, weights, kept, out = saved
    mean = jnp.sum(g * out, axis=-1, keepdims=True)
    g = g.astype(v.dtype)
    ds = kept.astype(weights.dtype) * wide_einsum("bhld,bhmd->bhlm", g, v) - weights * mean
    ds = (ds * (1 / math.sqrt(q.shape[-1]))).astype(q.dtype)
    dq = wide_einsum("bhlm,bhmd->bhld", ds, k).astype(q.dtype)
    # Without the barrier XLA swaps the factors and then transposes the matrix of scores.
    dk, dv = jax.lax.optimization_barrier(
        (wide_einsum("bhld,bhlm->bhdm", q, ds), wide_einsum("bhld,bhlm->bhdm", g, kept))
    )
    dk, dv = (jnp.swapaxes(x, 2, 3) for x in (dk, dv))
    return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None


_attention.defvjp(_forward, _backward)
