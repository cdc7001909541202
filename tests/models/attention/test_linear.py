"""Linear attention against the explicit quadratic formula, another's numerator, and its masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention.linear import LinearAttention, block_of, linear_attention
from models.machine import Machine
from tests.models.attention.arrays import (
    assert_close,
    assert_rounded,
    assert_same,
    assert_trains_like,
    load,
    load_inputs,
    masks,
    of_two_seeds,
    out_and_gradients,
    random_inputs,
)


def weights(q, k, mask):
    """f(q_i) . f(k_j) of all pairs, 0 at keys that are padding: [batch, heads, queries, keys]."""
    products = jnp.einsum("blhd,bmhd->bhlm", jax.nn.elu(q) + 1, jax.nn.elu(k) + 1)
    return jnp.where(mask[:, None, None, :], products, 0)


def quadratic(q, k, v, mask):
    """The definition, with all weights in memory."""
    found = weights(q, k, mask)
    total = jnp.sum(found, axis=-1, keepdims=True)
    found = jnp.where(mask[:, None, :, None], found / jnp.where(total > 0, total, 1), 0)
    return jnp.einsum("bhlm,bmhd->blhd", found, jnp.where(mask[:, :, None, None], v, 0))


@pytest.mark.parametrize(("length", "block"), [(1, None), (37, None), (37, 37), (37, 8), (48, 16)])
def test_equals_the_quadratic_formula(length, block, float64):
    q, k, v, g = random_inputs(length)
    mask = masks(length)
    found = out_and_gradients(lambda *x: linear_attention(*x, mask, block=block), q, k, v, g)
    assert_same(found, out_and_gradients(lambda *x: quadratic(*x, mask), q, k, v, g))
    assert not np.asarray(found[0])[3].any()


@pytest.mark.usefixtures("float64")
def test_golden_values_times_the_denominator():
    """The code behind Table 3 has none, and scales by the length instead."""
    arrays = load_inputs()
    q, k, v, mask = arrays["q"], arrays["k"], arrays["v"], arrays["mask_pad"]
    total = jnp.sum(weights(q, k, mask), axis=-1).swapaxes(1, 2)[..., None]
    out = linear_attention(q, k, v, mask) * total / np.sqrt(q.shape[1])
    real = mask[:, :, None, None]
    expected = load("linear")["linear_pad"].swapaxes(1, 2)
    assert_close(jnp.where(real, out, 0), np.where(real, expected, 0))


def test_padding_is_as_if_cut_off(float64):
    q, k, v, g = random_inputs(24)
    real = np.array([0, 1, 3, 4, 8, 23])
    mask = jnp.zeros((4, 24), bool).at[:, real].set(True)
    q, k, v = (jnp.where(mask[:, :, None, None], x, jnp.nan) for x in (q, k, v))

    def attend(mask):
        return lambda *x: linear_attention(*x, mask, block=8)

    whole = out_and_gradients(attend(mask), q, k, v, g)
    cut = out_and_gradients(attend(mask[:, real]), *(x[:, real] for x in (q, k, v, g)))
    assert_same([x[:, real] for x in whole], cut)
    assert not any(np.delete(np.asarray(x), real, axis=1).any() for x in whole)


def test_the_feature_map_is_smooth_at_zero(float64):
    """Half of the gradient's mass is at or next to the point where the two pieces meet."""
    q, k, v, g = random_inputs(12)
    mask = masks(12)
    q, k = (jnp.where(x > 0.5, 0.0, jnp.where(x > 0, 1e-9, x)) for x in (q, k))
    found = out_and_gradients(lambda *x: linear_attention(*x, mask, block=8), q, k, v, g)
    # elu's own derivative at 0 is that of exp, which is 1 as well.
    assert_same(found, out_and_gradients(lambda *x: quadratic(*x, mask), q, k, v, g))


def test_bfloat16_is_rounded_only_at_the_border():
    q, k, v, _ = random_inputs(37, jnp.bfloat16)
    mask = masks(37)
    out = linear_attention(q, k, v, mask, block=8)
    full = linear_attention(*(x.astype(jnp.float32) for x in (q, k, v)), mask, block=8)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, full.astype(jnp.bfloat16))


def test_gradients_of_bfloat16_are_rounded_only_at_the_border():
    q, k, v, g = random_inputs(37, jnp.bfloat16)
    mask = masks(37)
    found = out_and_gradients(lambda *x: linear_attention(*x, mask, block=8), q, k, v, g)
    single = (x.astype(jnp.float32) for x in (q, k, v, g))
    expected = out_and_gradients(lambda *x: linear_attention(*x, mask, block=8), *single)
    assert all(x.dtype == jnp.bfloat16 for x in found)
    assert_rounded(found, expected, roundings=2)  # the output, which a gradient uses, the result


def test_large_inputs_stay_finite():
    q, k, v, g = random_inputs(37, jnp.float32)
    mask = masks(37)
    found = out_and_gradients(lambda *x: linear_attention(*x, mask), 300 * q, 300 * k, v, g)
    assert all(np.isfinite(x).all() for x in found)


@pytest.mark.parametrize("exponent", [-30, -40, -43, -43.5, -44, -60])
def test_features_that_nearly_underflow_have_finite_gradients(exponent):
    q, k, v, g = random_inputs(12, jnp.float32)
    q, k = exponent + 0.1 * q, exponent + 0.1 * k
    mask = masks(12)
    found = out_and_gradients(lambda *x: linear_attention(*x, mask), q, k, v, 1e3 * g)
    assert all(np.isfinite(x).all() for x in found)
    served = exponent == -30
    assert all(np.any(x) == served for x in found)


def test_blocks():
    assert block_of((32, 4096, 2, 32), 4, machine=Machine("gpu")) == 4096
    assert block_of((1, 2048, 2, 32), 4, machine=Machine("cpu")) == 2048
    assert block_of((1, 8192, 12, 64), 4, machine=Machine("cpu")) == 128
    assert block_of((1, 37, 2, 32), 4, machine=Machine("cpu")) == 37
    # However many sequences: never so short that a step is mostly overhead.
    assert block_of((4096, 8192, 12, 64), 4, machine=Machine("cpu")) == 16


def test_seeds_train_at_once(float64):
    mask = masks(21)
    assert_trains_like(
        lambda _, q, k, v: linear_attention(q, k, v, mask, block=8),
        lambda _, q, k, v: quadratic(q, k, v, mask),
        jnp.arange(2),
        of_two_seeds(functools.partial(random_inputs, 21)),
        assert_same,
    )


def test_module_computes_the_function_and_holds_nothing():
    attention = LinearAttention(length=10, heads=2, head_dim=8, rngs=nnx.Rngs(0))
    q, k, v, _ = random_inputs(10, jnp.float32)
    expected = jax.jit(linear_attention)(q, k, v, masks(10))
    np.testing.assert_array_equal(jax.jit(attention)(q, k, v, masks(10)), expected)
    assert not jax.tree.leaves(nnx.state(attention))
