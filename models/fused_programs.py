"""Programs of the kernels in `models.fused`, each for a block of rows.

`rows` and `outputs` are references to the block's rows, `weights` are values.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.kernel_choice import LEAST_SIDE
from models.kernel_math import dropped_in_kernel, product, product_over_rows

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
_ERF_P = 0.3275911
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

# References to rows; those to parts of an array have no public type.
Refs = Sequence[Any]


class Norm(NamedTuple):
    """Scale and bias of a LayerNorm, [dim] each."""

    scale: Float[Array, " dim"]
    bias: Float[Array, " dim"]


class Dense(NamedTuple):
    """Kernel [fan in, fan out] and optional bias [fan out] of a dense layer."""

    kernel: Float[Array, "fan_in fan_out"]
    bias: Float[Array, " fan_out"] | None


class FinishWeights(NamedTuple):
    """Weights of `finish`: the attention's output projection and the MLP, all with biases."""

    output: Dense
    norm: Norm
    mlp_in: Dense
    mlp_out: Dense


def project_rows(
    rows: Refs, weights: tuple[Norm, Sequence[Dense]], outputs: Refs, *, epsilon: float
) -> None:
    """Write the moments of x, and the products with LN x."""
    (x,), (norm, projections), (mean, inverse, *products) = rows, weights, outputs
    wide = _wide(x[...])
    moments = _moments(wide, epsilon, (mean, inverse))
    y = _affine(_normalised(wide, moments), norm).astype(x.dtype)
    for projection, output in zip(projections, products, strict=True):
        output[...] = _linear(y, projection).astype(output.dtype)


def project_rows_backward(
    rows: Refs, weights: tuple[Norm, Sequence[Dense]], outputs: Refs
) -> list[Dense]:
    """Write the gradient of x; return these rows' share of the gradients of the weights."""
    (x, mean, inverse, g, *d_products), (norm, projections), (dx,) = rows, weights, outputs
    moments = mean[...], inverse[...]
    hat = _normalised(_wide(x[...]), moments)
    narrow = hat.astype(x.dtype)
    dy, shares = jnp.zeros(hat.shape, jnp.float32), []
    for projection, ref in zip(projections, d_products, strict=True):
        d = ref[...]
        dy += product(d, projection.kernel, 1)
        shares.append(_share(narrow, d))
    dx[...] = (_wide(g[...]) + _through_norm(dy, hat, moments, norm)).astype(dx.dtype)
    return shares


def finish_rows(
    rows: Refs, weights: FinishWeights, outputs: Refs, *, epsilon: float, dropout: float
) -> None:
    """Write the moments of y, and the residual stream after a block."""
    (x, attended, *seeds), (*moments, out) = rows, outputs
    drop = _dropping(seeds, dropout)
    y = _wide(x[...]) + drop(0, _linear(attended[...], weights.output))
    hat = _normalised(y, _moments(y, epsilon, moments))
    hidden, _ = gelu(_linear(_affine(hat, weights.norm).astype(x.dtype), weights.mlp_in))
    update = _linear(drop(1, hidden).astype(x.dtype), weights.mlp_out)
    out[...] = (y + drop(2, update)).astype(out.dtype)


def finish_rows_backward(
    rows: Refs, weights: FinishWeights, outputs: Refs, *, dropout: float
) -> list[Dense]:
    """Write the gradients of x and attended; return these rows' share of those of weights."""
    (x, attended, mean, inverse, g, *seeds), (dx, d_attended) = rows, outputs
    drop, dtype = _dropping(seeds, dropout), x.dtype
    heads = attended[...]
    y = _wide(x[...]) + drop(0, _linear(heads, weights.output))
    moments = mean[...], inverse[...]
    hat = _normalised(y, moments)
    hidden, slope = gelu(_linear(_affine(hat, weights.norm).astype(dtype), weights.mlp_in))

    dy = _wide(g[...])
    d = drop(2, dy).astype(dtype)
    mlp_out = _share(drop(1, hidden).astype(dtype), d)
    d = (drop(1, product(d, weights.mlp_out.kernel, 1)) * slope).astype(dtype)
    mlp_in = _share(hat.astype(dtype), d)
    d = product(d, weights.mlp_in.kernel, 1)
    dy += _through_norm(d, hat, moments, weights.norm)
    dx[...] = dy.astype(dtype)
    d = drop(0, dy).astype(dtype)
    d_attended[...] = product(d, weights.output.kernel, 1).astype(dtype)
    return [_share(heads, d), mlp_in, mlp_out]


def _wide(x):
    return x.astype(jnp.float32)


def _linear(x, dense):
    y = product(x, dense.kernel)
    return y if dense.bias is None else y + dense.bias[None]


def _moments(x, epsilon, outputs):
    """Mean and inverse standard deviation of each row, also written to `outputs`."""
    mean = jnp.sum(x, axis=1) / x.shape[1]
    centred = x - mean[:, None]
    inverse = jax.lax.rsqrt(jnp.sum(centred * centred, axis=1) / x.shape[1] + epsilon)
    for output, moment in zip(outputs, (mean, inverse), strict=True):
        output[...] = moment
    return mean, inverse


def _normalised(x, moments):
    mean, inverse = moments
    return (x - mean[:, None]) * inverse[:, None]


def _affine(hat, norm):
    return hat * norm.scale[None] + norm.bias[None]


def _through_norm(d, hat, moments, norm):
    """The gradient of a LayerNorm's input, given that of its output."""
    d = d * norm.scale[None]
    size = d.shape[1]
    mean, along = jnp.sum(d, axis=1) / size, jnp.sum(d * hat, axis=1) / size
    return moments[1][:, None] * (d - mean[:, None] - hat * along[:, None])


def _share(x, d):
    """These rows' share of the sums over rows of x d^T and, in `LEAST_SIDE` equal copies, of d."""
    ones = jnp.ones((len(d), LEAST_SIDE), d.dtype)
    return Dense(product_over_rows(x, d), product_over_rows(ones, d))


def gelu(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """x Phi(x) and its slope, Phi(x) + x Phi'(x), with Phi the normal distribution function."""
    density = jnp.exp2((-0.5 * math.log2(math.e)) * (x * x))  # times sqrt(2 pi)
    t = 1 / (1 + (_ERF_P / math.sqrt(2)) * jnp.abs(x))
    tail = jnp.zeros_like(t)
    for coefficient in (*reversed(_ERF), 0):  # Horner's rule, in multiply-adds
        tail = tail * t + 0.5 * coefficient
    tail = tail * density  # 1 - Phi(|x|)
    phi = jnp.where(x > 0, 1 - tail, tail)
    return x * phi, phi + (x * density) * (1 / math.sqrt(2 * math.pi))


def _dropping(seeds, dropout):
    """Return a function that applies mask `number` to a block [rows, entries]."""

    def drop(number, x):
        return dropped_in_kernel(x, dropout, seeds[number][...]) if seeds else x

    return drop
