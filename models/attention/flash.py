"""FlashAttention (arXiv 2205.14135): exact attention with dropout of weights in three GPU kernels.

    out_i = sum_j m_ij p_ij v_j / (1 - dropout)       p_ij = exp(s_ij - logsumexp_i)
    s_ij = q_i . k_j / sqrt(head_dim)                 over the real positions j

m_ij is 0 where dropout removes the weight and 1 elsewhere. Blocks of scores stay in registers: the
forward kernel runs one program per head and block of queries, which goes through the keys with the
online softmax (arXiv 1805.02867) and writes only the output and logsumexp. The backward pass
recomputes the scores from these, with n_i = (1 - dropout) g_i . out_i, the mean of dp under p:

    dp_ij = g_i . v_j    ds_ij = m_ij p_ij dp_ij - p_ij n_i    (each up to the factors at the end)
    dv_j = sum_i m_ij p_ij g_i / (1 - dropout)
    dk_j = sum_i ds_ij q_i c    dq_i = sum_j ds_ij k_j c    c = 1 / (sqrt(head_dim) (1 - dropout))

One kernel over blocks of keys computes dk and dv, another over blocks of queries dq: seven block
products instead of five, but no sum is split between programs. There are no atomic additions, so
results are deterministic. The m are those of the other implementations: 32-bit arithmetic on a seed
per key and the query's index (`models.dropout`).

Time O(length^2 head_dim), memory O(length head_dim). Blocks of keys after the last real one are
skipped, and those of queries if a `query_mask` is given. Sums are float32; products take the
inputs' dtype, for float32 in the precision set by `jax.default_matmul_precision` (TF32 unless it is
"highest" or "float32", which use no tensor cores).

The kernels are Pallas's, compiled by Triton. Since 0.11 JAX warns that it will remove Pallas's
Triton backend. XLA cannot partition a kernel: on a mesh of several devices each of them computes
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

from models.attention.blocks import Blocks
from models.attention.flash_programs import flash_dk_dv, flash_dq, flash_forward
from models.attention.padding import ends, padded
from models.dropout import keep_probability, weight_seeds
from models.kernel_choice import LEAST_SIDE, is_power_of_two
from models.machine import this_machine

# The fastest of some on an H200 (`python -m benchmarks.gpu_kernels --kernels=flash`). With wide
# heads or float32 only smaller blocks fit; their sizes were not timed.
_FORWARD, _BACKWARD = Blocks(queries=64, keys=128), Blocks(queries=64, keys=64)
_SMALL, _NARROW_HEAD_DIM = Blocks(queries=32, keys=32), 64
_WARPS, _STAGES = 4, 3

_DTYPES = ("float32", "bfloat16", "float16")


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
    """Compute softmax attention in O(queries + keys) memory, forward and backward.

    Args:
        q, k, v: Queries, keys and values, of one dtype.
        mask: Which keys are real; a query without any gets 0.
        query_mask: Which queries are real; None: all. Outputs of the others are arbitrary, 0 in
            blocks after the last real one; the gradients of their outputs must be 0.
        dropout: Probability of dropping an attention weight; the others are scaled up.
        key: PRNG key of the dropout masks; None: no dropout.
        blocks: Size of a block in all kernels, powers of two from 16 on; None: the sizes tuned for
            GPUs.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.

    Raises:
        ValueError: A dtype or head_dim that the kernels do not support, or no GPU.
    """
    _check(q, k, v, interpret)
    batch, length, heads, head_dim = q.shape
    dropout = 0.0 if key is None else dropout
    narrow = q.dtype.itemsize == 2 and head_dim <= _NARROW_HEAD_DIM
    forward, backward = (_FORWARD, _BACKWARD) if narrow else (_SMALL, _SMALL)
    lengths = length, k.shape[1]
    forward, backward = (blocks or _fitting(sizes, lengths) for sizes in (forward, backward))
    options = _Options(dropout, forward, backward, interpret)
    query_size, key_size = (math.lcm(*sizes) for sizes in zip(forward, backward, strict=True))
    q, k, v = padded(q, query_size), padded(k, key_size), padded(v, key_size)
    bias = jnp.where(mask, 0, jnp.float32(-jnp.inf))
    bias = padded(bias, key_size, -jnp.inf)
    seeds = None
    if dropout > 0:
        seeds = padded(weight_seeds(key, (batch, lengths[1], heads)), key_size)
        seeds = jnp.swapaxes(seeds, 1, 2)
    counts = tuple(None if x is None else ends(x)[:, None] for x in (query_mask, mask))
    return _attention(q, k, v, bias, seeds, counts, options)[:, :length]


def _fitting(blocks, lengths):
    """Limit `blocks` to the numbers of queries and keys, rounded up to powers of two."""
    shortest = (max(LEAST_SIDE, 1 << (length - 1).bit_length()) for length in lengths)
    return Blocks(*map(min, blocks, shortest))


def _check(q, k, v, interpret):
    dtypes = sorted({x.dtype.name for x in (q, k, v)})
    if len(dtypes) > 1 or dtypes[0] not in _DTYPES:
        raise ValueError(
            f"implementation='flash' takes q, k and v of one dtype among {', '.join(_DTYPES)}, "
            f"not {', '.join(dtypes)}: choose 'chunked' or 'xla'"
        )
    if (head_dim := q.shape[-1]) < LEAST_SIDE or not is_power_of_two(head_dim):
        raise ValueError(
            f"implementation='flash' takes a head_dim that is a power of two from "
            f"{LEAST_SIDE} on, not {head_dim}: change the head size or choose 'chunked'"
        )
    machine = this_machine()
    if not (interpret or machine.has_cudnn or machine.runs_kernels):
        raise ValueError(
            "implementation='flash' needs an NVIDIA GPU (Ampere or later), and JAX runs on another "
            f"device ('{machine.backend}'): choose 'chunked' or 'xla'"
        )


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _attention(q, k, v, bias, seeds, counts, options):
    """`flash_attention` for lengths that are multiples of the block sizes.

    Args:
        bias: Bias [batch, keys] added to scores.
        seeds: Dropout seeds [batch, heads, keys].
        counts: `ends` of queries (None: all) and of keys, [batch, 1]; blocks beyond are skipped.
    """
    return _forward(q, k, v, bias, seeds, counts, options)[0]


def _forward(q, k, v, bias, seeds, counts, options):
    """Return the output and the residuals of the backward pass."""
    queries, keys = options.forward
    # Masked inside the custom gradient, so that gradients, which are 0 at padding anyway, need no
    # further pass. Masking in the kernels' loops would come between the copies of blocks to shared
    # memory and their products.
    k, v = (jnp.where(bias[:, :, None, None] == 0, x, 0) for x in (k, v))
    # To base 2: [batch, heads, queries].
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
    # Also with dropout, g . out is the mean of dp under p, since both contain the same mask.
    mean_dp = jnp.sum(g.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    mean_dp *= keep_probability(options.dropout)
    key_inputs = [(k, keys), (v, keys), (bias, keys), (seeds, keys)]
    query_inputs = [(x, None) for x in (q, g, logsumexp, jnp.swapaxes(mean_dp, 1, 2))]
    dk, dv = _call(
        functools.partial(flash_dk_dv, queries=queries, dropout=options.dropout),
        k.shape[1] // keys,
        counts + key_inputs + query_inputs,
        [(k, keys), (v, keys)],
        options.interpret,
    )
    (dq,) = _call(
        functools.partial(flash_dq, keys=keys, dropout=options.dropout),
        q.shape[1] // queries,
        counts + [(x, None) for x, _ in key_inputs] + [(x, queries) for x, _ in query_inputs],
        [(q, queries)],
        options.interpret,
    )
    return dq, dk, dv, None, None, None


_attention.defvjp(_forward, _backward)


def _call(kernel, count, inputs, outputs, interpret):
    """Run `count` programs for each head of each example.

    Args:
        inputs, outputs: Pairs of an array (or its shape and dtype) and the number of positions in a
            block; a program gets the block of its own index, or with None all positions of its
            head. An array that is None is passed on as None.
    """
    batch, _, heads, _ = outputs[0][0].shape
    return pl.pallas_call(
        kernel,
        # Programs of a head run one after the other, since they read the same arrays.
        grid=(count, heads, batch),
        in_specs=[_spec(*pair) for pair in inputs],
        out_specs=[_spec(*pair) for pair in outputs],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
    )(*(x for x, _ in inputs))


def _spec(x, size):
    """Spec of a program's part of [batch, length, heads, head_dim] or [batch(, heads), length]."""
    if x is None:
        return None
    if x.ndim == 4:
        shape = (None, size or x.shape[1], None, x.shape[3])
        return pl.BlockSpec(shape, lambda i, head, example: (example, i if size else 0, head, 0))
    shape = (*(None,) * (x.ndim - 1), size or x.shape[-1])
    return pl.BlockSpec(shape, lambda i, *rest: (*rest[::-1][: x.ndim - 1], i if size else 0))
