"""Linformer's other projections: pooling and convolution over windows of consecutive positions."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from models.attention.blocks import padded, padded_to
from models.attention.contract import Heads, Mask
from models.attention.segments import segment_any, segment_max, segment_means
from models.dense import kernel_einsum, uniform_within

POOLINGS = {"mean_pool": segment_means, "max_pool": segment_max}


def pool(
    x: Heads, mask: Mask, pooling: str, *, num_windows: int, length: int
) -> tuple[Float[Array, "batch num_windows heads head_dim"], Bool[Array, "batch num_windows"]]:
    """The mean or maximum of each window's real tokens, and which windows have any.

    Args:
        pooling: a key of `POOLINGS`.
        num_windows: how many windows `length` positions are cut into, as `numpy.array_split` does.
        length: at least the length of `x`; what `x` lacks is padding.
    """
    x, mask = padded_to(x, length), padded_to(mask, length)
    pooled = POOLINGS[pooling](x, mask, num_windows)
    return pooled.astype(x.dtype), segment_any(mask, num_windows)


def convolution_kernel(
    key: PRNGKeyArray, copies: int, window: int, head_dim: int
) -> Float[Array, "copies window head_dim head_dim"]:
    """Initial weights as PyTorch's Conv."""
    shape = (copies, window, head_dim, head_dim)
    return uniform_within(window * head_dim)(key, shape)


def convolution(
    x: Heads, mask: Mask, kernel: Float[Array, "#heads window head_dim head_dim"]
) -> tuple[Float[Array, "batch windows heads head_dim"], Bool[Array, "batch windows"]]:
    """Convolution along the length whose stride is its window, without bias, 0 at padding.

    Channels (`kernel`'s third axis in, its fourth out) are mixed within a head. Also returns which
    windows hold a real token. The last window is completed with padding.
    """
    window = kernel.shape[1]
    x, mask = padded(x, window), padded(mask, window)
    x = jnp.where(mask[:, :, None, None], x, 0)
    x = x.reshape(x.shape[0], -1, window, *x.shape[2:])
    if kernel.shape[0] == 1:
        out = kernel_einsum("wio,bmwhi->bmho", kernel[0], x)
    else:
        out = kernel_einsum("hwio,bmwhi->bmho", kernel, x)
    return out.astype(x.dtype), jnp.any(mask.reshape(mask.shape[0], -1, window), axis=2)
