"""What the programs of the three kernels of `models.attention.flash` compute.

References are of a program's own block, or of all positions of its head and example, of which it
goes through a block at a time. `counts`: of queries (None: all) and of keys that are real.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from models.dropout import WEIGHTS_APART, keep_entries, keep_probability, seeds_from
from models.kernel_math import product


def flash_forward(*refs, keys, dropout):
    """The output of a block of queries, and its log of the sum of exponentials, to base 2."""
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
    # Of a query without keys, or whose block was left out, all weights are 0 in what follows.
    logsumexp_ref[...] = jnp.where(total > 0, peak + jnp.log2(safe_total), jnp.inf)


def flash_dk_dv(*refs, queries, dropout):
    """The gradients of a block of keys and values."""
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
    of_queries, of_keys = counts
    blocks = q_ref.shape[0] // queries if of_queries is None else _blocks(of_queries, queries)
    blocks = blocks * _is_before(_blocks(of_keys, len(k)))
    dk, dv = jax.lax.fori_loop(0, blocks, query_block, start)
    factor = 1 / keep_probability(dropout)
    dk_ref[...] = (dk * (factor / math.sqrt(k.shape[1]))).astype(dk_ref.dtype)
    dv_ref[...] = (dv * factor).astype(dv_ref.dtype)


def flash_dq(*refs, keys, dropout):
    """The gradient of a block of queries."""
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
    """Blocks up to the last real position."""
    return jax.lax.div(count[0] + jnp.int32(size - 1), jnp.int32(size))


def _key_blocks(counts, queries, keys):
    """The blocks of keys that a program of a block of queries goes through."""
    of_queries, of_keys = counts
    blocks = _blocks(of_keys, keys)
    if of_queries is None:
        return blocks
    return blocks * _is_before(_blocks(of_queries, queries))


def _is_before(end):
    """Whether this program's block is, as 1 or 0: a bool would make no bound of Triton's loops."""
    return jnp.clip(end - pl.program_id(0), 0, 1)


def _scores(left, right, bias):
    """To base 2, which is what exponentials and logarithms are computed to."""
    return product(left, right, 1) * (math.log2(math.e) / math.sqrt(left.shape[1])) + bias


def _row(ref, at):
    return None if ref is None else ref[at][None]


def _kept(p, seeds, first, axis, dropout):
    """The weights of keys with these seeds, 0 where dropped; queries, from `first`, are on `axis`.

    Numbered from 0, two queries that share a number are known to do so when this is compiled.
    """
    if seeds is None:
        return p
    queries = jnp.expand_dims(jnp.arange(p.shape[axis], dtype=jnp.int32), 1 - axis)
    keep = keep_entries(seeds_from(seeds, first), queries, dropout, WEIGHTS_APART)
    return jnp.where(keep, p, 0)
