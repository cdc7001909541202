"""FAVOR+ with softmax features (`models.attention.favor`) in five GPU kernels.

    e_jr = exp(P_r . k_j - |k_j|^2 / 2 - peak)      S_r = sum_j e_jr (v_j - c)
                                                    t_r = sum_j (e_jr + epsilon)
    e_ir = exp(P_r . q_i - o_i)                     T_i = sum_r (e_ir + epsilon) t_r
    out_i = u_i + c                                 u_i = sum_r (e_ir + epsilon) S_r / T_i

for scaled q and k; c is the mean of the real v, and o_i the largest P_r . q_i, plus |q_i|^2 / 2
unless epsilon is 0. Blocks of e stay in registers. One kernel has a program for each block of
features, which goes through the keys with an online softmax; in another, a program for a block of
queries goes through the features as flash attention goes through keys, with P as keys and S as
values. Backward, with m_i = g_i . u_i:

    d_ir = e_ir (S_r . g_i - t_r m_i) / T_i     dq_i = sum_r d_ir (P_r - q_i)
    dS_r = sum_i (e_ir + epsilon) g_i / T_i     dt_r = - sum_i (e_ir + epsilon) m_i / T_i - dS_r . c
    d_jr = e_jr (dS_r . v_j + dt_r)             dk_j = sum_r d_jr (P_r - k_j)
                                                dv_j = sum_r (e_jr + epsilon) dS_r

in a kernel over blocks of queries, one over blocks of features and one over blocks of keys. No sum
is split between programs and there are no atomic additions: results are deterministic.

Subtracting c does not change the result. Where all features are near epsilon, out is nearly c; dq
depends on the difference, which would be lost in the rounding of c.

Products take bfloat16 numbers and are summed in float32. P, S and dS are sums of two bfloat16
numbers each, with errors of 2^-16 (TF32: 2^-11); q, k, v and g are bfloat16; e and d are rounded to
it, as weights are in `models.attention.flash`, and u is stored in it. So output and gradients
differ from float32 ones by 1 to 2 roundings to bfloat16, or up to 5 where attention is so sharp
that terms of a gradient cancel. Exponents are to base 2.

Time O(n R D), memory O(n D + R D). Reverse mode only (`jax.custom_vjp`). For Pallas, Triton and
meshes see `models.attention.flash`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from models.attention.contract import Heads, Mask
from models.attention.favor_programs import (
    attend_queries,
    d_keys,
    d_queries,
    d_summary,
    half_square,
    parts,
    summarise,
)
from models.attention.padding import padded, padded_to, zeroed


class FavorBlocks(NamedTuple):
    """Numbers of positions and features of a block, powers of two, and of warps of a program."""

    positions: int
    features: int
    warps: int = 4


class _Options(NamedTuple):
    epsilon: float
    interpret: bool
    summary: FavorBlocks
    queries: FavorBlocks
    d_queries: FavorBlocks
    d_summary: FavorBlocks
    d_keys: FavorBlocks


# The fastest of some on an H200 (`python -m benchmarks.gpu_kernels --kernels=favor`). Sizes for
# wider heads were not timed: with these Triton keeps everything in registers.
_NARROW = (
    FavorBlocks(64, 64),
    FavorBlocks(128, 32),
    FavorBlocks(128, 64),
    FavorBlocks(64, 64),
    FavorBlocks(64, 64),
)
_WIDE = (
    FavorBlocks(64, 64),
    FavorBlocks(64, 64),
    FavorBlocks(64, 32),
    FavorBlocks(64, 64),
    FavorBlocks(64, 32),
)
_NARROW_HEAD = 32
_STAGES = 2

# Axes of each array, a letter each; see `_call`.
_AXES = {
    **dict.fromkeys(("q", "k", "v", "g", "rest"), "bnhd"),
    **dict.fromkeys(("bias", "offset", "inverse", "mean"), "bhn"),
    **dict.fromkeys(("summary", "d_summary"), "bhsrd"),
    **dict.fromkeys(("total", "d_total"), "bhr"),
    **dict.fromkeys(("centre", "added"), "bhd"),
    "projection": "srd",
}


def favor_attention_by_kernels(
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Mask,
    projection: Float[Array, "features head_dim"],
    epsilon: float,
    *,
    blocks: FavorBlocks | None = None,
    interpret: bool = False,
) -> Heads:
    """Attend by the features of `projection`.

    Args:
        q, k: Queries and keys, not scaled, unlike in `models.attention.favor`; bfloat16, as v.
        v, mask: See `models.attention.contract`.
        projection: Projection P; the number of features is a power of two and at least that of a
            block. No gradient reaches it.
        epsilon: Constant added to every feature.
        blocks: Blocks of all kernels; None: those tuned for GPUs.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.

    Raises:
        ValueError: A number of features that does not fill blocks.
    """
    sizes = _NARROW if q.shape[-1] <= _NARROW_HEAD else _WIDE
    sizes = sizes if blocks is None else (blocks,) * 5
    features, block = len(projection), math.lcm(*(size.features for size in sizes))
    if features % block:
        raise ValueError(f"{features} features, which are no multiple of {block}")
    options = _Options(epsilon, interpret, *sizes)
    # P includes the scale of queries and keys, and gives exponents to base 2.
    factor = math.log2(math.e) * q.shape[-1] ** -0.25
    projection_parts = jnp.stack(parts(projection.astype(jnp.float32) * factor))
    return _attention(q, k, v, mask, projection_parts, options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _attention(q, k, v, mask, projection, options):
    """Attend; `projection` is in two parts, [2, features, head_dim]."""
    return _forward(q, k, v, mask, projection, options)[0]


def _forward(q, k, v, mask, projection, options):
    """Return the output and the residuals of the backward pass."""
    length, epsilon = q.shape[1], options.epsilon
    size = math.lcm(*(blocks.positions for blocks in options[2:]))
    q, k, v = (padded(x, size) for x in (q, zeroed(k, mask), zeroed(v, mask)))
    bias = jnp.where(padded(mask, size)[:, :, None], -half_square(k), -jnp.inf)
    arrays = {"q": q, "k": k, "v": v, "bias": jnp.swapaxes(bias, 1, 2), "projection": projection}
    summary, total, peak = _summary(arrays, options)
    arrays["bias"] -= peak
    count = jnp.sum(mask, axis=1, dtype=jnp.float32)[:, None, None]
    centre = jnp.sum(v.astype(jnp.float32), axis=1) / jnp.maximum(count, 1)
    summary -= total[..., None] * centre[:, :, None]
    added = epsilon * jnp.sum(summary, axis=2) if epsilon else None
    summary = jnp.stack(parts(summary), axis=2)
    arrays |= {"summary": summary, "total": total + epsilon * count, "centre": centre}
    out, rest, offset, inverse = _call(
        functools.partial(attend_queries, epsilon=epsilon),
        "n",
        options.queries,
        _named(arrays | {"added": added}, "q projection summary total centre added"),
        [(q, "bnhd"), (q, "bnhd"), (arrays["bias"], "bhn"), (arrays["bias"], "bhn")],
        options.interpret,
    )
    return out[:, :length], arrays | {"rest": rest, "offset": offset, "inverse": inverse}


def _summary(arrays, options):
    """Return sum_j e_jr v_j [batch, heads, features, head_dim], sum_j e_jr and the peak."""
    batch, _, heads, head_dim = arrays["k"].shape
    total = jax.ShapeDtypeStruct((batch, heads, arrays["projection"].shape[1]), jnp.float32)
    summary = jax.ShapeDtypeStruct((*total.shape, head_dim), jnp.float32)
    summary, total, peaks = _call(
        functools.partial(summarise, epsilon=options.epsilon),
        "r",
        options.summary,
        _named(arrays, "projection k v bias"),
        [(summary, "bhrd"), (total, "bhr"), (total, "bhr")],
        options.interpret,
    )
    peak = jnp.max(peaks, axis=2, keepdims=True)
    shrink = jnp.exp2(peaks - peak)
    return summary * shrink[..., None], total * shrink, peak


def _backward(options, arrays, g):
    length, q = g.shape[1], arrays["q"]
    arrays = arrays | {"g": padded_to(g, q.shape[1])}
    dq, mean = _call(
        d_queries,
        "n",
        options.d_queries,
        _named(arrays, "q g rest offset inverse projection summary total"),
        [(q, "bnhd"), (arrays["inverse"], "bhn")],
        options.interpret,
    )
    arrays |= _d_summary(arrays | {"mean": mean}, options)
    dk, dv = _call(
        d_keys,
        "n",
        options.d_keys,
        _named(arrays, "k v bias projection d_summary d_total added"),
        [(q, "bnhd"), (q, "bnhd")],
        options.interpret,
    )
    return *(x[:, :length] for x in (dq, dk, dv)), None, None


def _d_summary(arrays, options):
    """Return dS in two parts, dt, and epsilon times the sum of dS over the features."""
    batch, heads, features = arrays["total"].shape
    shape = batch, heads, features // options.d_summary.features, arrays["q"].shape[3]
    summary, total, sums = _call(
        functools.partial(d_summary, epsilon=options.epsilon),
        "r",
        options.d_summary,
        _named(arrays, "projection q g offset inverse mean centre"),
        [*_named(arrays, "summary total"), (jax.ShapeDtypeStruct(shape, jnp.float32), "bhcd")],
        options.interpret,
    )
    added = options.epsilon * jnp.sum(sums, axis=2) if options.epsilon else None
    return {"d_summary": summary, "d_total": total, "added": added}


_attention.defvjp(_forward, _backward)


def _named(arrays, names):
    """Pairs of an array and its axes for `_call`."""
    return [(arrays[name], _AXES[name]) for name in names.split()]


def _call(kernel, over, blocks, inputs, outputs, interpret):
    """Run a program for each block along `over`, head and example.

    Args:
        kernel: Function of the references of its block, and of the `size` of the blocks that it
            goes through.
        over: "n" for positions or "r" for features.
        inputs, outputs: Pairs of an array (or its shape and dtype; None: no array) and its axes:
            b for examples, h heads, n positions, r features, c blocks, s parts, d head_dim.
    """
    step, size = (blocks[0], blocks[1]) if over == "n" else (blocks[1], blocks[0])
    pairs = [(x, axes) for x, axes in inputs if x is not None]
    lengths = {axis: n for x, axes in pairs for axis, n in zip(axes, x.shape, strict=True)}

    def spec(x, axes):
        if x is None:
            return None
        sides = {"b": None, "h": None, "c": None, over: step}
        shape = tuple(sides.get(axis, n) for axis, n in zip(axes, x.shape, strict=True))

        def index(i, head, example):
            numbers = {"b": example, "h": head, "c": i, over: i}
            return tuple(numbers.get(axis, 0) for axis in axes)

        return pl.BlockSpec(shape, index)

    return pl.pallas_call(
        functools.partial(kernel, size=size),
        # Programs of a head run one after the other, since they read the same arrays.
        grid=(lengths[over] // step, lengths["h"], lengths["b"]),
        in_specs=[spec(*pair) for pair in inputs],
        out_specs=[spec(*pair) for pair in outputs],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=blocks.warps, num_stages=_STAGES),
        interpret=interpret,
    )(*(x for x, _ in inputs))
