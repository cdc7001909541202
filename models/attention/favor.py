"""FAVOR+ with softmax features, computed block by block and never stored.

    e(x) = exp(P x - |x|^2 / 2 - peak)        f(x) = e(x) + epsilon
    S = sum over keys of f(k_j) [v_j, 1]^T    [N_i, D_i] = f(q_i)^T S    out_i = N_i / D_i

for x already scaled by D^(-1/4); the factor R^(-1/2) of the features cancels and is left out. S is
summed over blocks of keys, rescaled whenever the keys' peak grows, as in an online softmax; then
the queries read it. The peak is the largest P x; without epsilon, where the peak cancels, it is the
largest P x - |x|^2 / 2, so that the largest feature is 1. The backward pass recomputes each block's
features, first for the queries, which gives the gradient of S, then for the keys.

Blocks are stored features by positions, so that no product has to transpose one. A column of ones
appended to v yields the denominators along with the numerators; one appended to P, the gradient of
|x|^2 / 2.

Time O(n R D), memory O(n D + R D) and one block. Reverse mode only (`jax.custom_vjp`).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.attention.blocks import (
    even_size,
    read_block,
    row_sums,
    swap_heads,
    tile_bytes,
    wide_einsum,
    write_block,
)
from models.attention.contract import Heads, Mask
from models.attention.padding import padded, zeroed
from models.dtypes import least_denominator
from models.machine import Machine, this_machine

_CPU_ENTRIES = 2**17  # features of a block of one head, which stay in a core's cache
_MIN_POSITIONS = 256


def block_size(length: int, features: int, *, heads: int, machine: Machine) -> int:
    """Return the number of positions of equal blocks with little padding.

    Args:
        length: Length of the sequence.
        features: Number of features of a head.
        heads: Number of heads in the whole batch. Axes added by `vmap` are not counted.
        machine: Machine that computes.
    """
    if machine.backend == "cpu":
        return even_size(length, _CPU_ENTRIES // features)
    fitting = tile_bytes(machine) // (4 * heads * features)
    return even_size(length, max(fitting, _MIN_POSITIONS))


def favor_attention(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    projection: Float[Array, "features head_dim"],
    epsilon: float,
    *,
    size: int | None = None,
) -> Heads:
    """Attend by the features of `projection`, computing in the dtype of q.

    Args:
        q, k: Queries and keys, scaled by head_dim^(-1/4).
        v, mask: See `models.attention.contract`.
        projection: Projection P; no gradient reaches it.
        epsilon: Constant added to every feature.
        size: Number of positions in a block; None: that of `block_size`.
    """
    batch, length, heads, _ = q.shape
    if size is None:
        size = block_size(length, len(projection), heads=batch * heads, machine=this_machine())
    k, v = zeroed(k, mask), zeroed(v, mask)
    ones = jnp.broadcast_to(mask[:, :, None, None], (*v.shape[:3], 1)).astype(v.dtype)
    v = jnp.concatenate([v, ones], axis=-1)
    bias = jnp.where(mask, 0, jnp.asarray(-jnp.inf, q.dtype))
    bias = padded(bias, size, -jnp.inf)[:, None, None, :]
    q, k, v = (swap_heads(padded(x, size)) for x in (q, k, v))
    # One copy per head: XLA would transpose the results of products with a shared one.
    projection = jnp.broadcast_to(projection, (*q.shape[:2], *projection.shape))
    return swap_heads(_attention(q, k, v, bias, projection, epsilon, size))[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _attention(q, k, v, bias, projection, epsilon, size):
    """Attend head-major, for lengths that are multiples of `size`.

    v ends with a column that is 1 at real keys and 0 at padding; bias is -inf at padding.
    """
    return _forward(q, k, v, bias, projection, epsilon, size)[0]


def _forward(q, k, v, bias, projection, epsilon, size):
    summary, peak = _summarise(k, v, bias, projection, epsilon, size)

    def query_block(number, out):
        features = _query_exponentials(read_block(q, number, size), projection, epsilon) + epsilon
        result = wide_einsum("bhmd,bhml->bhdl", summary, features)
        out_block = result[:, :, :-1] / _divisor(result[:, :, -1:])
        return write_block(out, jnp.swapaxes(out_block, 2, 3), number)

    empty = jnp.zeros((*q.shape[:3], v.shape[3] - 1), q.dtype)
    out = jax.lax.fori_loop(0, q.shape[2] // size, query_block, empty)
    return out, (q, k, v, bias, projection, summary, peak, out)


def _backward(epsilon, size, saved, g):
    q, k, v, bias, projection, summary, peak, out = saved
    ones = jnp.ones((*projection.shape[:3], 1), projection.dtype)
    projection_1 = jnp.concatenate([projection, ones], axis=-1)
    # The gradients of [N, D] are these divided by D.
    g = jnp.concatenate([g, -jnp.swapaxes(row_sums(g * out), 2, 3)], axis=-1)

    def gradient(x, d_features, exponentials):
        sums = wide_einsum("bhmd,bhml->bhdl", projection_1, d_features * exponentials)
        return jnp.swapaxes(sums[:, :, :-1], 2, 3) - x * jnp.swapaxes(sums[:, :, -1:], 2, 3)

    def query_block(number, gradients):
        dq, d_summary = gradients
        q_block = read_block(q, number, size)
        exponentials = _query_exponentials(q_block, projection, epsilon)
        features = exponentials + epsilon
        total = jnp.swapaxes(wide_einsum("bhmd,bhml->bhdl", summary[..., -1:], features), 2, 3)
        g_block = read_block(g, number, size) / _divisor(total)
        d_summary += wide_einsum("bhml,bhld->bhmd", features, g_block)
        d_features = wide_einsum("bhmd,bhld->bhml", summary, g_block)
        return write_block(dq, gradient(q_block, d_features, exponentials), number), d_summary

    def key_block(number, gradients):
        dk, dv = gradients
        k_block, v_block = read_block(k, number, size), read_block(v, number, size)
        exponent = _key_exponents(k_block, read_block(bias, number, size, 3), projection)
        exponentials = jnp.exp(exponent - peak)
        dv_block = wide_einsum("bhmd,bhml->bhdl", d_summary, exponentials + epsilon)
        d_features = wide_einsum("bhmd,bhld->bhml", d_summary, v_block)
        dk = write_block(dk, gradient(k_block, d_features, exponentials), number)
        return dk, write_block(dv, jnp.swapaxes(dv_block, 2, 3), number)

    blocks = q.shape[2] // size
    start = jnp.zeros_like(q), jnp.zeros_like(summary)
    dq, d_summary = jax.lax.fori_loop(0, blocks, query_block, start)
    start = jnp.zeros_like(k), jnp.zeros_like(v)
    dk, dv = jax.lax.fori_loop(0, blocks, key_block, start)
    return dq, dk, dv, None, None


_attention.defvjp(_forward, _backward)


def _summarise(k, v, bias, projection, epsilon, size):
    """Return S and the peak over the real keys."""

    def key_block(number, state):
        summary, peak = state
        k_block, v_block = read_block(k, number, size), read_block(v, number, size)
        bias_block = read_block(bias, number, size, 3)
        projected = wide_einsum("bhmd,bhld->bhml", projection, k_block)
        exponent = projected + (bias_block - _half_square(k_block))
        candidates = projected + bias_block if epsilon else exponent
        new_peak = jnp.maximum(peak, jnp.max(candidates, axis=(2, 3), keepdims=True))
        features = jnp.exp(exponent - new_peak)
        summary = summary * jnp.exp(peak - new_peak)
        return summary + wide_einsum("bhml,bhld->bhmd", features, v_block), new_peak

    batch, heads, num_features, _ = projection.shape
    start = (
        jnp.zeros((batch, heads, num_features, v.shape[3]), v.dtype),
        jnp.full((batch, heads, 1, 1), jnp.finfo(k.dtype).min, k.dtype),
    )
    summary, peak = jax.lax.fori_loop(0, k.shape[2] // size, key_block, start)
    return summary + epsilon * jnp.sum(v, axis=2, keepdims=True), peak


def _key_exponents(k, bias, projection):
    return wide_einsum("bhmd,bhld->bhml", projection, k) + (bias - _half_square(k))


def _query_exponentials(q, projection, epsilon):
    projected = wide_einsum("bhmd,bhld->bhml", projection, q)
    offset = jnp.max(projected, axis=2, keepdims=True)
    return jnp.exp(projected - (offset + _half_square(q) if epsilon else offset))


def _half_square(x):
    """|x|^2 / 2, as a row."""
    return row_sums(jnp.square(x)) / 2


def _divisor(total):
    """The denominators; infinity where they are too small: then outputs and gradients are 0."""
    return jnp.where(total >= least_denominator(total.dtype), total, jnp.inf)
