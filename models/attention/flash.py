"""Exact attention with dropout of weights in three GPU kernels: FlashAttention (arXiv 2205.14135).

    out_i = sum_j m_ij p_ij v_j / (1 - dropout)       p_ij = exp(s_ij - logsumexp_i)
    s_ij = q_i . k_j / sqrt(head_dim)                 over the real positions j

m_ij is 0 where dropout removes the weight and 1 elsewhere. Blocks of scores live in registers: the
forward kernel runs one program per head and block of queries, which goes through the keys with the
online softmax (arXiv 1805.02867) and writes only the output and logsumexp. The backward pass
recomputes the scores from these, with n_i = (1 - dropout) g_i . out_i, the mean of dp under p:

    dp_ij = g_i . v_j    ds_ij = m_ij p_ij dp_ij - p_ij n_i    (each up to the factors at the end)
    dv_j = sum_i m_ij p_ij g_i / (1 - dropout)
    dk_j = sum_i ds_ij q_i c    dq_i = sum_j ds_ij k_j c    c = 1 / (sqrt(head_dim) (1 - dropout))

One kernel over blocks of keys computes dk and dv, another over blocks of queries dq: seven block
products instead of five, but no sum is split between programs. There are no atomic additions, so
results are deterministic. The m are those of the other implementations: 32-bit arithmetic on a seed
per key and the query's number (`models.dropout`).

Time O(length^2 head_dim), memory O(length head_dim). Blocks of keys behind the last real one are
left out, and those of queries where it is told which are padding. Sums are float32; products are of
the inputs' format, those of float32 in the precision that `jax.default_matmul_precision` asks for
(TF32 unless it asks for "highest" or "float32", which take no tensor cores).

The kernels are Pallas's, compiled by Triton. JAX warns from 0.11 on that it will remove Pallas's
Triton backend. XLA cannot divide a kernel among devices: on a mesh of several each computes
everything.

Reverse mode only (`jax.custom_vjp`): no `jax.jvp`, no second derivatives.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float

from models.attention.blocks import padded
from models.attention.chunked import Blocks
from models.attention.flash_programs import flash_dk_dv, flash_dq, flash_forward
from models.dropout import keep_probability, weight_seeds
from models.kernel_choice import LEAST_SIDE, is_power_of_two
from models.machine import this_backend

# The fastest of some on an H200 (`python -m benchmarks.gpu_kernels --kernels=flash`). Wide heads
# and float32, which takes no tensor cores, leave room for less; their sizes were not timed.
_FORWARD, _BACKWARD = Blocks(queries=64, keys=128), Blocks(queries=64, keys=64)
_SMALL, _NARROW = Blocks(queries=32, keys=32), 64
_WARPS, _STAGES = 4, 3

_FORMATS = ("float32", "bfloat16", "float16")


class _Options(NamedTuple):
    dropout: float
    forward: Blocks
    backward: Blocks
    interpret: bool


def flash_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"],
    *,
    query_mask: Bool[Array, "batch queries"] | None = None,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    blocks: Blocks | None = None,
    interpret: bool = False,
) -> Float[Array, "batch queries heads head_dim"]:
    """Softmax attention over the real keys, in O(queries + keys) memory forward and backward.

    Args:
        q, k, v: queries, keys and values, of one format.
        mask: which keys are real; a query without any gets 0.
        query_mask: which queries are real; None: all. What others get is arbitrary, 0 in blocks
            behind the last real one; the gradients of their outputs have to be 0.
        dropout: the probability of dropping an attention weight; the others grow accordingly.
        key: where dropout masks are drawn from; None: no dropout.
        blocks: sizes of a block in all kernels, powers of two from 16 on; None: those that GPUs
            are to take.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.

    Raises:
        ValueError: a format or a width of heads that the kernels do not take, or no GPU.
    """
    _check(q, k, v, interpret)
    batch, length, heads, head_dim = q.shape
    dropout = 0.0 if key is None else dropout
    narrow = q.dtype.itemsize == 2 and head_dim <= _NARROW
    forward, backward = (_FORWARD, _BACKWARD) if narrow else (_SMALL, _SMALL)
    lengths = length, k.shape[1]
    forward, backward = (blocks or _fitting(each, lengths) for each in (forward, backward))
    options = _Options(dropout, forward, backward, interpret)
    of_queries, of_keys = (math.lcm(*sides) for sides in zip(forward, backward, strict=True))
    q, k, v = padded(q, of_queries), padded(k, of_keys), padded(v, of_keys)
    bias = padded(jnp.where(mask, 0.0, -jnp.inf).astype(jnp.float32), of_keys, -jnp.inf)
    seeds = None
    if dropout > 0:
        seeds = jnp.swapaxes(weight_seeds(key, (batch, lengths[1], heads)), 1, 2)
        seeds = jnp.pad(seeds, ((0, 0), (0, 0), (0, k.shape[1] - lengths[1])))
    counts = None if query_mask is None else _count(query_mask), _count(mask)
    return _attention(q, k, v, bias, seeds, counts, options)[:, :length]


def _count(mask):
    """Positions of each example up to its last real one, [batch, 1]."""
    numbers = 1 + jnp.arange(mask.shape[1], dtype=jnp.int32)
    return jnp.max(jnp.where(mask, numbers[None], 0), axis=1, keepdims=True)


def _fitting(blocks, lengths):
    """Blocks no longer than what they cut, of queries and keys, but a power of two."""
    shortest = (max(LEAST_SIDE, 1 << (length - 1).bit_length()) for length in lengths)
    return Blocks(*map(min, blocks, shortest))


def _check(q, k, v, interpret):
    formats = sorted({x.dtype.name for x in (q, k, v)})
    if len(formats) > 1 or formats[0] not in _FORMATS:
        raise ValueError(
            f"implementation='flash' takes q, k and v of one format among {', '.join(_FORMATS)}, "
            f"not {', '.join(formats)}: choose 'chunked' or 'xla'"
        )
    if (head_dim := q.shape[-1]) < LEAST_SIDE or not is_power_of_two(head_dim):
        raise ValueError(
            f"implementation='flash' takes a head_dim that is a power of two from "
            f"{LEAST_SIDE} on, not {head_dim}: change the head size or choose 'chunked'"
        )
    if not interpret and this_backend() != "gpu":
        raise ValueError(
            "implementation='flash' needs an NVIDIA GPU (Ampere or later), and JAX runs on another "
            "device "
            f"('{this_backend()}'): choose 'chunked' or 'xla'"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _attention(q, k, v, bias, seeds, counts, options):
    """Of whole blocks.

    Args:
        bias: [batch, keys], is added to scores.
        seeds: [batch, heads, keys].
        counts: of queries (None: all) and of keys, `_count`; blocks beyond are not computed.
    """
    return _forward(q, k, v, bias, seeds, counts, options)[0]


def _forward(q, k, v, bias, seeds, counts, options):
    """Returns the output and what the backward pass needs."""
    queries, keys = options.forward
    # Here, so that gradients, which are 0 at padding anyway, need no other pass. In the kernels'
    # loops it would stand between the copies of blocks to shared memory and their products.
    k, v = (jnp.where(bias[:, :, None, None] == 0, x, 0) for x in (k, v))
    # Of each query, to base 2: [batch, heads, queries].
    logsumexp = jax.ShapeDtypeStruct((q.shape[0], q.shape[2], q.shape[1]), jnp.float32)
    out, logsumexp = _call(
        functools.partial(flash_forward, keys=keys, dropout=options.dropout),
        q.shape[1] // queries,
        [(x, None) for x in counts]
        + [(q, queries), (k, None), (v, None), (bias, None), (seeds, None)],
        [(q, queries), (logsumexp, queries)],
        options.interpret,
    )
    return out, (q, k, v, bias, seeds, counts, out, logsumexp)


def _backward(options, saved, g):
    q, k, v, bias, seeds, counts, out, logsumexp = saved
    counts = [(x, None) for x in counts]
    queries, keys = options.backward
    # With dropout too: g . out is the mean of dp under p, since both hold the same mask.
    mean_dp = jnp.sum(g.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    mean_dp *= keep_probability(options.dropout)
    of_keys = [(k, keys), (v, keys), (bias, keys), (seeds, keys)]
    of_queries = [(x, None) for x in (q, g, logsumexp, jnp.swapaxes(mean_dp, 1, 2))]
    dk, dv = _call(
        functools.partial(flash_dk_dv, queries=queries, dropout=options.dropout),
        k.shape[1] // keys,
        counts + of_keys + of_queries,
        [(k, keys), (v, keys)],
        options.interpret,
    )
    (dq,) = _call(
        functools.partial(flash_dq, keys=keys, dropout=options.dropout),
        q.shape[1] // queries,
        counts + [(x, None) for x, _ in of_keys] + [(x, queries) for x, _ in of_queries],
        [(q, queries)],
        options.interpret,
    )
    return dq, dk, dv, None, None, None


_attention.defvjp(_forward, _backward)


def _call(kernel, count, inputs, outputs, interpret):
    """Runs `count` programs for each head of each example.

    Args:
        inputs, outputs: pairs of an array (or its shape and dtype) and the positions in a block; a
            program gets the block of its own number, or with None all positions of its head. No
            array is passed on as None.
    """
    batch, _, heads, _ = outputs[0][0].shape
    return pl.pallas_call(
        kernel,
        # Programs of a head come one after the other: they share what they read.
        grid=(count, heads, batch),
        in_specs=[_spec(*pair) for pair in inputs],
        out_specs=[_spec(*pair) for pair in outputs],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
    )(*(x for x, _ in inputs))


def _spec(x, size):
    """What programs get of `x`, [batch, length, heads, head_dim] or [batch(, heads), length]."""
    if x is None:
        return None
    if x.ndim == 4:
        shape = (None, size or x.shape[1], None, x.shape[3])
        return pl.BlockSpec(shape, lambda i, head, example: (example, i if size else 0, head, 0))
    shape = (*(None,) * (x.ndim - 1), size or x.shape[-1])
    return pl.BlockSpec(shape, lambda i, *of: (*of[::-1][: x.ndim - 1], i if size else 0))
