"""Linformer's product along the length: E k, and on a CPU its gradient, block by block."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.attention.blocks import Stored, read_block, restored, stored, write_block
from models.attention.contract import Heads, Mask
from models.dense import kernel_einsum
from models.dtypes import accumulation_dtype
from models.machine import this_backend

_POSITIONS = 4096  # of a block


def project(
    x: Heads, mask: Mask, matrix: Float[Array, "#heads projected columns"]
) -> Float[Array, "batch projected heads head_dim"]:
    """The rows of `matrix` times the real positions of `x`, for each head.

    Raises:
        ValueError: fewer columns than positions; with more, the first are used.
    """
    length = x.shape[1]
    if matrix.shape[-1] < length:
        raise ValueError(f"{length} positions, but the projection has {matrix.shape[-1]} columns")
    x = jnp.where(mask[:, :, None, None], x, 0)
    matrix = matrix[..., :length]
    heads = x.shape[2:]
    if matrix.shape[0] == 1:
        x = x.reshape(*x.shape[:2], 1, -1)
    product = _product if this_backend() == "cpu" else _whole_product
    out = product(matrix, x)
    return out.reshape(*out.shape[:2], *heads)


def _whole_product(matrix: Array, x: Array) -> Array:
    return kernel_einsum("hml,blhd->bmhd", matrix, x).astype(x.dtype)


@jax.custom_vjp
def _product(
    matrix: Float[Array, "heads projected length"], x: Float[Array, "batch length heads dim"]
) -> Float[Array, "batch projected heads dim"]:
    """`_whole_product`, computed on a CPU block by block along the positions.

    At 65,536 positions (256 rows, 2 heads of 32, one busy core) it took 0.5 to 0.6 times the time
    of XLA's product with JAX 0.10.2; with JAX 0.12 0.45 times in bfloat16, and as long in float32.
    """
    length, wide = x.shape[1], accumulation_dtype(x.dtype)

    def of(rows: Array, block: Array) -> Array:
        rows = rows.astype(block.dtype)
        return jnp.einsum("hml,blhd->bmhd", rows, block, preferred_element_type=wide)

    def add_block(number: Array, total: Array) -> Array:
        rows = read_block(matrix, number, _POSITIONS, axis=2)
        return total + of(rows, read_block(kept, number, _POSITIONS, axis=1))

    rest, kept = length % _POSITIONS, stored(x)
    out = of(matrix[..., length - rest :], x[:, length - rest :]) if rest else 0
    if length > rest:
        zeros = jnp.zeros((x.shape[0], matrix.shape[1], *x.shape[2:]), wide)
        out += jax.lax.fori_loop(0, length // _POSITIONS, add_block, zeros)
    return out.astype(x.dtype)


def _product_forward(matrix: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return _product(matrix, x), (matrix, x)


def _product_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    matrix, x = saved
    (d_matrix,) = jax.vjp(lambda matrix: _whole_product(matrix, x), matrix)[1](gradient)
    return d_matrix, _input_gradient(matrix, gradient, x.shape[1])


def _input_gradient(matrix: Array, gradient: Array, length: int) -> Array:
    """The gradient of x; by blocks where the matrix must be rounded to the gradient's dtype."""

    def of(rows: Array) -> Array:
        return jnp.einsum("hml,bmhd->blhd", rows.astype(gradient.dtype), gradient)

    def write(number: Array, out: Array | Stored) -> Array | Stored:
        rows = read_block(matrix, number, _POSITIONS, axis=2)
        return write_block(out, of(rows), number, axis=1)

    rest = length % _POSITIONS
    if rest == length or matrix.dtype == gradient.dtype:
        return of(matrix)
    batch, _, heads, dim = gradient.shape
    zeros = jnp.zeros((batch, length - rest, heads, dim), gradient.dtype)
    out = restored(jax.lax.fori_loop(0, length // _POSITIONS, write, stored(zeros)))
    return jnp.concatenate([out, of(matrix[..., length - rest :])], axis=1) if rest else out


_product.defvjp(_product_forward, _product_backward)
