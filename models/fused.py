"""What a block does besides attention, in four GPU kernels that keep a row's numbers in registers.

    project:  q, k, v = (LN x) W + b, each
    finish:   y   = x + dropout(o W_o + b_o)              o: what attention returned
              out = y + dropout(W_2 dropout(gelu(W_1 LN y)))

On a GPU this part of a training step is bound by memory: XLA runs each product, normalisation and
dropout as a kernel that reads and writes all positions of the batch. Here a forward kernel reads
its inputs and writes its outputs, and nothing else. The backward kernels recompute what lies in
between and write both factors of each weight's gradient, which XLA multiplies: summed up within a
kernel, the gradients would fill the registers, and too few programs would run at a time. No
addition is atomic, so results are deterministic.

The masks of dropout are those of `models.dropout`. Results differ from `models.encoder`'s plain
form by fewer roundings to 16 bits: sums, the residual within a kernel and LayerNorm are float32,
and 16-bit numbers are only what enters a product and what is written. The error function is
Abramowitz and Stegun's 7.1.26, within 1.5e-7 but for rounding.

The kernels are Pallas's, compiled by Triton, as those of `models.attention.flash`, whose limits
they share: one GPU, reverse mode only (`jax.custom_vjp`).
"""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, UInt32

from models.attention.kernels import ROWS
from models.fused_programs import (
    Dense,
    Norm,
    Rest,
    finish_rows,
    finish_rows_backward,
    project_rows,
    project_rows_backward,
)


class _Tile(NamedTuple):
    """Rows that a program takes, and its warps."""

    rows: int
    warps: int


# With these 16 warps and more run at a time on a multiprocessor, and hardly a register is spilled,
# compiled for compute capability 9.0 at the benchmark's sizes.
_PROJECT, _PROJECT_GRADIENT = _Tile(64, 4), _Tile(32, 4)
_FINISH, _FINISH_GRADIENT = _Tile(32, 4), _Tile(32, 8)


class _Options(NamedTuple):
    epsilon: float
    dropout: float
    interpret: bool


def project(
    x: Float[Array, "*rows dim"],
    norm: Norm,
    projections: Sequence[Dense],
    *,
    epsilon: float,
    interpret: bool = False,
) -> tuple[Float[Array, "*rows dim"], tuple[Float[Array, "*rows width"], ...]]:
    """Returns `x`, through which the residual's gradient should flow, and products with LN x.

    Args:
        x: the residual stream, in 16 bits; its rows are a multiple of `kernels.ROWS`.
        norm, projections: weights, in float32, as their gradients are.
        epsilon: of the LayerNorm.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.

    Raises:
        ValueError: another number of rows.
    """
    options = _Options(epsilon, 0.0, interpret)
    same, products = _project(_rows(x), norm, tuple(projections), options)
    shape = x.shape[:-1]
    return same.reshape(x.shape), tuple(y.reshape(*shape, -1) for y in products)


def finish(
    x: Float[Array, "*rows dim"],
    attended: Float[Array, "*rows width"],
    weights: Rest,
    *,
    epsilon: float,
    dropout: float,
    seeds: tuple[UInt32[Array, "*rows"], ...] | None,
    interpret: bool = False,
) -> Float[Array, "*rows dim"]:
    """The residual stream after a block.

    Args:
        x: before the block, in 16 bits; its rows are a multiple of `kernels.ROWS`.
        attended: what attention returned, heads side by side.
        weights: in float32, as their gradients are.
        epsilon: of the LayerNorm.
        dropout: the probability of dropping an entry.
        seeds: of the rows, `models.dropout.row_seeds`, of three masks: of attention's output, of
            the hidden layer, of the perceptron's output. None: nothing is dropped.
        interpret: see `project`.

    Raises:
        ValueError: another number of rows.
    """
    options = _Options(epsilon, dropout if seeds is not None else 0.0, interpret)
    drawn = None if not options.dropout else jnp.stack([seed.reshape(-1) for seed in seeds])
    return _finish(_rows(x), _rows(attended), weights, drawn, options).reshape(x.shape)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _project(x, norm, projections, options):
    return _project_forward(x, norm, projections, options)[0]


def _project_forward(x, norm, projections, options):
    kernel = functools.partial(project_rows, epsilon=options.epsilon)
    outputs = [_like(x, p.kernel.shape[1]) for p in projections]
    weights = norm, _narrow(projections, x.dtype)
    products = _call(kernel, [x], weights, outputs, [], _PROJECT, options)
    return (x, tuple(products)), (x, norm, projections)


def _project_backward(options, saved, gradients):
    x, norm, projections = saved
    g, of_products = gradients
    kernel = functools.partial(project_rows_backward, epsilon=options.epsilon)
    weights = norm, _narrow(projections, x.dtype)
    sums = norm, tuple(p.bias for p in projections)
    (dx, normed), (d_norm, d_biases) = _backward_call(
        kernel, [x, g, *of_products], weights, [x, x], sums, _PROJECT_GRADIENT, options
    )
    kernels = [
        _kernel_gradient(normed, d, p) for d, p in zip(of_products, projections, strict=True)
    ]
    return dx, d_norm, tuple(map(Dense, kernels, d_biases))


_project.defvjp(_project_forward, _project_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _finish(x, attended, weights, seeds, options):
    return _finish_forward(x, attended, weights, seeds, options)[0]


def _finish_forward(x, attended, weights, seeds, options):
    kernel = functools.partial(finish_rows, epsilon=options.epsilon, dropout=options.dropout)
    narrow = _narrow(weights, x.dtype), seeds
    (out,) = _call(kernel, [x, attended], narrow, [x], [], _FINISH, options)
    return out, (x, attended, weights, seeds)


def _finish_backward(options, saved, g):
    x, attended, weights, seeds = saved
    kernel = functools.partial(
        finish_rows_backward, epsilon=options.epsilon, dropout=options.dropout
    )
    narrow = _narrow(weights, x.dtype), seeds
    wide = _like(x, weights.mlp_in.kernel.shape[1])
    biases = [weights.output.bias, weights.mlp_in.bias, weights.mlp_out.bias]
    (dx, d_attended, *factors), (d_norm, d_biases) = _backward_call(
        kernel,
        [x, attended, g],
        narrow,
        [x, attended, x, x, wide, wide, x],
        (weights.norm, biases),
        _FINISH_GRADIENT,
        options,
    )
    d_output, normed, d_mlp_in, hidden, d_mlp_out = factors
    output = _kernel_gradient(attended, d_output, weights.output)
    mlp_in = _kernel_gradient(normed, d_mlp_in, weights.mlp_in)
    mlp_out = _kernel_gradient(hidden, d_mlp_out, weights.mlp_out)
    output, mlp_in, mlp_out = map(Dense, (output, mlp_in, mlp_out), d_biases)
    return dx, d_attended, Rest(output, d_norm, mlp_in, mlp_out), None


_finish.defvjp(_finish_forward, _finish_backward)


def _kernel_gradient(x, d, dense):
    """The gradient of a product's kernel, given its input and its output's gradient."""
    return jnp.einsum("ri,ro->io", x, d, preferred_element_type=dense.kernel.dtype)


def _like(x, width):
    return jax.ShapeDtypeStruct((len(x), width), x.dtype)


def _narrow(weights, dtype):
    """The kernels in 16 bits, for products; biases and LayerNorms stay as they are."""
    return jax.tree.map(lambda w: w.astype(dtype) if w.ndim == 2 else w, weights)


def _backward_call(kernel, arrays, weights, outputs, summed, tile, options):
    """Runs `kernel(row refs, weight refs, output refs) -> sums` for each block of rows.

    Returns the outputs, and the sums over all rows in the structure and format of `summed`.
    """
    like, tree = jax.tree.flatten(summed)
    *results, shares = _call(kernel, arrays, weights, outputs, like, tile, options)
    ends = list(itertools.accumulate(x.size for x in like))
    sums = jnp.split(jnp.sum(shares, axis=0), ends[:-1])
    sums = [x.astype(y.dtype) for x, y in zip(sums, like, strict=True)]
    return results, jax.tree.unflatten(tree, sums)


def _call(kernel, arrays, weights, outputs, summed, tile, options):
    """A program for each block of rows; each writes its own share of the sums, side by side."""
    leaves, tree = jax.tree.flatten(weights)
    programs, rest = divmod(len(arrays[0]), tile.rows)
    if rest:
        raise ValueError(f"{len(arrays[0])} rows, which are no multiple of {ROWS}")

    def run(*refs):
        blocks, refs = refs[: len(arrays)], refs[len(arrays) :]
        held, refs = jax.tree.unflatten(tree, refs[: len(leaves)]), refs[len(leaves) :]
        sums = kernel(blocks, held, refs[: len(outputs)])
        start = 0
        for share in jax.tree.leaves(sums):
            refs[-1][pl.ds(start, share.size)] = share
            start += share.size

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs]
    specs = [_block(x, tile.rows) for x in outputs]
    if summed:
        width = sum(x.size for x in summed)
        shapes.append(jax.ShapeDtypeStruct((programs, width), jnp.float32))
        specs.append(pl.BlockSpec((None, width), lambda i: (i, 0)))
    held = [_weight(x, tile.rows) for x in leaves]
    return pl.pallas_call(
        run,
        grid=(programs,),
        in_specs=[*(_block(x, tile.rows) for x in arrays), *held],
        out_specs=specs,
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=2),
        interpret=options.interpret,
    )(*arrays, *leaves)


def _block(x, rows):
    return pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))


def _weight(x, rows):
    """All of a weight; of seeds, [3, rows], those of a program's rows."""
    if jnp.issubdtype(x.dtype, jnp.integer):
        return pl.BlockSpec((len(x), rows), lambda i: (0, i))
    return pl.BlockSpec(x.shape, lambda i: (0,) * x.ndim)
