"""Linformer's product along the length, E k."""

from jaxtyping import Array, Float

from models.attention.contract import Heads, Mask
from models.attention.padding import zeroed
from models.dense import kernel_einsum


def project(
    x: Heads, mask: Mask, matrix: Float[Array, "#heads projected columns"]
) -> Float[Array, "batch projected heads head_dim"]:
    """Return the rows of `matrix` times the real positions of `x`, for each head.

    Raises:
        ValueError: Fewer columns than positions; of more, the first are used.
    """
    length = x.shape[1]
    if matrix.shape[-1] < length:
        raise ValueError(f"{length} positions, but the projection has {matrix.shape[-1]} columns")
    x = zeroed(x, mask)
    matrix = matrix[..., :length]
    heads = x.shape[2:]
    if matrix.shape[0] == 1:
        x = x.reshape(*x.shape[:2], 1, -1)
    out = kernel_einsum("hml,blhd->bmhd", matrix, x).astype(x.dtype)
    return out.reshape(*out.shape[:2], *heads)
