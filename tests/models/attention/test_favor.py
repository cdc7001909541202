"""Random-feature attention by blocks against the form that holds all features."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.blocks import tile_bytes
from models.attention.favor import block_size, favor_attention
from models.attention.performer import (
    SOFTMAX_EPSILON,
    key_features,
    orthogonal_features,
    query_features,
)
from models.machine import Machine
from tests.models.attention.arrays import assert_trains_like, of_two_seeds, out_and_gradients

LENGTH, WIDTH, FEATURES = 37, 8, 12


def inputs(dtype=jnp.float64, length=LENGTH, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [jnp.asarray(x, dtype) for x in rng.normal(size=(4, 3, length, 2, WIDTH))]
    holes = rng.random(length) < 0.5
    mask = np.stack([np.ones(length, bool), holes, np.zeros(length, bool)])
    return arrays, jnp.asarray(mask), jnp.asarray(rng.normal(size=(FEATURES, WIDTH)), dtype)


@functools.partial(jax.jit, static_argnames=("size", "epsilon"))
def by_blocks(q, k, v, mask, projection, size=None, epsilon=SOFTMAX_EPSILON):
    q, k = (x * WIDTH**-0.25 for x in (q, k))
    return favor_attention(q, k, v, mask, projection, epsilon, size=size)


def plain(q, k, v, mask, projection, epsilon=SOFTMAX_EPSILON):
    queries = query_features(q, projection, epsilon=epsilon)
    keys = key_features(k, mask, projection, epsilon=epsilon)
    weights = jnp.einsum("bhlm,bhjm->bhlj", queries, keys)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.einsum("bhlj,bjhd->blhd", weights / jnp.where(total > 0, total, 1), v)


def unbiased(q, k, v, mask, projection):
    """The formula without epsilon, in float64, whose exponents may be far below 0."""
    q, k, v, projection = (np.asarray(x, np.float64) for x in (q, k, v, projection))
    features = [
        np.exp(
            np.einsum("blhd,md->blhm", x * WIDTH**-0.25, projection)
            - np.sum(x * x, axis=-1, keepdims=True) / (2 * WIDTH**0.5)
        )
        for x in (q, k)
    ]
    weights = np.where(mask[:, None, None, :], np.einsum("blhm,bjhm->bhlj", *features), 0)
    total = np.sum(weights, axis=-1, keepdims=True)
    return np.einsum("bhlj,bjhd->blhd", weights / np.where(total > 0, total, 1), v)


@functools.cache
def plain_results(epsilon):
    arrays, mask, projection = inputs()
    return out_and_gradients(lambda *x: plain(*x, mask, projection, epsilon), *arrays)


@pytest.mark.parametrize("epsilon", [SOFTMAX_EPSILON, 0.0])
@pytest.mark.parametrize("size", [8, 16, 40, None])
def test_equals_the_plain_form(size, epsilon, float64):
    (q, k, v, g), mask, projection = inputs()
    found = out_and_gradients(lambda *x: by_blocks(*x, mask, projection, size, epsilon), q, k, v, g)
    expected = plain_results(epsilon)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    assert not np.asarray(found[0])[2].any()


def test_the_keys_peak_may_grow_from_block_to_block():
    """Exponents of hundreds, growing along the length: neither infinite nor lost."""
    (q, k, v, g), mask, projection = inputs(jnp.float32)
    k = k * jnp.linspace(1, 60, LENGTH)[None, :, None, None]
    found = out_and_gradients(lambda *x: by_blocks(*x, mask, projection, 8), q, k, v, g)
    assert all(np.isfinite(x).all() for x in found)
    expected = jax.jit(plain)(q, k, v, mask, projection)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_long_keys_leave_an_epsilon_only_the_mean_and_are_no_matter_without():
    """|k|^2 / 2 of 200, far beyond what a number of float32 may be below its peak."""
    (q, k, v, _), mask, projection = inputs(jnp.float32)
    k = k / jnp.linalg.norm(k, axis=-1, keepdims=True) * (400 * WIDTH**0.5) ** 0.5
    mean = jnp.mean(v[:1], axis=1, keepdims=True)
    collapsed = by_blocks(q, k, v, mask, projection)[:1] - mean
    estimate = by_blocks(q, k, v, mask, projection, epsilon=0.0)
    assert jnp.max(jnp.abs(collapsed)) < 1e-4
    assert jnp.max(jnp.abs(estimate[:1] - mean)) > 0.5
    np.testing.assert_allclose(estimate, unbiased(q, k, v, mask, projection), rtol=2e-4, atol=2e-5)


def test_long_queries_are_no_matter_without_an_epsilon():
    (q, k, v, _), mask, projection = inputs(jnp.float32)
    q = 12 * q  # |q|^2 / 2 of 200
    found = by_blocks(q, k, v, mask, projection, epsilon=0.0)
    np.testing.assert_allclose(found, unbiased(q, k, v, mask, projection), rtol=2e-3, atol=2e-4)


@functools.cache
def of_unbiased_features():
    """(q, k, v, g) to the output and gradients, compiled once for all scales."""
    projection = orthogonal_features(jax.random.key(0), 64, 32)

    def attend(q, k, v):
        q, k = (x * 32**-0.25 for x in (q, k))
        return favor_attention(q, k, v, jnp.ones((2, 64), bool), projection, 0.0, size=16)

    return jax.jit(functools.partial(out_and_gradients, attend))


@pytest.mark.parametrize("scale", [10, 20, 50])
def test_features_that_nearly_underflow_have_finite_gradients(scale):
    for seed in range(4):
        q, k, v, g = jax.random.normal(jax.random.key(seed), (4, 2, 64, 2, 32))
        found = of_unbiased_features()(scale * q, scale * k, v, g)
        assert all(np.isfinite(x).all() for x in found)


def test_seeds_train_at_once(float64):
    _, mask, projection = inputs()
    assert_trains_like(
        lambda projection, q, k, v: by_blocks(q, k, v, mask, projection, 8),
        lambda projection, q, k, v: plain(q, k, v, mask, projection),
        jnp.stack([projection, 2 * projection]),
        of_two_seeds(lambda seed: inputs(seed=seed)[0]),
        functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12),
    )


def test_memory_holds_no_features():
    def memory(length):
        x = jax.ShapeDtypeStruct((1, length, 1, 8), jnp.float32)
        mask = jax.ShapeDtypeStruct((1, length), bool)
        projection = jnp.ones((256, 8))

        def loss(q, k, v, mask):
            return jnp.sum(favor_attention(q, k, v, mask, projection, SOFTMAX_EPSILON))

        program = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x, mask).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert memory(16_384) < 16_384 * 256 * 4  # one array of features


@pytest.mark.parametrize("heads", [1, 64, 10_000])
def test_an_accelerator_has_blocks_that_its_memory_holds(heads):
    size = block_size(65_536, 256, heads=heads, machine=Machine("gpu"))
    assert 4 * heads * 256 * size <= tile_bytes(Machine("gpu")) or size == 256
    assert size >= block_size(65_536, 256, heads=heads, machine=Machine("cpu")) or heads > 64
