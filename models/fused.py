"""Everything in a block except attention, in four GPU kernels that keep rows in registers.

    project:  q, k, v = (LN x) W + b, each
    finish:   y   = x + dropout(o W_o + b_o)              o: the output of attention
              out = y + dropout(W_2 dropout(gelu(W_1 LN y)))

On a GPU this part of a training step is memory-bound: XLA runs each product, normalisation and
dropout as a kernel that reads and writes all positions of the batch. Here a forward kernel reads
its inputs and writes its outputs and the moments of LayerNorm. The backward kernels recompute all
other intermediates, and sum the gradients of the weights in registers: one or a few programs per
multiprocessor of an H100 go through the rows block by block, and each writes its share of the sums
at the end. XLA adds the shares; no addition is atomic, so results are deterministic.

The dropout masks are those of `models.dropout`. There are fewer roundings to 16 bits than in the
plain form of `models.block`: sums, the residual within a kernel and LayerNorm are float32, and only
the factors of products and the outputs are 16-bit numbers. The error function is Abramowitz and
Stegun's 7.1.26, within 1.5e-7 except for rounding.

The kernels are Pallas's, compiled by Triton, as those of `models.attention.flash`, whose limits
they share: one GPU, reverse mode only (`jax.custom_vjp`).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, UInt32

from models.fused_programs import (
    Dense,
    FinishWeights,
    Norm,
    finish_rows,
    finish_rows_backward,
    project_rows,
    project_rows_backward,
)
from models.kernel_choice import LEAST_SIDE, ROWS


class _Tile(NamedTuple):
    """Rows per block, warps per program, and number of programs, which share the blocks."""

    rows: int
    warps: int
    programs: int


# The fastest of some on an H200 (`python -m benchmarks.gpu_kernels`).
_PROJECT, _PROJECT_GRADIENT = _Tile(64, 4, 528), _Tile(32, 4, 264)
_FINISH, _FINISH_GRADIENT = _Tile(64, 4, 264), _Tile(32, 8, 132)


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
    """Project LN x; return `x` for use as the residual, and the projections.

    The backward kernel adds the gradient of the returned `x` to that through the projections.

    Args:
        x: Residual stream in 16 bits, whose number of rows is a multiple of `kernel_choice.ROWS`.
        norm, projections: Weights in float32, as their gradients are.
        epsilon: Epsilon of the LayerNorm.
        interpret: Whether to run the kernels as JAX operations, on any device, slowly.

    Raises:
        ValueError: Another number of rows.
    """
    options = _Options(epsilon, 0.0, interpret)
    same, products = _project(_rows(x), norm, tuple(projections), options)
    shape = x.shape[:-1]
    return same.reshape(x.shape), tuple(y.reshape(*shape, -1) for y in products)


def finish(
    x: Float[Array, "*rows dim"],
    attended: Float[Array, "*rows width"],
    weights: FinishWeights,
    *,
    epsilon: float,
    dropout: float,
    seeds: tuple[UInt32[Array, "*rows"], ...] | None,
    interpret: bool = False,
) -> Float[Array, "*rows dim"]:
    """Return the residual stream after a block.

    Args:
        x: Residual stream before the block, as in `project`.
        attended: Output of attention, heads side by side.
        weights: Weights in float32, as their gradients are.
        epsilon: Epsilon of the LayerNorm.
        dropout: Probability of dropping an entry.
        seeds: Row seeds (`models.dropout.row_seeds`) of the dropout masks of attention's output,
            the hidden layer and the MLP's output. None: nothing is dropped.
        interpret: See `project`.

    Raises:
        ValueError: Another number of rows.
    """
    options = _Options(epsilon, dropout if seeds is not None else 0.0, interpret)
    flat_seeds = tuple(seed.reshape(-1) for seed in seeds) if options.dropout else ()
    return _finish(_rows(x), _rows(attended), weights, flat_seeds, options).reshape(x.shape)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _project(x, norm, projections, options):
    return _project_forward(x, norm, projections, options)[0]


def _project_forward(x, norm, projections, options):
    kernel = functools.partial(project_rows, epsilon=options.epsilon)
    outputs = _moments_of(x) + [_like(x, p.kernel.shape[1]) for p in projections]
    weights = norm, projections
    (mean, inverse, *products), _ = _call(kernel, [x], weights, outputs, _PROJECT, options)
    return (x, tuple(products)), (x, (mean, inverse), weights)


def _project_backward(options, saved, gradients):
    x, moments, weights = saved
    g, d_products = gradients
    arrays = [x, *moments, g, *d_products]
    (dx,), sums = _call(
        project_rows_backward,
        arrays,
        weights,
        [x],
        _PROJECT_GRADIENT,
        options,
        weights[1],
    )
    return dx, *_through_affine(*weights, sums, x.dtype)


_project.defvjp(_project_forward, _project_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _finish(x, attended, weights, seeds, options):
    return _finish_forward(x, attended, weights, seeds, options)[0]


def _finish_forward(x, attended, weights, seeds, options):
    kernel = functools.partial(finish_rows, epsilon=options.epsilon, dropout=options.dropout)
    arrays, outputs = [x, attended, *seeds], [*_moments_of(x), x]
    (*moments, out), _ = _call(kernel, arrays, weights, outputs, _FINISH, options)
    return out, (x, attended, moments, weights, seeds)


def _finish_backward(options, saved, g):
    x, attended, moments, weights, seeds = saved
    summed = weights.output, weights.mlp_in, weights.mlp_out
    (dx, d_attended), (output, mlp_in, mlp_out) = _call(
        functools.partial(finish_rows_backward, dropout=options.dropout),
        [x, attended, *moments, g, *seeds],
        weights,
        [x, attended],
        _FINISH_GRADIENT,
        options,
        summed,
    )
    norm, (mlp_in,) = _through_affine(weights.norm, [weights.mlp_in], [mlp_in], x.dtype)
    return dx, d_attended, FinishWeights(output, norm, mlp_in, mlp_out), None


_finish.defvjp(_finish_forward, _finish_backward)


def _through_affine(norm, products, sums, dtype):
    """Gradients of a LayerNorm's scale and bias and of the weights of products with its output.

    With sums over rows, the gradient d of a product's output, and x^ before scale a and bias c:

        dW_ij = a_i sum x^_i d_j + c_i sum d_j    da_i = sum_j W_ij sum x^_i d_j
        db_j = sum d_j                            dc_i = sum_j W_ij sum d_j

    so that the kernels sum neither da nor dc.
    """
    scale, shift, gradients = 0, 0, []
    for weights, (kernel_sum, bias_sum) in zip(products, sums, strict=True):
        narrow = weights.kernel.astype(dtype).astype(kernel_sum.dtype)
        scale += jnp.sum(narrow * kernel_sum, axis=1)
        shift += jnp.sum(narrow * bias_sum[None], axis=1)
        kernel = norm.scale[:, None] * kernel_sum + jnp.outer(norm.bias, bias_sum)
        gradients.append(Dense(kernel, None if weights.bias is None else bias_sum))
    return Norm(scale, shift), tuple(gradients)


def _moments_of(x):
    """Outputs of a forward kernel for LayerNorm's moments; they save its backward two sums."""
    return [jax.ShapeDtypeStruct((len(x),), jnp.float32)] * 2


def _like(x, width):
    return jax.ShapeDtypeStruct((len(x), width), x.dtype)


def _call(kernel, arrays, weights, outputs, tile, options, summed=()):
    """Run `kernel(rows of arrays, weights, rows of outputs)` for each block of rows.

    Weight matrices are passed in the dtype of the arrays; biases and LayerNorms in float32.

    Returns:
        The outputs; and for each `Dense` in `summed`, a `Dense` with the sums over all blocks of
        the kernel's results.
    """
    leaves, tree = jax.tree.flatten(weights)
    blocks, rest = divmod(len(arrays[0]), tile.rows)
    if rest:
        raise ValueError(f"{len(arrays[0])} rows, which are no multiple of {ROWS}")
    programs = min(blocks, tile.programs)
    dtype = arrays[0].dtype

    def run(*refs):
        inputs, refs = refs[: len(arrays)], refs[len(arrays) :]
        weight_refs, refs = refs[: len(leaves)], refs[len(leaves) :]
        output_refs, shares = refs[: len(outputs)], refs[len(outputs) :]
        values = [x[...].astype(dtype) if len(x.shape) == 2 else x[...] for x in weight_refs]
        values = jax.tree.unflatten(tree, values)
        first = pl.program_id(0)

        def block(turn, sums):
            at = pl.ds((first + turn * programs) * tile.rows, tile.rows)
            rows, targets = ([ref.at[at] for ref in refs] for refs in (inputs, output_refs))
            return jax.tree.map(jnp.add, sums, kernel(rows, values, targets))

        turns = jax.lax.div(blocks + programs - 1 - first, jnp.int32(programs))
        sums = jax.lax.fori_loop(0, turns, block, [_zero_share(x) for x in summed] or None)
        if summed:
            _write_side_by_side(sums, *shares)

    size = sum(x.kernel.size + x.kernel.shape[1] for x in summed)
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs]
    specs = [_all_of(x) for x in results]
    if summed:
        results.append(jax.ShapeDtypeStruct((programs, size), jnp.float32))
        specs.append(pl.BlockSpec((None, size), lambda i: (i, 0)))
    written = pl.pallas_call(
        run,
        grid=(programs,),
        in_specs=[_all_of(x) for x in (*arrays, *leaves)],
        out_specs=specs,
        out_shape=results,
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=2),
        interpret=options.interpret,
        name=getattr(kernel, "func", kernel).__name__,
    )(*arrays, *leaves)
    if not summed:
        return written, []
    *written, shares = written
    return written, _cut(jnp.sum(shares, axis=0), summed)


def _zero_share(dense):
    """Zeros of the shape that a kernel returns for a `Dense`, see `fused_programs._share`."""
    bias = LEAST_SIDE, dense.kernel.shape[1]
    return Dense(jnp.zeros(dense.kernel.shape, jnp.float32), jnp.zeros(bias, jnp.float32))


def _write_side_by_side(sums, share_ref):
    """Concatenate all sums into one array, which XLA then sums over programs in one kernel."""
    start = 0
    for total in sums:
        for part in (total.kernel.reshape(-1), jnp.sum(total.bias, axis=0) / LEAST_SIDE):
            share_ref[pl.ds(start, part.size)] = part
            start += part.size


def _cut(totals, summed):
    """Split the concatenated sums into a `Dense` for each in `summed`."""
    start, sums = 0, []
    for x in summed:
        middle, end = start + x.kernel.size, start + x.kernel.size + x.kernel.shape[1]
        sums.append(Dense(totals[start:middle].reshape(x.kernel.shape), totals[middle:end]))
        start = end
    return sums


def _all_of(x):
    return pl.BlockSpec(x.shape, lambda i: (0,) * len(x.shape))
