"""What a block does besides attention, in four GPU kernels that keep a row's numbers in registers.

    project:  q, k, v = (LN x) W + b, each
    finish:   y   = x + dropout(o W_o + b_o)              o: what attention returned
              out = y + dropout(W_2 dropout(gelu(W_1 LN y)))

On a GPU this part of a training step is bound by memory: XLA runs each product, normalisation and
dropout as a kernel that reads and writes all positions of the batch. Here a forward kernel reads
its inputs and writes its outputs, and nothing else. The backward kernels recompute what lies in
between. Each of their programs takes many rows, adds up the gradients of the weights in registers
and writes one partial sum; no addition is atomic, so results are deterministic.

The masks of dropout are those of `models.dropout`. Results differ from `models.encoder`'s plain
form by fewer roundings to 16 bits: sums, the residual within a kernel and LayerNorm are float32,
and 16-bit numbers are only what enters a product and what is written. The error function is
Abramowitz and Stegun's 7.1.26, within 1.5e-7 but for rounding.

The kernels are Pallas's, compiled by Triton, as those of `models.attention.flash`, whose limits
they share: one GPU, reverse mode only (`jax.custom_vjp`).
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, UInt32

from models.attention.kernels import ROWS
from models.dropout import keep_entries, keep_probability

# Rows that a program takes at a time, and its warps: with these, compiled for compute capability
# 9.0 at the benchmark's sizes, no kernel spills registers.
_FORWARD_ROWS, _FORWARD_WARPS = ROWS, 4
_BACKWARD_ROWS, _BACKWARD_WARPS = 32, 8
_PROGRAMS = 264  # in which a backward kernel adds up weights' gradients: 2 for each of 132 cores

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
    outputs = [jax.ShapeDtypeStruct((len(x), p.kernel.shape[1]), x.dtype) for p in projections]
    products = _by_blocks(kernel, [x], (norm, _narrow(projections, x.dtype)), outputs, options)
    return (x, tuple(products)), (x, norm, projections)


def _project_backward(options, saved, gradients):
    x, norm, projections = saved
    g, of_products = gradients
    kernel = functools.partial(_project_gradient_kernel, epsilon=options.epsilon)
    weights = norm, _narrow(projections, x.dtype)
    arrays = [x, g, *of_products]
    (dx,), sums = _with_sums(kernel, arrays, weights, [x], (norm, projections), options)
    return dx, *sums


_project.defvjp(_project_forward, _project_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _finish(x, attended, weights, seeds, options):
    return _finish_forward(x, attended, weights, seeds, options)[0]


def _finish_forward(x, attended, weights, seeds, options):
    kernel = functools.partial(_finish_kernel, epsilon=options.epsilon, dropout=options.dropout)
    narrow = _narrow(weights, x.dtype), seeds
    (out,) = _by_blocks(kernel, [x, attended], narrow, [x], options)
    return out, (x, attended, weights, seeds)


def _finish_backward(options, saved, g):
    x, attended, weights, seeds = saved
    kernel = functools.partial(
        _finish_gradient_kernel, epsilon=options.epsilon, dropout=options.dropout
    )
    narrow = _narrow(weights, x.dtype), seeds
    arrays = [x, attended, g]
    (dx, d_attended), sums = _with_sums(kernel, arrays, narrow, [x, attended], weights, options)
    return dx, d_attended, sums, None


_finish.defvjp(_finish_forward, _finish_backward)


def _narrow(weights, dtype):
    """The kernels in 16 bits, for products; biases and LayerNorms stay as they are."""
    return jax.tree.map(lambda w: w.astype(dtype) if w.ndim == 2 else w, weights)


def _by_blocks(kernel, arrays, weights, outputs, options):
    """Runs `kernel(row refs, weights as refs, output refs)` for each block of rows."""
    leaves, tree = jax.tree.flatten(weights)

    def run(*refs):
        rows, rest = refs[: len(arrays)], refs[len(arrays) :]
        at = pl.ds(pl.program_id(0) * _FORWARD_ROWS, _FORWARD_ROWS)
        held = jax.tree.unflatten(tree, rest[: len(leaves)])
        kernel(at, rows, held, rest[len(leaves) :])

    return _call(
        run,
        len(arrays[0]) // _FORWARD_ROWS,
        [*arrays, *leaves],
        outputs,
        [],
        _FORWARD_WARPS,
        options,
    )


def _with_sums(kernel, arrays, weights, outputs, summed, options):
    """Runs `kernel(at, row refs, weight refs, output refs, sums) -> sums` over blocks of rows.

    Returns the outputs, and the sums over all rows in the structure of `summed`.
    """
    leaves, tree = jax.tree.flatten(weights)
    like, sums_tree = jax.tree.flatten(summed)
    blocks = len(arrays[0]) // _BACKWARD_ROWS
    each = math.ceil(blocks / _PROGRAMS)
    programs = math.ceil(blocks / each)

    def run(*refs):
        rows, rest = refs[: len(arrays)], refs[len(arrays) :]
        held, rest = jax.tree.unflatten(tree, rest[: len(leaves)]), rest[len(leaves) :]
        written, totals = rest[: len(outputs)], rest[len(outputs) :]
        first = pl.program_id(0) * each

        def block(number, sums):
            at = pl.ds(number * _BACKWARD_ROWS, _BACKWARD_ROWS)
            return kernel(at, rows, held, written, sums)

        start = jax.tree.unflatten(sums_tree, [jnp.zeros(x.shape, jnp.float32) for x in like])
        sums = jax.lax.fori_loop(first, jnp.minimum(first + each, blocks), block, start)
        for ref, total in zip(totals, jax.tree.leaves(sums), strict=True):
            ref[...] = total

    results = _call(run, programs, [*arrays, *leaves], outputs, like, _BACKWARD_WARPS, options)
    totals = [
        jnp.sum(x, axis=0).astype(y.dtype)
        for x, y in zip(results[len(outputs) :], like, strict=True)
    ]
    return results[: len(outputs)], jax.tree.unflatten(sums_tree, totals)


def _call(run, programs, inputs, outputs, summed, warps, options):
    """Every program sees all of `inputs` and `outputs`, and its own share of each sum."""
    whole = [_whole(x) for x in inputs], [_whole(x) for x in outputs]
    shares = [pl.BlockSpec((None, *x.shape), lambda i, n=x.ndim: (i, *(0,) * n)) for x in summed]
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in outputs]
    shapes += [jax.ShapeDtypeStruct((programs, *x.shape), jnp.float32) for x in summed]
    return pl.pallas_call(
        run,
        grid=(programs,),
        in_specs=whole[0],
        out_specs=[*whole[1], *shares],
        out_shape=shapes,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=2),
        interpret=options.interpret,
    )(*inputs)


def _whole(x: Any) -> pl.BlockSpec:
    return pl.BlockSpec(x.shape, lambda i: (0,) * len(x.shape))


def _project_kernel(at, rows, weights, outputs, *, epsilon):
    (x,), (norm, projections) = rows, weights
    hat, _ = _normalised(_wide(x[at, :]), epsilon)
    y = _affine(hat, norm).astype(x.dtype)
    for projection, output in zip(projections, outputs, strict=True):
        output[at, :] = _linear(y, projection).astype(output.dtype)


def _project_gradient_kernel(at, rows, weights, outputs, sums, *, epsilon):
    (x, g, *of_products), (norm, projections), (dx,) = rows, weights, outputs
    sum_norm, sum_projections = sums
    hat, deviation = _normalised(_wide(x[at, :]), epsilon)
    y = _affine(hat, norm).astype(x.dtype)
    dy, added = jnp.zeros(hat.shape, jnp.float32), []
    for projection, ref, total in zip(projections, of_products, sum_projections, strict=True):
        d = ref[at, :]
        dy += _product(d, projection.kernel[...], (1, 1))
        added.append(_add(total, y, d))
    dx[at, :] = (_wide(g[at, :]) + _through_norm(dy, hat, deviation, norm)).astype(dx.dtype)
    return _add_norm(sum_norm, dy, hat), tuple(added)


def _finish_kernel(at, rows, weights, outputs, *, epsilon, dropout):
    (x, attended), (rest, seeds), (out,) = rows, weights, outputs
    drop = _dropping(seeds, at, dropout)
    y = _wide(x[at, :]) + drop(0, _linear(attended[at, :], rest.output))
    hat, _ = _normalised(y, epsilon)
    hidden, _ = _gelu(_linear(_affine(hat, rest.norm).astype(x.dtype), rest.mlp_in))
    update = _linear(drop(1, hidden).astype(x.dtype), rest.mlp_out)
    out[at, :] = (y + drop(2, update)).astype(out.dtype)


def _finish_gradient_kernel(at, rows, weights, outputs, sums, *, epsilon, dropout):
    (x, attended, g), (rest, seeds), (dx, d_attended) = rows, weights, outputs
    drop, dtype = _dropping(seeds, at, dropout), x.dtype
    attention = attended[at, :]
    hat, deviation = _normalised(
        _wide(x[at, :]) + drop(0, _linear(attention, rest.output)), epsilon
    )
    normed = _affine(hat, rest.norm).astype(dtype)
    hidden, slope = _gelu(_linear(normed, rest.mlp_in))

    dy = _wide(g[at, :])
    d_update = drop(2, dy).astype(dtype)
    sum_mlp_out = _add(sums.mlp_out, drop(1, hidden).astype(dtype), d_update)
    d_hidden = drop(1, _product(d_update, rest.mlp_out.kernel[...], (1, 1)))
    d_hidden = (d_hidden * slope).astype(dtype)
    sum_mlp_in = _add(sums.mlp_in, normed, d_hidden)
    d_normed = _product(d_hidden, rest.mlp_in.kernel[...], (1, 1))
    sum_norm = _add_norm(sums.norm, d_normed, hat)
    dy += _through_norm(d_normed, hat, deviation, rest.norm)
    dx[at, :] = dy.astype(dtype)
    d_update = drop(0, dy).astype(dtype)
    d_attended[at, :] = _product(d_update, rest.output.kernel[...], (1, 1)).astype(dtype)
    return Rest(_add(sums.output, attention, d_update), sum_norm, sum_mlp_in, sum_mlp_out)


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


def _add_norm(total, d, hat):
    return Norm(total.scale + jnp.sum(d * hat, axis=0), total.bias + jnp.sum(d, axis=0))


def _add(total, x, d):
    """Adds the gradients of a product's kernel and bias, given its input and output's gradient."""
    bias = None if total.bias is None else total.bias + jnp.sum(_wide(d), axis=0)
    return Dense(total.kernel + _product(x, d, (0, 0)), bias)


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


def _dropping(seeds, at, dropout):
    """A function that applies a mask, by its number, to a block [rows, entries]."""

    def drop(number, x):
        if seeds is None:
            return x
        entries = jnp.arange(x.shape[1], dtype=jnp.int32)[None]
        keep = keep_entries(seeds[number, at][:, None], entries, dropout)
        return jnp.where(keep, x / keep_probability(dropout), 0)

    return drop
