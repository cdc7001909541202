"""Linformer against the golden arrays, its exact limits, and what is shared with what."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import linformer, make
from models.attention.linformer import LinformerAttention
from models.attention.standard import standard_attention
from tests.models.attention.arrays import (
    assert_close,
    assert_values_and_gradients,
    load,
    load_inputs,
)

# Compiled whole: one by one the operations take longer to compile.
linformer_attention = jax.jit(linformer.linformer_attention)

PROJECTIONS = ("linear", "conv", "mean_pool", "max_pool")


def random_inputs(seed, batch=2, length=12, heads=2, head_dim=4):
    keys = jax.random.split(jax.random.key(seed), 3)
    return tuple(jax.random.normal(key, (batch, length, heads, head_dim)) for key in keys)


def module(**options):
    defaults = {"length": 12, "heads": 2, "head_dim": 4, "proj_dim": 4, "rngs": nnx.Rngs(0)}
    return LinformerAttention(**(defaults | options))


def stack(layers, **options):
    """The attentions of an encoder: all but the first are given the first."""
    rngs = nnx.Rngs(0)
    first = module(layer=0, rngs=rngs, **options)
    later = [module(layer=i, shared=first, rngs=rngs, **options) for i in range(1, layers)]
    return nnx.List([first, *later])


def parameters(model):
    return jax.tree.leaves(nnx.state(model, nnx.Param))


@pytest.mark.usefixtures("float64")
def test_golden_values_and_gradients():
    inputs, expected = load_inputs(), load("linformer")
    mask, e = inputs["mask_pad"], jnp.asarray(expected["E"])

    def attend(q, k, v, e=e):
        return linformer_attention(q, k, v, mask, e, e)

    assert_values_and_gradients(attend, inputs, expected, "linformer_pad")
    q, k, v, g = (inputs[name] for name in "qkvg")
    de = jax.jit(jax.grad(lambda e: jnp.sum(attend(q, k, v, e) * g)))(e)
    assert_close(de, expected["linformer_pad_dE"])


@pytest.mark.usefixtures("float64")
def test_identity_projections_are_standard_attention():
    q, k, v = random_inputs(0)
    mask = jnp.ones((2, 12), bool)
    identity = jnp.eye(12)[None]
    out = linformer_attention(q, k, v, mask, identity, identity)
    np.testing.assert_allclose(out, standard_attention(q, k, v, mask), atol=1e-14)


@pytest.mark.parametrize("projection", ["mean_pool", "max_pool"])
def test_windows_of_one_position_are_standard_attention_under_any_mask(projection):
    q, k, v = random_inputs(1)
    mask = jnp.asarray(np.random.default_rng(0).random((2, 12)) < 0.6)
    out = jax.jit(module(projection=projection, proj_dim=12))(q, k, v, mask)
    np.testing.assert_allclose(out, standard_attention(q, k, v, mask), atol=1e-6)


def test_one_matrix_for_all_heads_and_surplus_columns():
    q, k, v = random_inputs(2)
    mask = jnp.arange(12)[None, :] < jnp.array([[12], [7]])
    e, f = jax.random.normal(jax.random.key(0), (2, 1, 5, 20))
    broad = linformer_attention(q, k, v, mask, e, f)
    e, f = (jnp.repeat(x[..., :12], 2, axis=0) for x in (e, f))
    np.testing.assert_allclose(broad, linformer_attention(q, k, v, mask, e, f), atol=1e-6)
    with pytest.raises(ValueError, match="12 positions, but the projection has 11 columns"):
        linformer_attention(q, k, v, mask, e[..., :11], f[..., :11])


def pooled_by_loops(x, mask, projection, kernel):
    """One head's x [length, head_dim] in numpy: a row per window with a real token."""
    pieces = np.split(np.arange(12), [3, 6, 9] if projection == "conv" else [3, 6, 8, 10])
    rows = []
    for piece in pieces:
        real = [i for i in piece if mask[i]]
        if not real:
            continue
        if projection == "conv":
            rows.append(sum(x[i] @ kernel[i - piece[0]] for i in real))
        else:
            rows.append((np.mean if projection == "mean_pool" else np.max)(x[real], axis=0))
    return np.array(rows)


@pytest.mark.parametrize("projection", ["conv", "mean_pool", "max_pool"])
def test_pooling_and_convolution_by_loops(projection):
    # 12 positions in 5 windows of two or three positions (pooling), or in 4 of three (conv).
    proj_dim = 4 if projection == "conv" else 5
    attention = module(projection=projection, proj_dim=proj_dim, share=())
    inputs = random_inputs(3)
    mask = np.random.default_rng(1).random((2, 12)) < 0.7
    mask[0, 3:6] = False  # a whole window of either kind
    out = jax.jit(attention)(*inputs, jnp.asarray(mask))
    q, k, v = (np.asarray(x, np.float64) for x in inputs)
    for b, h in np.ndindex(2, 2):
        e, f = (x[0][h] if projection == "conv" else None for x in (attention.e, attention.f))
        keys = pooled_by_loops(k[b, :, h], mask[b], projection, e)
        values = pooled_by_loops(v[b, :, h], mask[b], projection, f)
        weights = np.exp(q[b, :, h] @ keys.T / 2)
        expected = weights / weights.sum(axis=1, keepdims=True) @ values
        np.testing.assert_allclose(out[b, :, h], expected, atol=1e-5)


def test_convolution_starts_as_torch_does():
    attention = module(length=64, heads=4, head_dim=8, proj_dim=8, projection="conv")
    kernel = np.asarray(attention.e[0][...])
    assert kernel.shape == (4, 8, 8, 8)
    limit = 1 / math.sqrt(8 * 8)
    assert 0.99 * limit < np.abs(kernel).max() <= limit
    np.testing.assert_allclose(kernel.std(), limit / math.sqrt(3), rtol=0.05)


def test_a_convolution_with_other_than_the_asked_windows_is_refused():
    with pytest.raises(ValueError, match="5 windows of 4, not proj_dim = 6"):
        module(length=20, proj_dim=6, projection="conv")


def test_matrices_start_as_the_reference():
    attention = module(length=256, proj_dim=64, share=())
    e, f = (np.asarray(x[0][...]) for x in (attention.e, attention.f))
    assert e.shape == f.shape == (2, 64, 256)
    np.testing.assert_allclose([e.std(), f.std()], 0.02, rtol=0.03)
    assert not np.allclose(e, f)


def test_a_longer_sequence_than_the_module_is_made_for_is_refused():
    with pytest.raises(ValueError, match="13 positions, but the attention is made for 12"):
        module()(*random_inputs(4, length=13), jnp.ones((2, 13), bool))


@pytest.mark.parametrize("head_dim", [1, 2])
def test_a_convolution_of_other_heads_is_refused(head_dim):
    x = jnp.ones((2, 12, 2, head_dim))
    with pytest.raises(ValueError, match=f"{head_dim} numbers per head, .* made for 4"):
        module(projection="conv")(x, x, x, jnp.ones((2, 12), bool))


# What the suite of all attentions has no case for: means, and a last window that is not full.
@pytest.mark.parametrize(("projection", "proj_dim"), [("mean_pool", 6), ("conv", 7)])
def test_neither_padding_nor_its_amount_matters(projection, proj_dim):
    attention = jax.jit(module(length=20, proj_dim=proj_dim, projection=projection, share=()))
    inputs = random_inputs(4, length=20)
    mask = jnp.zeros((2, 20), bool).at[1, 2:9].set(True)
    whole = attention(*inputs, mask)
    short = attention(*(x[:, :13] for x in (*inputs, mask)))
    np.testing.assert_allclose(whole[:, :13], short, atol=1e-6)
    assert np.all(whole[0] == 0)
    assert np.any(whole[1] != 0)
    gradients = jax.jit(jax.grad(lambda qkv: jnp.sum(attention(*qkv, mask) ** 2)))(inputs)
    assert all(np.all(np.isfinite(x)) for x in gradients)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_bfloat16_is_close_to_float32(projection):
    attention = jax.jit(module(projection=projection))
    mask = jnp.arange(12)[None, :] < jnp.array([[12], [7]])
    inputs = [x.astype(jnp.bfloat16) for x in random_inputs(6)]
    half = attention(*inputs, mask)
    assert half.dtype == jnp.bfloat16
    full = attention(*(x.astype(jnp.float32) for x in inputs), mask)
    np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.04)


def count(layers, **options):
    return sum(x.size for x in parameters(stack(layers, **options)))


def test_default_is_one_matrix_per_head_for_keys_values_and_layers():
    sizes = {"length": 2048, "head_dim": 32, "proj_dim": 256}
    assert count(2, **sizes) == 2 * 256 * 2048


@pytest.mark.parametrize(
    ("share", "matrices"),
    [
        (("heads",), 24),  # the paper's headwise sharing: E and F in each of 12 layers
        (("kv", "heads"), 12),
        (("kv", "heads", "layers"), 1),
        ((), 288),
        (("kv", "layers"), 12),
    ],
)
def test_distinct_matrices_of_twelve_layers_of_twelve_heads(share, matrices):
    arrays = parameters(stack(12, heads=12, length=6, proj_dim=3, share=share))
    assert {x.shape[1:] for x in arrays} == {(3, 6)}
    assert sum(x.shape[0] for x in arrays) == matrices


@pytest.mark.parametrize(("projection", "expected"), [("conv", 3 * 3 * 4 * 4), ("max_pool", 0)])
def test_parameters_of_the_other_projections(projection, expected):
    # One kernel of window 3 in each of 3 layers; pooling has nothing to train.
    assert count(3, projection=projection, share=("kv", "heads")) == expected


def test_shared_layers_survive_split_and_merge_as_one_array():
    graph, params, rest = nnx.split(stack(3), nnx.Param, ...)
    assert [x.shape for x in jax.tree.leaves(params)] == [(2, 4, 12)]
    assert not jax.tree.leaves(rest)
    first, second, third = nnx.merge(graph, params, rest)
    assert first.e[0] is second.e[0]
    assert first.e[0] is third.f[0]


def test_gradient_of_a_shared_array_is_the_sum_over_its_uses():
    inputs, mask = random_inputs(7), jnp.ones((2, 12), bool)
    graph, params = nnx.split(stack(2))

    def total(params):
        one, two = nnx.merge(graph, params)
        return jnp.sum(jnp.sin(one(*inputs, mask)) + jnp.cos(two(*inputs, mask)))

    def apart(e1, f1, e2, f2):
        one = linformer_attention(*inputs, mask, e1, f1)
        return jnp.sum(jnp.sin(one) + jnp.cos(linformer_attention(*inputs, mask, e2, f2)))

    (e,) = jax.tree.leaves(params)
    (shared,) = jax.tree.leaves(jax.jit(jax.grad(total))(params))
    expected = sum(jax.jit(jax.grad(apart, argnums=range(4)))(e, e, e, e))
    np.testing.assert_allclose(shared, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_sizes_per_layer_and_head(projection):
    sizes = ((4, 4), (6, 3))
    first, second = stack(2, proj_dim=sizes, share=("kv",), projection=projection)
    assert len(first.e) == (1 if projection in ("linear", "conv") else 0)
    q, k, v = inputs = random_inputs(8)
    mask = jnp.arange(12)[None, :] < jnp.array([[12], [7]])
    out = jax.jit(second)(*inputs, mask)
    for head, size in enumerate(sizes[1]):
        alone = module(heads=1, proj_dim=size, share=("kv",), projection=projection)
        if second.e:
            alone.e[0][...] = second.e[head][...]
        expected = jax.jit(alone)(*(x[:, :, head : head + 1] for x in (q, k, v)), mask)
        np.testing.assert_allclose(out[:, :, head : head + 1], expected, atol=1e-6)


def test_one_size_per_layer():
    first, second = stack(2, proj_dim=(6, 2), share=("heads",))
    assert first.e[0].shape == first.f[0].shape == (1, 6, 12)
    assert second.e[0].shape == second.f[0].shape == (1, 2, 12)


@pytest.mark.parametrize("share", [("kv", "layers"), ("kv", "heads", "layers")])
def test_poolings_share_nothing_so_their_sizes_may_differ(share):
    first, second = stack(2, proj_dim=((6, 2), (4, 4)), projection="mean_pool", share=share)
    assert (first.sizes, second.sizes) == ((6, 2), (4, 4))
    inputs, mask = random_inputs(9), jnp.ones((2, 12), bool)
    apart = module(layer=1, proj_dim=(6, 4), projection="mean_pool", share=())
    np.testing.assert_array_equal(*(jax.jit(each)(*inputs, mask) for each in (second, apart)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proj_dim": 13}, "proj_dim.*13.*length 12"),
        ({"proj_dim": 0}, "proj_dim must be a positive integer, not 0"),
        ({"proj_dim": -2}, "not -2"),
        ({"proj_dim": True}, "not True"),
        ({"proj_dim": (), "share": ()}, "no entry for layer 0"),
        ({"proj_dim": (4, 0), "share": ()}, "not 0"),
        ({"proj_dim": (4, 4), "layer": 2, "share": ()}, "no entry for layer 2"),
        ({"proj_dim": ((4, 4, 4),), "share": ()}, "3 sizes for a layer of 2 heads"),
        ({"proj_dim": (4, 5)}, "share has 'layers', but proj_dim differs between layers"),
        ({"proj_dim": (4, (4, 5)), "share": ("layers",)}, "differs between layers"),
        ({"proj_dim": ((4, 5),), "share": ("heads",)}, "share has 'heads', but .* between heads"),
        ({"share": ("layer",)}, "unknown element of share 'layer' .did you mean 'layers'"),
        ({"share": ("values",)}, "known: heads, kv, layers"),
        ({"share": "kv"}, "share must be a collection of names .*, not 'kv'"),
        ({"projection": "meanpool"}, "did you mean 'mean_pool'"),
        ({"projection": "fourier"}, "known: conv, linear, max_pool, mean_pool"),
        ({"layer": 1}, "layers after the first need layer 0's attention"),
        ({"layer": 1, "length": 8, "shared": module()}, "length 8 differs from the 12"),
        (
            {"layer": 1, "shared": module(projection="conv")},
            "projection linear differs from the conv",
        ),
        ({"layer": 1, "proj_dim": 3, "shared": module()}, "sizes .3, 3. differs from the .4, 4."),
        (
            {"layer": 1, "share": ("heads", "layers"), "shared": module()},
            "share .'heads', 'layers'. differs from the .'kv', 'layers'.",
        ),
        (
            {"layer": 1, "head_dim": 5, "projection": "conv", "shared": module(projection="conv")},
            "head_dim 5 differs from the 4 of the layer",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        module(**options)


def test_one_matrix_for_keys_and_values_is_read_once():
    e = jax.random.normal(jax.random.key(1), (2, 3, 16))
    q, k, v = jax.random.normal(jax.random.key(2), (3, 2, 16, 2, 4))
    mask = jnp.arange(16)[None] < jnp.array([[16], [9]])
    once = linformer_attention(q, k, v, mask, e)
    np.testing.assert_allclose(once, linformer_attention(q, k, v, mask, e, e), atol=1e-6)
    attention = make("linformer", length=16, heads=2, head_dim=4, proj_dim=3, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(attention)

    def call(state, q):
        return nnx.merge(graphdef, state)(q, k, v, mask)

    assert str(jax.make_jaxpr(call)(state, q)).count("name=kernel_einsum") == 1
