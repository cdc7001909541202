"""Reformer's attention on sorted positions: every chunk attends to itself and the previous chunk.

    k_j = q_j / sqrt(|q_j|^2 + 1e-6 D)
    s_ij = q_i . k_j    (-1e5 where i and j are the same position, lowest where j is padding)
    out_i = sum_j exp(s_ij - z_i) v_j        z_i = log sum_j exp(s_ij)

A loop computes a few pairs of chunks at a time: everything per pair, including the keys, is
computed from slices of the sorted queries and values and then discarded. Only out and z are saved;
the backward pass recomputes each tile's probabilities, as in `models.attention.longformer`. With g
and y the gradients of out and z:

    ds_ij = p_ij (g_i . v_j - g_i . out_i + y_i),  0 where s_ij is a constant
    dq_i = sum_j ds_ij k_j      dk_j = sum_i ds_ij q_i      dv_j = sum_i p_ij g_i

Time O(n c D) and memory O(n D) for n positions in chunks of c, plus one tile: on a CPU one that
stays in the cache, elsewhere up to a 64th of the device's memory (at least 256 MiB) per seed.
Reverse mode only (`jax.custom_vjp`).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.attention.blocks import read_block, tile_bytes, wide_einsum, write_block
from models.attention.padding import largest_divisor
from models.dtypes import accumulation_dtype
from models.machine import this_machine

KEY_EPSILON = 1e-6
SELF_SCORE = -1e5
PADDING = -1  # position of keys that are padding


def unit_keys(q: Float[Array, "*axes head_dim"]) -> Float[Array, "*axes head_dim"]:
    """Return the queries normalised to length 1, including the scale head_dim^(-1/2)."""
    wide = q.astype(accumulation_dtype(q.dtype))
    square = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(square + KEY_EPSILON) * q.shape[-1] ** -0.5).astype(q.dtype)


def attend_chunk_pairs(
    queries_values: Float[Array, "batch heads chunks chunk twice_head_dim"],
    positions: Int[Array, "batch heads chunks chunk"],
    key_positions: Int[Array, "batch heads chunks chunk"],
) -> tuple[
    Float[Array, "batch heads chunks chunk head_dim"], Float[Array, "batch heads chunks chunk"]
]:
    """Attend within each head's ring of chunks, where the last chunk precedes the first.

    Args:
        queries_values: Queries, which also give the keys, concatenated with values; 0 at padding.
        positions: Positions of the queries in their sequence.
        key_positions: Positions of the keys, `PADDING` at padding.

    Returns:
        The outputs and the logarithms of their denominators, both in at least float32.
    """
    batch, heads, chunks, size, _ = queries_values.shape
    itemsize = accumulation_dtype(queries_values.dtype).itemsize
    tile = _tile(chunks, batch * heads * size * 2 * size * itemsize)

    def flat(x: Array) -> Array:
        return x.reshape(batch * heads, *x.shape[2:])

    arrays = flat(queries_values), flat(positions), flat(key_positions)
    out, logsumexp = _attention(*arrays, tile)
    return out.reshape(batch, heads, *out.shape[1:]), logsumexp.reshape(positions.shape)


def _tile(chunks: int, chunk_bytes: int) -> int:
    """Return the number of chunks per loop step, for all heads: a divisor of `chunks`."""
    fitting = max(1, tile_bytes(this_machine()) // chunk_bytes)
    return largest_divisor(chunks, fitting)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attention(queries_values, positions, key_positions, tile):
    """Attend between arrays [heads, chunks, chunk, ...] with the heads of the whole batch."""
    return _forward(queries_values, positions, key_positions, tile)[0]


def _forward(queries_values, positions, key_positions, tile):
    dtype = accumulation_dtype(queries_values.dtype)
    rings = _ring(queries_values), _ring(key_positions)

    def step(number, outputs):
        chunks, chunk_positions = (_read(ring, number, tile) for ring in rings)
        q, k, v = _queries_keys_values(chunks)
        query_positions = read_block(positions, number, tile, 1)
        scores = _scores(q, k, query_positions, _pairs(chunk_positions))
        peak = jnp.max(scores, axis=-1, keepdims=True)
        # exp is exactly 0 at padding, except for a query without real keys; its values are 0 then.
        p = jnp.exp(scores - peak)
        total = jnp.sum(p, axis=-1, keepdims=True)
        out = wide_einsum("hmqk,hmkd->hmqd", p.astype(v.dtype), v) / total
        new = out, (peak + jnp.log(total))[..., 0]
        return tuple(write_block(x, y, number, 1) for x, y in zip(outputs, new, strict=True))

    width = queries_values.shape[-1] // 2
    start = (
        jnp.zeros((*positions.shape, width), dtype),
        jnp.zeros(positions.shape, dtype),
    )
    results = jax.lax.fori_loop(0, positions.shape[1] // tile, step, start)
    return results, (queries_values, positions, key_positions, *results)


def _backward(tile, saved, gradients):
    queries_values, positions, key_positions, out, logsumexp = saved
    g, dlogsumexp = gradients
    dtype = out.dtype
    rings = _ring(queries_values), _ring(key_positions)
    # Subtracted from every row of products of g and v.
    offset = jnp.sum(g * out, axis=-1) - dlogsumexp
    rows = (logsumexp, offset)

    def step(number, gradient):
        chunks, chunk_positions = (_read(ring, number, tile) for ring in rings)
        # A chunk's gradients, as keys of its own queries and of the next chunk's, are added up in
        # at least float32.
        wide, vjp = jax.vjp(_queries_keys_values, chunks.astype(dtype))
        q, k, v = (x.astype(chunks.dtype) for x in wide)
        g_tile = read_block(g, number, tile, 1).astype(chunks.dtype)
        logsumexp, offset = (read_block(x, number, tile, 1)[..., None] for x in rows)
        pair_positions = _pairs(chunk_positions)
        query_positions = read_block(positions, number, tile, 1)
        p = jnp.exp(_scores(q, k, query_positions, pair_positions) - logsumexp)
        ds = p * (wide_einsum("hmqd,hmkd->hmqk", g_tile, v) - offset)
        ds = jnp.where(_is_self(query_positions, pair_positions), 0, ds).astype(q.dtype)
        dq = wide_einsum("hmqk,hmkd->hmqd", ds, k)
        # Transposing q and g is cheaper than transposing the probabilities.
        dk = wide_einsum("hmdq,hmqk->hmdk", jnp.swapaxes(q, -1, -2), ds)
        dv = wide_einsum("hmdq,hmqk->hmdk", jnp.swapaxes(g_tile, -1, -2), p.astype(q.dtype))
        (added,) = vjp((dq, jnp.swapaxes(dk, -1, -2), jnp.swapaxes(dv, -1, -2)))
        added += _read(gradient, number, tile)
        return jax.lax.dynamic_update_slice_in_dim(gradient, added, number * tile, 1)

    start = jnp.zeros(rings[0].shape, dtype)
    ring = jax.lax.fori_loop(0, positions.shape[1] // tile, step, start)
    gradient = jnp.concatenate([ring[:, 1:-1], ring[:, -1:] + ring[:, :1]], axis=1)
    return gradient.astype(queries_values.dtype), None, None


_attention.defvjp(_forward, _backward)


def _ring(x: Array) -> Array:
    """All chunks, preceded by a copy of the last one."""
    return jnp.concatenate([x[:, -1:], x], axis=1)


def _read(ring: Array, number: Array, tile: int) -> Array:
    """The chunks of a tile, preceded by the previous chunk."""
    return jax.lax.dynamic_slice_in_dim(ring, number * tile, tile + 1, 1)


def _pairs(x: Array) -> Array:
    """[heads, tile + 1, chunk, ...] -> [heads, tile, 2 chunk, ...]: previous chunk, then own."""
    return jnp.concatenate([x[:, :-1], x[:, 1:]], axis=2)


def _queries_keys_values(chunks: Array) -> tuple[Array, Array, Array]:
    """The queries of a tile's chunks, and the keys and values of their pairs."""
    q, v = jnp.split(chunks, 2, axis=-1)
    return q[:, 1:], _pairs(unit_keys(q)), _pairs(v)


def _scores(q, k, positions, key_positions):
    scores = wide_einsum("hmqd,hmkd->hmqk", q, k)
    padding = (key_positions == PADDING)[..., None, :]
    scores = jnp.where(padding, jnp.finfo(scores.dtype).min, scores)
    return jnp.where(_is_self(positions, key_positions), SELF_SCORE, scores)


def _is_self(positions, key_positions):
    return positions[..., :, None] == key_positions[..., None, :]
