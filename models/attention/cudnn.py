"""Exact attention by cuDNN's fused kernel, for any mask and any number of keys.

The kernel takes lengths, not masks with holes. Attention does not depend on the order of the
keys, so the real ones are moved to the front, in order, and counted; queries stay in place.
Time O(length^2 head_dim), memory O(length head_dim).

The kernel supports 16-bit inputs and head_dim up to 128 in multiples of 8, but no dropout of
attention weights. It runs on NVIDIA's GPUs from Ampere on.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from models.attention.packing import make_packing, pack
from models.attention.padding import padded
from models.machine import Machine, this_machine

_MAX_HEAD_DIM = 128  # 256 from Hopper on


def supports(dtype: DTypeLike, head_dim: int, machine: Machine) -> bool:
    """Whether cuDNN's kernel supports these inputs on this machine."""
    return _objection(dtype, head_dim, machine) is None


def cudnn_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"] | None,
) -> Float[Array, "batch queries heads head_dim"]:
    """Compute softmax attention over the real keys (mask None: all) by cuDNN.

    Raises:
        ValueError: Inputs that are not 16-bit, an unsupported head_dim, or an unsupported device.
    """
    objection = _objection(q.dtype, q.shape[-1], this_machine())
    if objection:
        raise ValueError(f"implementation='cudnn' {objection}")
    return prefix_attention(q, k, v, mask, implementation="cudnn")


def prefix_attention(
    q: Float[Array, "batch queries heads head_dim"],
    k: Float[Array, "batch keys heads head_dim"],
    v: Float[Array, "batch keys heads head_dim"],
    mask: Bool[Array, "batch keys"] | None,
    *,
    implementation: str,
) -> Float[Array, "batch queries heads head_dim"]:
    """Run `jax.nn.dot_product_attention` on the real keys (mask None: all), moved to the front."""
    queries = q.shape[1]
    k, v, key_lengths = _move_to_front(k, v, mask)
    query_lengths = jnp.full_like(key_lengths, queries)
    like = (q[:, 0, 0, 0] > 0) | (k[:, 0, 0, 0] > 0) | (v[:, 0, 0, 0] > 0) | (key_lengths > 0)
    out = jax.nn.dot_product_attention(
        # JAX refuses to differentiate odd lengths.
        *(_batched_like(like, padded(x, 2)) for x in (q, k, v)),
        query_seq_lengths=_lengths_like(like, query_lengths),
        key_value_seq_lengths=_lengths_like(like, key_lengths),
        implementation=implementation,
    )
    return _batched_like(like, out)[:, :queries]


def _move_to_front(k, v, mask):
    """The real keys and values in order, followed by zeros, and their number."""
    if mask is None:
        return k, v, jnp.full(len(k), k.shape[1], jnp.int32)
    # For masks known to be full, XLA would spend seconds of compile time on folding the sort.
    packing = make_packing(jax.lax.optimization_barrier(mask), mask.shape[1])
    # Without any real token one key is counted; its value is 0, and so is the output.
    counts = jnp.maximum(jnp.sum(mask, axis=1, dtype=jnp.int32), 1)
    return pack(k, packing), pack(v, packing), counts


@jax.custom_vjp
def _batched_like(like, x):
    """Return x unchanged, but batched under `vmap` if the bools `like` are.

    JAX's batching rules for the kernel fail unless all arguments and the gradient of the output are
    batched. Selecting between x and x by a value that depends on all inputs makes them so. It costs
    nothing, since XLA removes it. The gradient is written out because JAX's own would be a sum of
    two selections, which XLA does not remove.
    """
    return jnp.where(like.reshape(-1, *(1,) * (x.ndim - 1)), x, x)


_batched_like.defvjp(
    lambda like, x: (_batched_like(like, x), like), lambda like, g: (None, _batched_like(like, g))
)


def _lengths_like(like, lengths):
    """`_batched_like` for lengths, which XLA must not undo.

    They are the same for all seeds. If XLA saw that, it would not divide them among the devices as
    it does queries, and a device would read those of other sequences.
    """
    one, other = jax.lax.optimization_barrier((lengths, lengths))
    return jnp.where(like, one, other)


def _objection(dtype, head_dim, machine):
    if jnp.dtype(dtype).itemsize != 2:
        return (
            f"takes 16-bit inputs, not {jnp.dtype(dtype).name}: set dtype to bfloat16 or choose "
            "'chunked'"
        )
    if head_dim % 8 or head_dim > _MAX_HEAD_DIM:
        return (
            f"takes heads of a multiple of 8 up to {_MAX_HEAD_DIM} wide, not {head_dim}: change "
            "the head size or choose 'chunked'"
        )
    if not machine.has_cudnn:
        return (
            "needs an NVIDIA GPU of compute capability 8.0 or more, and JAX runs on another "
            f"device ('{machine.backend}'): choose 'chunked' or 'xla'"
        )
    return None
