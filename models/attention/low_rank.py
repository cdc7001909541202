"""Softmax attention between a sequence and a few positions that represent it.

Linformer's projected keys are such positions, and so are Nyström's landmarks, which also attend to
the sequence. On a GPU, the blocks of scores of `models.attention.chunked` would be most of the
memory traffic of a training step. So 16-bit inputs on NVIDIA's GPUs go to `models.attention.flash`
where its kernels are preferred, else to cuDNN (`models.attention.cudnn`), for which real keys have
to be moved to the front.

Time O(positions few head_dim).
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models import kernel_choice
from models.attention import cudnn
from models.attention.chunked import chunked_attention
from models.attention.padding import zeroed
from models.dtypes import common_dtype
from models.machine import this_machine


def low_rank_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"] | None = None,
    *,
    query_mask: Bool[Array, "batch queries"] | None = None,
) -> Float[Array, "batch queries heads head_dim"]:
    """Compute softmax(q k^T / sqrt(head_dim)) v over the real keys.

    Queries may have another dtype than keys and values. For kernels the wider is cast to the
    narrower, as where few float32 positions meet a sequence in 16 bits; otherwise, and where keys
    and values or two 16-bit dtypes differ, blocks are cast to the wider one.

    Args:
        q, k, v: Either the queries, or the keys and values, are few; the output has the dtype of q.
        mask: Which keys are real; None: all.
        query_mask: Which queries are real; None: all. The contents of the others reach no gradient,
            and their outputs are arbitrary.
    """
    narrow = min(q.dtype, k.dtype, key=lambda dtype: dtype.itemsize)
    alike = k.dtype == v.dtype and common_dtype(q.dtype, k.dtype) in (q.dtype, k.dtype)
    machine, head_dim = this_machine(), q.shape[-1]
    use_flash = alike and kernel_choice.preferred_for_heads(narrow, head_dim, machine)
    key_mask = jnp.ones(k.shape[:2], bool) if mask is None else mask
    if use_flash or (alike and cudnn.supports(narrow, head_dim, machine)):
        if query_mask is not None:
            q = zeroed(q, query_mask)
        arrays = [x.astype(narrow) for x in (q, k, v)]
        if use_flash:
            # Pallas is slow to import.
            from models.attention.flash import flash_attention

            return flash_attention(*arrays, key_mask, query_mask=query_mask).astype(q.dtype)
        return cudnn.cudnn_attention(*arrays, mask).astype(q.dtype)
    return chunked_attention(q, k, v, key_mask, query_mask=query_mask)
