"""Softmax attention between a sequence and a few positions that stand for it.

Linformer's projected keys are such positions, and so are Nyström's landmarks, which also attend to
the sequence. On a GPU, the blocks of scores of `models.attention.chunked` would be most of what a
training step moves through memory. So 16-bit inputs on NVIDIA's GPUs go to
`models.attention.flash`, where its kernels are preferred, else to cuDNN (`models.attention.cudnn`),
which needs real keys to be moved to the front.

Time O(positions few head_dim).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models import kernel_choice
from models.attention import cudnn
from models.attention.chunked import chunked_attention
from models.machine import this_machine


def low_rank_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"] | None = None,
    *,
    query_mask: Bool[Array, "batch queries"] | None = None,
) -> Float[Array, "batch queries heads head_dim"]:
    """softmax(q k^T / sqrt(head_dim)) v over the real keys.

    The few may have a wider format than the sequence. For kernels they are converted to that of the
    sequence; otherwise blocks of the sequence are converted to the wider one.

    Args:
        q, k, v: the queries, or the keys and values, are few; the output has the format of q.
        mask: which keys are real; None: all.
        query_mask: which queries are real; None: all. What others hold reaches no gradient, and
            what they get is arbitrary.
    """
    sequence = min(q.dtype, k.dtype, key=lambda dtype: dtype.itemsize)
    machine, head_dim = this_machine(), q.shape[-1]
    flash = kernel_choice.preferred_for_heads(sequence, head_dim, machine)
    if flash or cudnn.supports(sequence, head_dim, machine):
        if query_mask is not None:
            q = jnp.where(query_mask[:, :, None, None], q, 0)
        arrays = [x.astype(sequence) for x in (q, k, v)]
        if flash:
            return _flash(*arrays, mask, query_mask).astype(q.dtype)
        return cudnn.cudnn_attention(*arrays, mask).astype(q.dtype)
    return chunked_attention(q, k, v, _all_if_none(mask, k), query_mask=query_mask)


def _flash(q, k, v, mask, query_mask):
    # Here, since Pallas takes a fifth of a second to import.
    from models.attention.flash import flash_attention

    return flash_attention(q, k, v, _all_if_none(mask, k), query_mask=query_mask)


def _all_if_none(mask, k):
    return jnp.ones(k.shape[:2], bool) if mask is None else mask
