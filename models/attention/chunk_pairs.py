"""Attention of every chunk to itself and to the chunk before it: Reformer's, once sorted.

    s_ij = q_i . k_j,   but -1e5 where i and j are the same position, lowest where j is padding
    out_i = sum_j exp(s_ij - z_i) v_j        z_i = log sum_j exp(s_ij)

A few pairs of chunks are computed at a time, in a loop. Only out and z are saved; the backward pass
makes the probabilities of each tile again, as in `models.attention.longformer`. With g and y the
gradients of out and z:

    ds_ij = p_ij (g_i . v_j - g_i . out_i + y_i),  0 where s_ij is a constant
    dq_i = sum_j ds_ij k_j      dk_j = sum_i ds_ij q_i      dv_j = sum_i p_ij g_i

The chunk before is a second set of keys and values, so the pairs do not touch each other.

Time O(n c D) and memory O(n D) for n positions in chunks of c, plus one tile: on a CPU what stays
in the cache, elsewhere as much as fits into 256 MiB. Reverse mode only (`jax.custom_vjp`).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.attention.blocks import product, read_block, tile_bytes, write_block
from models.attention.contract import accumulation_dtype

SELF_SCORE = -1e5
PADDING = -1  # the position given to keys that are padding


def attend_chunk_pairs(
    q: Float[Array, "batch heads chunks chunk head_dim"],
    k: Float[Array, "batch heads chunks chunk head_dim"],
    v: Float[Array, "batch heads chunks chunk head_dim"],
    positions: Int[Array, "batch heads chunks chunk"],
    key_positions: Int[Array, "batch heads chunks chunk"],
) -> tuple[
    Float[Array, "batch heads chunks chunk head_dim"], Float[Array, "batch heads chunks chunk"]
]:
    """Attention within each head's ring of chunks, where the last precedes the first.

    Args:
        q, k, v: 0 at padding.
        positions: of the queries in their sequence.
        key_positions: the same, but `PADDING` at padding.

    Returns:
        The outputs, and the logarithms of their denominators; both in at least float32.
    """
    batch, heads, chunks, size, _ = q.shape
    number = heads * chunks
    tile = _tile(number, batch * size * 2 * size * accumulation_dtype(q.dtype).itemsize)

    def flat(x: Array) -> Array:
        return x.reshape(batch, number, *x.shape[3:])

    keys = (k, v, key_positions)
    before = (jnp.roll(x, 1, axis=2) for x in keys)
    arrays = [flat(x) for x in (q, positions, *keys, *before)]
    out, logsumexp = _attention(*arrays, tile)
    return out.reshape(*q.shape[:4], -1), logsumexp.reshape(q.shape[:4])


def _tile(number: int, chunk_bytes: int) -> int:
    """How many chunks a step of the loops computes, a divisor of their number."""
    fitting = max(1, tile_bytes(jax.default_backend()) // chunk_bytes)
    return max(n for n in range(1, min(number, fitting) + 1) if number % n == 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(8,))
def _attention(q, positions, k, v, key_positions, k_before, v_before, key_positions_before, tile):
    """Of [batch, chunks, chunk, ...]."""
    arrays = (q, positions, k, v, key_positions, k_before, v_before, key_positions_before)
    return _attention_forward(*arrays, tile)[0]


def _attention_forward(*arguments):
    *arrays, tile = arguments
    q = arrays[0]
    dtype = accumulation_dtype(q.dtype)

    def step(number, done):
        q, positions, *both = (read_block(x, number, tile, 1) for x in arrays)
        (k, v, at), (k_before, v_before, at_before) = both[:3], both[3:]
        here = _scores(q, k, positions, at)
        there = _scores(q, k_before, positions, at_before)
        peak = jnp.maximum(jnp.max(here, axis=-1), jnp.max(there, axis=-1))[..., None]
        # exp is exactly 0 at padding, unless a query has nothing else; its values are 0 then.
        here, there = jnp.exp(here - peak), jnp.exp(there - peak)
        total = jnp.sum(here, axis=-1, keepdims=True) + jnp.sum(there, axis=-1, keepdims=True)
        out = product("bmqk,bmkd->bmqd", here.astype(v.dtype), v)
        out += product("bmqk,bmkd->bmqd", there.astype(v.dtype), v_before)
        new = out / total, (peak + jnp.log(total))[..., 0]
        return tuple(write_block(x, y, number, 1) for x, y in zip(done, new, strict=True))

    start = jnp.zeros(q.shape, dtype), jnp.zeros(q.shape[:3], dtype)
    results = jax.lax.fori_loop(0, q.shape[1] // tile, step, start)
    return results, (arrays, *results)


def _attention_backward(tile, saved, gradients):
    arrays, out, logsumexp = saved
    g, dlogsumexp = gradients
    q, _, k, v = arrays[:4]
    # What is subtracted from every row of products of g and v.
    offset = jnp.sum(g * out, axis=-1) - dlogsumexp
    rows = (logsumexp, offset)

    def step(number, done):
        q, positions, *both = (read_block(x, number, tile, 1) for x in arrays)
        g_block = read_block(g, number, tile, 1).astype(q.dtype)
        row = [read_block(x, number, tile, 1)[..., None] for x in rows]
        dq, dk, dv = _pair_gradients(q, positions, both[:3], g_block, *row)
        dq_before, *before = _pair_gradients(q, positions, both[3:], g_block, *row)
        new = (dq + dq_before, dk, dv, *before)
        return tuple(write_block(x, y, number, 1) for x, y in zip(done, new, strict=True))

    start = tuple(jnp.zeros(x.shape, out.dtype) for x in (q, k, v, k, v))
    found = jax.lax.fori_loop(0, q.shape[1] // tile, step, start)
    dq, dk, dv, dk_before, dv_before = (x.astype(q.dtype) for x in found)
    return dq, None, dk, dv, None, dk_before, dv_before, None


_attention.defvjp(_attention_forward, _attention_backward)


def _pair_gradients(q, positions, keys, g, logsumexp, offset):
    """The shares of one set of keys in dq, and the gradients of its k and v."""
    k, v, key_positions = keys
    p = jnp.exp(_scores(q, k, positions, key_positions) - logsumexp)
    ds = p * (product("bmqd,bmkd->bmqk", g, v) - offset)
    ds = jnp.where(_is_self(positions, key_positions), 0, ds).astype(q.dtype)
    # Transposed beforehand, q and g are smaller than the probabilities.
    dk = product("bmdq,bmqk->bmdk", jnp.swapaxes(q, -1, -2), ds)
    dv = product("bmdq,bmqk->bmdk", jnp.swapaxes(g, -1, -2), p.astype(g.dtype))
    dq = product("bmqk,bmkd->bmqd", ds, k)
    return dq, jnp.swapaxes(dk, -1, -2), jnp.swapaxes(dv, -1, -2)


def _scores(q, k, positions, key_positions):
    scores = product("bmqd,bmkd->bmqk", q, k)
    padding = (key_positions == PADDING)[..., None, :]
    scores = jnp.where(padding, jnp.finfo(scores.dtype).min, scores)
    return jnp.where(_is_self(positions, key_positions), SELF_SCORE, scores)


def _is_self(positions, key_positions):
    return positions[..., :, None] == key_positions[..., None, :]
