"""Programs of the three kernels in `models.attention.flash`.

References cover a program's own block, or all positions of its head and example, through which it
goes a block at a time. `counts` are the numbers of queries (None: all) and of keys up to the last
real one.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from models.dropout import WEIGHTS_APART, keep_entries, keep_probability, seeds_from
from models.kernel_math import product


def flash_forward(*refs: jax.Ref | None, keys: int, dropout: float) -> None:
    """Write the output of a block of queries, and its logsumexp to base 2."""
    *counts, q_ref, k_ref, v_ref, bias_ref, seeds_ref, out_ref, logsumexp_ref = refs
    q = q_ref[...]
    first = pl.program_id(0) * len(q)

    def key_block(column, state):
        peak, total, weighted = state
        at = pl.ds(column * keys, keys)
        scores = _scores(q, k_ref[at, :], _row(bias_ref, at))
        new_peak = jnp.maximum(peak, jnp.max(scores, axis=1))
        shrink = jnp.exp2(peak - new_peak)
        p = jnp.exp2(scores - new_peak[:, None])
        total = total * shrink + jnp.sum(p, axis=1)
        kept = _kept(p, _row(seeds_ref, at), first, 0, dropout).astype(q.dtype)
        weighted = weighted * shrink[:, None] + product(kept, v_ref[at, :])
        return new_peak, total, weighted

    peak = jnp.full(q.shape[0], jnp.finfo(jnp.float32).min, jnp.float32)
    start = peak, jnp.zeros_like(peak), jnp.zeros(q.shape, jnp.float32)
    peak, total, weighted = jax.lax.fori_loop(
        0, _key_blocks(counts, len(q), keys), key_block, start
    )
    safe_total = jnp.where(total > 0, total, 1)
    weighted = weighted / (safe_total * keep_probability(dropout))[:, None]
    out_ref[...] = weighted.astype(out_ref.dtype)
    # inf makes all later weights 0 for a query without keys or in a block that was skipped.
    logsumexp_ref[...] = jnp.where(total > 0, peak + jnp.log2(safe_total), jnp.inf)


def flash_dk_dv(*refs: jax.Ref | None, queries: int, dropout: float) -> None:
    """Write the gradients of a block of keys and values."""
    *counts, k_ref, v_ref, bias_ref, seeds_ref = refs[:6]
    q_ref, g_ref, logsumexp_ref, mean_ref, dk_ref, dv_ref = refs[6:]
    k, v, bias = k_ref[...], v_ref[...], bias_ref[...][:, None]
    seeds = None if seeds_ref is None else seeds_ref[...][:, None]

    def query_block(row, state):
        dk, dv = state
        at = pl.ds(row * queries, queries)
        q, g = q_ref[at, :], g_ref[at, :]
        p = jnp.exp2(_scores(k, q, bias) - _row(logsumexp_ref, at))
        kept = _kept(p, seeds, row * queries, 1, dropout)
        ds = kept * product(v, g, 1) - p * _row(mean_ref, at)
        dk += product(ds.astype(q.dtype), q)
        return dk, dv + product(kept.astype(g.dtype), g)

    start = (jnp.zeros(k.shape, jnp.float32),) * 2
    query_count, key_count = counts
    blocks = q_ref.shape[0] // queries if query_count is None else _blocks(query_count, queries)
    blocks = blocks * _is_before(_blocks(key_count, len(k)))
    dk, dv = jax.lax.fori_loop(0, blocks, query_block, start)
    factor = 1 / keep_probability(dropout)
    dk_ref[...] = (dk * (factor / math.sqrt(k.shape[1]))).astype(dk_ref.dtype)
    dv_ref[...] = (dv * factor).astype(dv_ref.dtype)


def flash_dq(*refs: jax.Ref | None, keys: int, dropout: float) -> None:
    """Write the gradient of a block of queries."""
    *counts, k_ref, v_ref, bias_ref, seeds_ref = refs[:6]
    q_ref, g_ref, logsumexp_ref, mean_ref, dq_ref = refs[6:]
    q, g = q_ref[...], g_ref[...]
    logsumexp, mean_dp = logsumexp_ref[...][:, None], mean_ref[...][:, None]
    first = pl.program_id(0) * len(q)

    def key_block(column, dq):
        at = pl.ds(column * keys, keys)
        k, v = k_ref[at, :], v_ref[at, :]
        p = jnp.exp2(_scores(q, k, _row(bias_ref, at)) - logsumexp)
        kept = _kept(p, _row(seeds_ref, at), first, 0, dropout)
        ds = kept * product(g, v, 1) - p * mean_dp
        return dq + product(ds.astype(k.dtype), k)

    start = jnp.zeros(q.shape, jnp.float32)
    dq = jax.lax.fori_loop(0, _key_blocks(counts, len(q), keys), key_block, start)
    factor = 1 / (keep_probability(dropout) * math.sqrt(q.shape[1]))
    dq_ref[...] = (dq * factor).astype(dq_ref.dtype)


def _blocks(count, size):
    """Number of blocks up to the last real position."""
    return jax.lax.div(count[0] + jnp.int32(size - 1), jnp.int32(size))


def _key_blocks(counts, queries, keys):
    """Number of blocks of keys that a program of a block of queries goes through."""
    query_count, key_count = counts
    blocks = _blocks(key_count, keys)
    if query_count is None:
        return blocks
    return blocks * _is_before(_blocks(query_count, queries))


def _is_before(end):
    """1 if this program's block is before `end`, else 0: Triton's loop bounds cannot be bools."""
    return jnp.clip(end - pl.program_id(0), 0, 1)


def _scores(left, right, bias):
    """Scores to base 2, to which exponentials and logarithms are computed."""
    return product(left, right, 1) * (math.log2(math.e) / math.sqrt(left.shape[1])) + bias


def _row(ref, at):
    return None if ref is None else ref[at][None]


def _kept(p, seeds, first, axis, dropout):
    """Weights of keys with these seeds, 0 where dropped; queries, from `first`, are on `axis`.

    Since queries are counted from 0 here, the compiler can see which two share a random number.
    """
    if seeds is None:
        return p
    queries = jnp.expand_dims(jnp.arange(p.shape[axis], dtype=jnp.int32), 1 - axis)
    keep = keep_entries(seeds_from(seeds, first), queries, dropout, WEIGHTS_APART)
    return jnp.where(keep, p, 0)
