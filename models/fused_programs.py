"""What the programs of the kernels of `models.fused` compute, each for a block of rows.

References are of the program's rows, of all of a weight, and of the rows that it writes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.attention.in_kernels import product
from models.dropout import keep_entries, keep_probability

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
    """The weights of `finish`: of attention's output and of the perceptron; all have biases."""

    output: Dense
    norm: Norm
    mlp_in: Dense
    mlp_out: Dense


def project_rows(rows, weights, outputs, *, epsilon):
    """Writes the products with LN x."""
    (x,), (norm, projections) = rows, weights
    hat, _ = _normalised(_wide(x[...]), epsilon)
    y = _affine(hat, norm).astype(x.dtype)
    for projection, output in zip(projections, outputs, strict=True):
        output[...] = _linear(y, projection).astype(output.dtype)


def project_rows_backward(rows, weights, outputs, *, epsilon):
    """Writes the gradient of x, and LN x; sums the gradients of LayerNorm and biases."""
    (x, g, *of_products), (norm, projections), (dx, normed) = rows, weights, outputs
    hat, deviation = _normalised(_wide(x[...]), epsilon)
    normed[...] = _affine(hat, norm).astype(x.dtype)
    dy, biases = jnp.zeros(hat.shape, jnp.float32), []
    for projection, ref in zip(projections, of_products, strict=True):
        d = ref[...]
        dy += product(d, projection.kernel[...], 1)
        biases.append(None if projection.bias is None else _sum(d))
    dx[...] = (_wide(g[...]) + _through_norm(dy, hat, deviation, norm)).astype(dx.dtype)
    return _norm_sums(dy, hat), tuple(biases)


def finish_rows(rows, weights, outputs, *, epsilon, dropout):
    """Writes the residual stream after a block."""
    (x, attended), (rest, seeds), (out,) = rows, weights, outputs
    drop = _dropping(seeds, dropout)
    y = _wide(x[...]) + drop(0, _linear(attended[...], rest.output))
    hat, _ = _normalised(y, epsilon)
    hidden, _ = gelu(_linear(_affine(hat, rest.norm).astype(x.dtype), rest.mlp_in))
    update = _linear(drop(1, hidden).astype(x.dtype), rest.mlp_out)
    out[...] = (y + drop(2, update)).astype(out.dtype)


def finish_rows_backward(rows, weights, outputs, *, epsilon, dropout):
    """Writes the gradients of x and attended, and the factors of the kernels' gradients.

    Sums the gradients of LayerNorm and biases.
    """
    (x, attended, g), (rest, seeds) = rows, weights
    dx, d_attended, d_output, normed, d_mlp_in, mlp_input, d_mlp_out = outputs
    drop, dtype = _dropping(seeds, dropout), x.dtype
    y = _wide(x[...]) + drop(0, _linear(attended[...], rest.output))
    hat, deviation = _normalised(y, epsilon)
    normed[...] = _affine(hat, rest.norm).astype(dtype)
    hidden, slope = gelu(_linear(_affine(hat, rest.norm).astype(dtype), rest.mlp_in))
    mlp_input[...] = drop(1, hidden).astype(dtype)

    dy = _wide(g[...])
    d = drop(2, dy).astype(dtype)
    d_mlp_out[...], mlp_out = d, _sum(d)
    d = (drop(1, product(d, rest.mlp_out.kernel[...], 1)) * slope).astype(dtype)
    d_mlp_in[...], mlp_in = d, _sum(d)
    d = product(d, rest.mlp_in.kernel[...], 1)
    norm = _norm_sums(d, hat)
    dy += _through_norm(d, hat, deviation, rest.norm)
    dx[...] = dy.astype(dtype)
    d = drop(0, dy).astype(dtype)
    d_output[...] = d
    d_attended[...] = product(d, rest.output.kernel[...], 1).astype(dtype)
    return norm, [_sum(d), mlp_in, mlp_out]


def _wide(x):
    return x.astype(jnp.float32)


def _linear(x, dense):
    y = product(x, dense.kernel[...])
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


def gelu(x):
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
