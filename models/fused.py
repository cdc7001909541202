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
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, UInt32

from models.dropout import keep_entries, keep_probability


class _Tile(NamedTuple):
    """Rows that a program takes, and its warps."""

    rows: int
    warps: int


# With these 16 warps and more run at a time on a multiprocessor, and hardly a register is spilled,
# compiled for compute capability 9.0 at the benchmark's sizes.
_PROJECT, _PROJECT_GRADIENT = _Tile(64, 4), _Tile(32, 4)
_FINISH, _FINISH_GRADIENT = _Tile(32, 4), _Tile(32, 8)

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
_ERF_P = 0.3275911
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


class Norm(NamedTuple):
    """Scale and bias of a LayerNorm, [dim] each."""

    scale: Float[Array, " dim"]
    bias: Float[Array, " dim"]


class Dense(NamedTuple):
    """Kernel [fan in, fan out] and bias [fan out], or None, of a product."""

    kernel: Float[Array, "fan_in fan_out"]
    bias: Float[Array, " fan_out"] | None


class Rest(NamedTuple):
    """The weights of `finish`: of attention's output and of the perceptron."""

    output: Dense
    norm: Norm
    mlp_in: Dense
    mlp_out: Dense


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
        x: the residual stream, in 16 bits; its rows are a multiple of `ROWS`.
        norm, projections: weights, in float32, as their gradients are.
        epsilon: of the LayerNorm.
        interpret: whether to run the kernels as JAX operations, on any device, slowly.
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
        x: before the block, in 16 bits; its rows are a multiple of `ROWS`.
        attended: what attention returned, heads side by side.
        weights: in float32, as their gradients are.
        epsilon: of the LayerNorm.
        dropout: the probability of dropping an entry.
        seeds: of the rows, `models.dropout.row_seeds`, of three masks: of attention's output, of
            the hidden layer, of the perceptron's output. None: nothing is dropped.
        interpret: see `project`.
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
    kernel = functools.partial(_project_kernel, epsilon=options.epsilon)
    outputs = [_like(x, p.kernel.shape[1]) for p in projections]
    weights = norm, _narrow(projections, x.dtype)
    products = _call(kernel, [x], weights, outputs, [], _PROJECT, options)
    return (x, tuple(products)), (x, norm, projections)


def _project_backward(options, saved, gradients):
    x, norm, projections = saved
    g, of_products = gradients
    kernel = functools.partial(_project_gradient_kernel, epsilon=options.epsilon)
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
    kernel = functools.partial(_finish_kernel, epsilon=options.epsilon, dropout=options.dropout)
    narrow = _narrow(weights, x.dtype), seeds
    (out,) = _call(kernel, [x, attended], narrow, [x], [], _FINISH, options)
    return out, (x, attended, weights, seeds)


def _finish_backward(options, saved, g):
    x, attended, weights, seeds = saved
    kernel = functools.partial(
        _finish_gradient_kernel, epsilon=options.epsilon, dropout=options.dropout
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
    programs = len(arrays[0]) // tile.rows

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


def _project_kernel(rows, weights, outputs, *, epsilon):
    (x,), (norm, projections) = rows, weights
    hat, _ = _normalised(_wide(x[...]), epsilon)
    y = _affine(hat, norm).astype(x.dtype)
    for projection, output in zip(projections, outputs, strict=True):
        output[...] = _linear(y, projection).astype(output.dtype)


def _project_gradient_kernel(rows, weights, outputs, *, epsilon):
    """Writes the gradient of x, and LN x; sums the gradients of LayerNorm and biases."""
    (x, g, *of_products), (norm, projections), (dx, normed) = rows, weights, outputs
    hat, deviation = _normalised(_wide(x[...]), epsilon)
    normed[...] = _affine(hat, norm).astype(x.dtype)
    dy, biases = jnp.zeros(hat.shape, jnp.float32), []
    for projection, ref in zip(projections, of_products, strict=True):
        d = ref[...]
        dy += _product(d, projection.kernel[...], (1, 1))
        biases.append(None if projection.bias is None else _sum(d))
    dx[...] = (_wide(g[...]) + _through_norm(dy, hat, deviation, norm)).astype(dx.dtype)
    return _norm_sums(dy, hat), tuple(biases)


def _finish_kernel(rows, weights, outputs, *, epsilon, dropout):
    (x, attended), (rest, seeds), (out,) = rows, weights, outputs
    drop = _dropping(seeds, dropout)
    y = _wide(x[...]) + drop(0, _linear(attended[...], rest.output))
    hat, _ = _normalised(y, epsilon)
    hidden, _ = _gelu(_linear(_affine(hat, rest.norm).astype(x.dtype), rest.mlp_in))
    update = _linear(drop(1, hidden).astype(x.dtype), rest.mlp_out)
    out[...] = (y + drop(2, update)).astype(out.dtype)


def _finish_gradient_kernel(rows, weights, outputs, *, epsilon, dropout):
    """Writes the gradients of x and attended, and the factors of the kernels' gradients.

    Sums the gradients of LayerNorm and biases.
    """
    (x, attended, g), (rest, seeds) = rows, weights
    dx, d_attended, d_output, normed, d_mlp_in, mlp_input, d_mlp_out = outputs
    drop, dtype = _dropping(seeds, dropout), x.dtype
    y = _wide(x[...]) + drop(0, _linear(attended[...], rest.output))
    hat, deviation = _normalised(y, epsilon)
    normed[...] = _affine(hat, rest.norm).astype(dtype)
    hidden, slope = _gelu(_linear(_affine(hat, rest.norm).astype(dtype), rest.mlp_in))
    mlp_input[...] = drop(1, hidden).astype(dtype)

    dy = _wide(g[...])
    d = drop(2, dy).astype(dtype)
    d_mlp_out[...], mlp_out = d, _sum(d)
    d = (drop(1, _product(d, rest.mlp_out.kernel[...], (1, 1))) * slope).astype(dtype)
    d_mlp_in[...], mlp_in = d, _sum(d)
    d = _product(d, rest.mlp_in.kernel[...], (1, 1))
    norm = _norm_sums(d, hat)
    dy += _through_norm(d, hat, deviation, rest.norm)
    dx[...] = dy.astype(dtype)
    d = drop(0, dy).astype(dtype)
    d_output[...] = d
    d_attended[...] = _product(d, rest.output.kernel[...], (1, 1)).astype(dtype)
    return norm, [_sum(d), mlp_in, mlp_out]


def _wide(x):
    return x.astype(jnp.float32)


def _product(a, b, axes=(1, 0)):
    """Contracts these axes of `a` and `b`, sums in float32."""
    dimensions = (((axes[0],), (axes[1],)), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def _linear(x, dense):
    y = _product(x, dense.kernel[...])
    return y if dense.bias is None else y + dense.bias[...][None]


def _normalised(x, epsilon):
    """x less its mean and over its standard deviation, and one over the latter, by row."""
    centred = x - (jnp.sum(x, axis=1) / x.shape[1])[:, None]
    deviation = jax.lax.rsqrt(jnp.sum(centred * centred, axis=1) / x.shape[1] + epsilon)[:, None]
    return centred * deviation, deviation


def _affine(hat, norm):
    return hat * norm.scale[...][None] + norm.bias[...][None]


def _through_norm(d, hat, deviation, norm):
    """The gradient of a LayerNorm's input, given that of its output."""
    d = d * norm.scale[...][None]
    size = d.shape[1]
    mean, along = jnp.sum(d, axis=1) / size, jnp.sum(d * hat, axis=1) / size
    return deviation * (d - mean[:, None] - hat * along[:, None])


def _norm_sums(d, hat):
    return Norm(_sum(d * hat), _sum(d))


def _sum(d):
    return jnp.sum(_wide(d), axis=0)


def _gelu(x):
    """x times the normal distribution's function Phi, and the slope, Phi + x times its density."""
    density = jnp.exp(-0.5 * x * x)
    t = 1 / (1 + (_ERF_P / math.sqrt(2)) * jnp.abs(x))
    tail = jnp.zeros_like(t)
    for coefficient in reversed(_ERF):
        tail = (tail + coefficient) * t
    tail = 0.5 * tail * density  # 1 - Phi(|x|)
    phi = jnp.where(x > 0, 1 - tail, tail)
    return x * phi, phi + x * density / math.sqrt(2 * math.pi)


def _dropping(seeds, dropout):
    """A function that applies a mask, by its number, to a block [rows, entries]."""

    def drop(number, x):
        if seeds is None:
            return x
        entries = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
        keep = keep_entries(seeds[number][:, None], entries, dropout)
        return jnp.where(keep, x / keep_probability(dropout), 0)

    return drop
