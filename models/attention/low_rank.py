"""Softmax attention between a sequence and a few positions that stand for it.

Linformer's projected keys are such positions, and so are Nyström's landmarks, which also attend to
the sequence. On a GPU, the blocks of scores of `models.attention.chunked` would be most of what a
training step moves through memory. So 16-bit inputs on NVIDIA's GPUs go to cuDNN
(`models.attention.cudnn`): a step of Image moves 9.6 GB instead of 20.5 with Linformer, 19.3
instead of 27.8 with Nyström (counted by `benchmarks.gpu_traffic` before there were other kernels).

Time O(positions few head_dim).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models.attention import cudnn
from models.attention.chunked import chunked_attention
from models.attention.machine import this_machine


def low_rank_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"] | None = None,
    *,
    query_mask: Bool[Array, "batch queries"] | None = None,
) -> Float[Array, "batch queries heads head_dim"]:
    """softmax(q k^T / sqrt(head_dim)) v over the real keys.

    The few may have a wider format than the sequence. For cuDNN they are converted to that of the
    sequence; otherwise blocks of the sequence are converted to the wider one.

    Args:
        q, k, v: the queries, or the keys and values, are few; the output has the format of q.
        mask: which keys are real; None: all.
        query_mask: which queries are real; None: all. What others hold reaches no gradient.
    """
    sequence = min(q.dtype, k.dtype, key=lambda dtype: dtype.itemsize)
    if cudnn.supports(sequence, q.shape[-1], this_machine()):
        if query_mask is not None:
            q = jnp.where(query_mask[:, :, None, None], q, 0)
        out = cudnn.cudnn_attention(*(x.astype(sequence) for x in (q, k, v)), mask)
        return out.astype(q.dtype)
    if mask is None:
        mask = jnp.ones(k.shape[:2], bool)
    return chunked_attention(q, k, v, mask, query_mask=query_mask)
