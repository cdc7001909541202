"""Longformer's sliding window: attention to neighbours (arXiv 2004.05150, section 3.1).

    out_i = sum_j softmax_j(q_i . k_j / sqrt(head_dim)) v_j
                                            over the real positions j with |i - j| <= window

Scores are computed for blocks of 64 queries and the keys within their reach; keys outside a query's
own window have weight 0. Only the output and each row's logsumexp are saved; the backward pass
recomputes the blocks of probabilities, as in `models.attention.chunked`, and adds each block's
contribution to the gradients of its keys in place.

Complexity per head, with length n and reach w: time O(n w head_dim), memory O(n head_dim) plus one
tile of scores: on a CPU one block of as many heads as fit into the cache, elsewhere as many blocks
at once as fit into a 64th of the device's memory (at least 256 MiB), since small steps of a loop
would leave the device idle.

Differences. Only the local attention of the paper's encoders: no dilation, no global tokens (the
benchmark's classifiers pool over all positions; none is marked) and hence none of their three
projections. Masked keys have weight 0 and masked queries give 0, as in Hugging Face's
implementation; the softmax of float64 inputs stays float64, whereas that one rounds to float32.

The output does not depend on the amount of padding. Reverse mode only (`jax.custom_vjp`): no
`jax.jvp`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from models.attention.blocks import tile_bytes, wide_einsum
from models.attention.contract import Attention, Heads, Mask, check_inputs
from models.attention.padding import largest_divisor, padded_to, round_up, zeroed
from models.checks import check_not_negative, check_positive
from models.dtypes import accumulation_dtype
from models.machine import Machine, this_machine

BLOCK = 64  # queries; for windows of 128 on one CPU core, 32 to 128 differ by less than a tenth
# Finite, so that a row without any real key gives no NaN. Only masked queries have such rows, and
# their outputs are set to 0 in the end.
_OUT_OF_REACH = -1e30


class Tile(NamedTuple):
    """Work of one loop step: numbers of heads, blocks of queries, and keys on each side.

    `heads` divides the number of all heads; `reach` is that of the window, in whole blocks.
    """

    heads: int
    blocks: int
    reach: int


def tile_of(
    shape: tuple[int, int, int, int], itemsize: int, *, window: int, machine: Machine
) -> Tile:
    """Return the tile for q of this shape and scores of `itemsize` bytes."""
    batch, length, heads, _ = shape
    blocks = math.ceil(length / BLOCK)
    reach = _reach(window, length)
    block_bytes = batch * BLOCK * (BLOCK + 2 * reach) * itemsize
    if machine.backend == "cpu":
        fitting = max(1, tile_bytes(machine) // block_bytes)
        return Tile(largest_divisor(heads, fitting), 1, reach)
    fitting = max(1, tile_bytes(machine) // (block_bytes * heads))
    return Tile(heads, math.ceil(blocks / math.ceil(blocks / fitting)), reach)


def _reach(window: int, length: int) -> int:
    return round_up(min(window, length - 1), BLOCK)


def longformer_attention(
    q: Heads, k: Heads, v: Heads, mask: Mask, *, window: int, tile: Tile | None = None
) -> Heads:
    """Softmax attention over the real keys at most `window` positions away.

    Args:
        q, k, v, mask: See `models.attention.contract`; any length, any mask.
        window: Number of keys on each side; from the length on this is standard attention.
        tile: Work of one loop step; None: that of `tile_of`.

    Raises:
        ValueError: `window` below 0, a `tile` of another reach or whose heads do not divide those
            of q, or inputs that violate the contract.
    """
    check_inputs(q, k, v, mask)
    check_not_negative(window=window)
    length, heads = q.shape[1:3]
    q, k, v = (zeroed(x, mask) for x in (q, k, v))
    if tile is None:
        itemsize = accumulation_dtype(q.dtype).itemsize
        tile = tile_of(q.shape, itemsize, window=window, machine=this_machine())
    check_positive(tile_heads=tile.heads, tile_blocks=tile.blocks)
    if heads % tile.heads or tile.reach != _reach(window, length):
        raise ValueError(
            f"{tile} must have a divisor of {heads} heads and a reach of {_reach(window, length)}"
        )
    return zeroed(_attention(q, k, v, mask, min(window, length), tile), mask)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _attention(q, k, v, mask, window, tile):
    return _forward(q, k, v, mask, window, tile)[0]


def _forward(q, k, v, mask, window, tile):
    bias, band = _bias(mask, tile, q.dtype), _band(window, tile, q.dtype)

    def heads(inputs):
        k, v = inputs[1:]

        def step(start, q):
            scores = _scores(q, _windows(k, start, tile), _windows(bias, start, tile), band)
            peak = jnp.max(scores, axis=-1)
            p = jnp.exp(scores - peak[..., None])
            total = jnp.sum(p, axis=-1)
            out = wide_einsum("bhmqk,bhmdk->bhmqd", p.astype(v.dtype), _windows(v, start, tile))
            return start + tile.blocks * BLOCK, (out / total[..., None], peak + jnp.log(total))

        return jax.lax.scan(step, 0, inputs[0])[1]

    arrays = _queries(q, tile), _keys(k, tile), _keys(v, tile)
    out, logsumexp = jax.lax.map(heads, arrays)
    out = _join_queries(out, q.shape[1]).astype(q.dtype)
    return out, (q, k, v, mask, out, logsumexp)


def _backward(window, tile, saved, g):
    q, k, v, mask, out, logsumexp = saved
    length, dtype = q.shape[1], accumulation_dtype(q.dtype)
    bias, band = _bias(mask, tile, q.dtype), _band(window, tile, q.dtype)
    mean_dp = jnp.sum(g.astype(dtype) * out.astype(dtype), axis=-1, keepdims=True)

    def heads(inputs):
        k, v, rows = inputs[0], inputs[1], inputs[2:]

        def step(carry, inputs):
            start, dk, dv = carry
            q, g, mean_dp, logsumexp = inputs
            keys, values = _windows(k, start, tile), _windows(v, start, tile)
            p = jnp.exp(_scores(q, keys, _windows(bias, start, tile), band) - logsumexp[..., None])
            dp = wide_einsum("bhmqd,bhmdk->bhmqk", g, values)
            ds = (p * (dp - mean_dp)).astype(q.dtype)
            dq = wide_einsum("bhmqk,bhmdk->bhmqd", ds, keys)
            # Transposing q and g beforehand is cheaper than transposing ds and p.
            dk_block = wide_einsum("bhmdq,bhmqk->bhmdk", jnp.swapaxes(q, -1, -2), ds)
            dv_block = wide_einsum("bhmdq,bhmqk->bhmdk", jnp.swapaxes(g, -1, -2), p.astype(g.dtype))
            dk, dv = _add(dk, dk_block, start, tile), _add(dv, dv_block, start, tile)
            return (start + tile.blocks * BLOCK, dk, dv), dq

        zero = jnp.zeros(k.shape, dtype)
        (_, dk, dv), dq = jax.lax.scan(step, (0, zero, zero), rows)
        return dq, dk, dv

    rows = _queries(q, tile), _queries(g, tile), _queries(mean_dp, tile)
    dq, dk, dv = jax.lax.map(heads, (_keys(k, tile), _keys(v, tile), *rows, logsumexp))
    scale = 1 / math.sqrt(q.shape[-1])
    dq = _join_queries(dq * scale, length)
    dk, dv = _join_keys(dk * scale, length, tile), _join_keys(dv, length, tile)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), None


_attention.defvjp(_forward, _backward)


def _scores(q, k, bias, band):
    scale = 1 / math.sqrt(q.shape[-1])
    return wide_einsum("bhmqd,bhmdk->bhmqk", q, k) * scale + (bias + band)


def _band(window, tile, dtype):
    """0 within the window of a block's queries, very negative beyond: [1, 1, 1, queries, keys]."""
    queries = jnp.arange(BLOCK)[:, None]
    keys = jnp.arange(-tile.reach, BLOCK + tile.reach)[None, :]
    beyond = jnp.asarray(_OUT_OF_REACH, accumulation_dtype(dtype))
    return jnp.where(jnp.abs(keys - queries) <= window, 0, beyond)[None, None, None]


def _bias(mask, tile, dtype):
    """0 at real keys, very negative at others, laid out like `_keys` of one head of width 1."""
    real = _keys(mask[:, :, None, None], tile._replace(heads=1))[0]
    return jnp.where(real, 0, jnp.asarray(_OUT_OF_REACH, accumulation_dtype(dtype)))


def _completed(length, tile):
    """The length rounded up to whole steps."""
    return round_up(length, tile.blocks * BLOCK)


def _queries(x, tile):
    """[batch, length, heads, width] to [groups, steps, batch, heads, blocks, BLOCK, width].

    A group has the heads of a tile, a step its blocks.
    """
    batch, length, heads, width = x.shape
    completed = _completed(length, tile)
    x = padded_to(x, completed)
    steps = completed // (tile.blocks * BLOCK)
    x = x.reshape(batch, steps, tile.blocks, BLOCK, heads // tile.heads, tile.heads, width)
    return x.transpose(4, 1, 0, 5, 2, 3, 6)


def _join_queries(x, length):
    """The inverse of `_queries`."""
    groups, steps, batch, heads, blocks, size, width = x.shape
    x = x.transpose(2, 1, 4, 5, 0, 3, 6)
    return x.reshape(batch, steps * blocks * size, groups * heads, width)[:, :length]


def _keys(x, tile):
    """[batch, length, heads, width] to [groups, batch, heads, width, length + 2 reach]."""
    batch, length, heads, width = x.shape
    after = tile.reach + _completed(length, tile) - length
    x = x.reshape(batch, length, heads // tile.heads, tile.heads, width).transpose(2, 0, 3, 4, 1)
    return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 0), (tile.reach, after)))


def _join_keys(x, length, tile):
    """The inverse of `_keys`."""
    groups, batch, heads, width, _ = x.shape
    x = x[..., tile.reach : tile.reach + length].transpose(1, 4, 0, 2, 3)
    return x.reshape(batch, length, groups * heads, width)


def _cut(x, tile):
    """Each block's window of keys: [..., width, keys] to [..., blocks, width, keys]."""
    if tile.blocks == 1:
        return x[..., None, :, :]
    x = x.reshape(*x.shape[:-1], -1, BLOCK)
    parts = [x[..., i : i + tile.blocks, :] for i in range(x.shape[-2] - tile.blocks + 1)]
    return jnp.moveaxis(jnp.concatenate(parts, axis=-1), -2, -3)


def _within_reach(x, start, tile):
    return jax.lax.dynamic_slice_in_dim(x, start, tile.blocks * BLOCK + 2 * tile.reach, -1)


def _windows(x, start, tile):
    return _cut(_within_reach(x, start, tile), tile)


def _add(total, gradient, start, tile):
    """Add to `total`, the gradient of x, its share from that of `_windows(x, start, tile)`."""
    before = _within_reach(total, start, tile)
    (added,) = jax.linear_transpose(lambda x: _cut(x, tile), before)(gradient)
    return jax.lax.dynamic_update_slice_in_dim(total, before + added, start, -1)


class LongformerAttention(Attention):
    """Longformer's sliding window; it has no parameters.

    Options:
        window: Number of keys on each side; 128 is the Longformer-257 of Table 1 of arXiv
            2102.03902.
    """

    why_not_causal = (
        "its window reaches as far ahead as back, and the benchmark's encoders read whole sequences"
    )

    def __init__(
        self,
        *,
        length: int,
        heads: int,
        head_dim: int,
        layer: int = 0,
        shared: Attention | None = None,
        rngs: nnx.Rngs,
        window: int = 128,
    ):
        """See `models.attention.make`; options above.

        Raises:
            ValueError: A window below 1.
        """
        check_positive(window=window)
        self.window = window

    def __call__(
        self, q: Heads, k: Heads, v: Heads, mask: Mask, *, key: jax.Array | None = None
    ) -> Heads:
        """Attend within the window; `key` is ignored.

        Raises:
            ValueError: Inputs that violate the contract.
        """
        return longformer_attention(q, k, v, mask, window=self.window)
