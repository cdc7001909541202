"""Programs of the five kernels in `models.attention.favor_kernels`.

References cover a program's own block, or all positions or features of its head and example,
through which it goes `size` at a time. P, S and dS [2, features, width] are in two parts.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, BFloat16, Float

from models.dtypes import least_denominator
from models.kernel_math import product

_LOWEST = float(jnp.finfo(jnp.float32).min)
_LEAST = least_denominator(jnp.float32)
_UPPER_HALF = -(2**16)  # mask of the bits of a float32 that make a bfloat16


def summarise(
    p_ref: jax.Ref,
    k_ref: jax.Ref,
    v_ref: jax.Ref,
    bias_ref: jax.Ref,
    summary_ref: jax.Ref,
    total_ref: jax.Ref,
    peak_ref: jax.Ref,
    *,
    size: int,
    epsilon: float,
) -> None:
    """Write sum_j e_jr v_j and sum_j e_jr, both divided by exp2 of each feature's peak, and peaks.

    The bias of a key is -|k|^2 / 2 to base 2, -inf at padding.
    """
    p = p_ref[0], p_ref[1]

    def key_block(number, state):
        peak, total, summary = state
        at = pl.ds(number * size, size)
        bias = bias_ref[at][None]
        projected = _product_of_parts(p, k_ref[at, :])
        exponent = projected + bias
        candidates = jnp.where(bias > -jnp.inf, projected, _LOWEST) if epsilon else exponent
        new_peak = jnp.maximum(peak, jnp.max(candidates, axis=1))
        shrink = jnp.exp2(peak - new_peak)
        e = jnp.exp2(exponent - new_peak[:, None])
        total = total * shrink + jnp.sum(e, axis=1)
        weighted = product(e.astype(jnp.bfloat16), v_ref[at, :])
        return new_peak, total, summary * shrink[:, None] + weighted

    peak = jnp.full(p[0].shape[0], _LOWEST, jnp.float32)
    start = peak, jnp.zeros_like(peak), jnp.zeros(p[0].shape, jnp.float32)
    peak, total, summary = jax.lax.fori_loop(0, k_ref.shape[0] // size, key_block, start)
    summary_ref[...], total_ref[...], peak_ref[...] = summary, total, peak


def attend_queries(
    q_ref: jax.Ref,
    p_ref: jax.Ref,
    summary_ref: jax.Ref,
    total_ref: jax.Ref,
    *refs: jax.Ref | None,
    size: int,
    epsilon: float,
) -> None:
    """Write out_i, u_i, o_i to base 2 and 1 / T_i.

    `added` is epsilon sum_r S_r, or None if epsilon is 0.
    """
    centre_ref, added_ref, out_ref, rest_ref, offset_ref, inverse_ref = refs
    q = q_ref[...]

    def feature_block(number, state):
        peak, total, weighted = state
        at = pl.ds(number * size, size)
        projected = _times_rows(q, p_ref, at)
        new_peak = jnp.maximum(peak, jnp.max(projected, axis=1))
        shrink = jnp.exp2(peak - new_peak)
        e = jnp.exp2(projected - new_peak[:, None])
        total = total * shrink + jnp.sum(e * total_ref[at][None], axis=1)
        return new_peak, total, _add_rows(weighted * shrink[:, None], e, summary_ref, at)

    peak = jnp.full(q.shape[0], _LOWEST, jnp.float32)
    start = peak, jnp.zeros_like(peak), jnp.zeros(q.shape, jnp.float32)
    blocks = p_ref.shape[1] // size
    offset, total, weighted = jax.lax.fori_loop(0, blocks, feature_block, start)
    if epsilon:
        half = half_square(q)
        shrink = jnp.exp2(-half)
        offset += half
        total = total * shrink + epsilon * jnp.sum(total_ref[...])
        weighted = weighted * shrink[:, None] + added_ref[...][None]
    known = total >= _LEAST
    inverse = 1 / jnp.where(known, total, 1)
    rest = weighted * inverse[:, None]
    out = jnp.where(known[:, None], rest + centre_ref[...][None], 0)
    out_ref[...], rest_ref[...] = out.astype(out_ref.dtype), rest.astype(rest_ref.dtype)
    offset_ref[...], inverse_ref[...] = offset, inverse


def d_queries(*refs: jax.Ref | None, size: int) -> None:
    """Write dq and m_i."""
    q_ref, g_ref, rest_ref, offset_ref, inverse_ref, p_ref, summary_ref, total_ref = refs[:8]
    q, g, offset = q_ref[...], g_ref[...], offset_ref[...][:, None]
    mean = jnp.sum(g.astype(jnp.float32) * rest_ref[...].astype(jnp.float32), axis=1)

    def feature_block(number, state):
        at = pl.ds(number * size, size)
        e = jnp.exp2(_times_rows(q, p_ref, at) - offset)
        d = _times_rows(g, summary_ref, at) - mean[:, None] * total_ref[at][None]
        return _add_gradient(state, e * d, p_ref, at)

    start = jnp.zeros(q.shape, jnp.float32), jnp.zeros(q.shape[0], jnp.float32)
    state = jax.lax.fori_loop(0, p_ref.shape[1] // size, feature_block, start)
    dq_ref, mean_ref = refs[8:]
    dq_ref[...] = (_gradient(state, q) * inverse_ref[...][:, None]).astype(dq_ref.dtype)
    mean_ref[...] = mean


def d_summary(
    p_ref: jax.Ref,
    q_ref: jax.Ref,
    g_ref: jax.Ref,
    offset_ref: jax.Ref,
    inverse_ref: jax.Ref,
    mean_ref: jax.Ref,
    *refs: jax.Ref,
    size: int,
    epsilon: float,
) -> None:
    """Write dS in two parts, dt, and the sum of dS over the features."""
    centre_ref, d_summary_ref, d_total_ref, sums_ref = refs
    p = p_ref[0], p_ref[1]

    def query_block(number, state):
        d_summary, d_total = state
        at = pl.ds(number * size, size)
        e = jnp.exp2(_product_of_parts(p, q_ref[at, :]) - offset_ref[at][None])
        weights = (e + epsilon) * inverse_ref[at][None]
        d_summary += product(weights.astype(jnp.bfloat16), g_ref[at, :])
        return d_summary, d_total - jnp.sum(weights * mean_ref[at][None], axis=1)

    start = jnp.zeros(p[0].shape, jnp.float32), jnp.zeros(p[0].shape[0], jnp.float32)
    d_summary, d_total = jax.lax.fori_loop(0, q_ref.shape[0] // size, query_block, start)
    d_summary_ref[0], d_summary_ref[1] = parts(d_summary)
    d_total_ref[...] = d_total - jnp.sum(d_summary * centre_ref[...][None], axis=1)
    sums_ref[...] = jnp.sum(d_summary, axis=0)


def d_keys(*refs: jax.Ref | None, size: int) -> None:
    """Write dk and dv.

    The bias includes minus the peak; `added` is epsilon sum_r dS_r, or None if epsilon is 0.
    """
    k_ref, v_ref, bias_ref, p_ref, d_summary_ref, d_total_ref, added_ref, dk_ref, dv_ref = refs
    k, v, bias = k_ref[...], v_ref[...], bias_ref[...][:, None]

    def feature_block(number, state):
        state, dv = state
        at = pl.ds(number * size, size)
        e = jnp.exp2(_times_rows(k, p_ref, at) + bias)
        d = _times_rows(v, d_summary_ref, at) + d_total_ref[at][None]
        dv = _add_rows(dv, e, d_summary_ref, at)
        return _add_gradient(state, e * d, p_ref, at), dv

    zeros = jnp.zeros(k.shape, jnp.float32)
    start = (zeros, jnp.zeros(k.shape[0], jnp.float32)), zeros
    state, dv = jax.lax.fori_loop(0, p_ref.shape[1] // size, feature_block, start)
    if added_ref is not None:
        dv += jnp.where(bias > -jnp.inf, added_ref[...][None], 0)
    dk_ref[...] = _gradient(state, k).astype(dk_ref.dtype)
    dv_ref[...] = dv.astype(dv_ref.dtype)


def _add_gradient(state, d, p_ref, at):
    """Add a block to the sums over features of d P and of d."""
    weighted, total = state
    return _add_rows(weighted, d, p_ref, at), total + jnp.sum(d, axis=1)


def _gradient(state, x):
    """Gradient of the unscaled `x`, from the sums of `_add_gradient`; P is to base 2."""
    weighted, total = state
    return weighted * math.log(2) - x.astype(jnp.float32) * (total * x.shape[1] ** -0.5)[:, None]


def half_square(x: Float[Array, "*shape head_dim"]) -> Float[Array, "*shape"]:
    """|x|^2 / 2 over the last axis for the scaled `x`, to base 2."""
    factor = math.log2(math.e) / (2 * math.sqrt(x.shape[-1]))
    return jnp.sum(jnp.square(x.astype(jnp.float32)), axis=-1) * factor


def parts(
    x: Float[Array, "*shape"],
) -> tuple[BFloat16[Array, "*shape"], BFloat16[Array, "*shape"]]:
    """Return two bfloat16 arrays whose sum is `x`, within 2^-16 of it.

    The first has the upper bits of `x`: XLA would simplify the rounding of `x` away.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & _UPPER_HALF
    high = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return high.astype(jnp.bfloat16), (x - high).astype(jnp.bfloat16)


def _product_of_parts(parts, b):
    """Product of an array in two parts and the rows of `b`."""
    return product(parts[0], b, 1) + product(parts[1], b, 1)


def _times_rows(a, ref, at):
    """Product of `a` and the rows `at` of an array in two parts."""
    return product(a, ref[0, at, :], 1) + product(a, ref[1, at, :], 1)


def _add_rows(total, weights, ref, at):
    """Add the rows `at` of an array in two parts, weighted by the rounded `weights`."""
    weights = weights.astype(jnp.bfloat16)
    # In this order Triton sums in place.
    return total + product(weights, ref[0, at, :]) + product(weights, ref[1, at, :])
