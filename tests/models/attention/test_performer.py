"""Performer against lucidrains' arrays, its limit, its masks and its random features."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import performer
from models.attention.contract import Untrained
from models.attention.performer import (
    PerformerAttention,
    key_features,
    performer_attention,
    query_features,
)
from models.attention.standard import standard_attention
from tests.models.attention.arrays import (
    assert_close,
    assert_values_and_gradients,
    load,
    load_inputs,
    out_and_gradients,
)
from tests.programs import equations

KERNELS = ("softmax", "relu")

# Compiled whole: one by one the operations take longer to compile.
attend = jax.jit(performer_attention, static_argnames=("kernel", "epsilon"))
orthogonal_features = jax.jit(performer.orthogonal_features, static_argnums=(1, 2))


def random_inputs(seed, batch, length, heads, head_dim, scale=1.0):
    keys = jax.random.split(jax.random.key(seed), 3)
    q, k, v = (jax.random.normal(key, (batch, length, heads, head_dim)) for key in keys)
    return scale * q, scale * k, v


@pytest.mark.usefixtures("float64")
def test_golden_values_and_gradients():
    inputs, expected = load_inputs(), load("performer")
    ones, projection = inputs["mask_ones"], jnp.asarray(expected["P"])

    def attention(q, k, v):
        return performer_attention(q, k, v, ones, projection)

    assert_values_and_gradients(attention, inputs, expected, "performer_ones")


@pytest.mark.usefixtures("float64")
def test_golden_relu_kernel():
    inputs, expected = load_inputs(), load("performer")
    ones, projection = inputs["mask_ones"], jnp.asarray(expected["P"])
    out = attend(inputs["q"], inputs["k"], inputs["v"], ones, projection, kernel="relu")
    assert_close(out, expected["out_relu"].swapaxes(1, 2))


@pytest.mark.usefixtures("float64")
def test_golden_features():
    inputs, expected = load_inputs(), load("performer")
    ones, projection = inputs["mask_ones"], jnp.asarray(expected["P"])
    # The golden file holds the first sequence of the batch.
    queries = jax.jit(query_features)(inputs["q"][:1], projection)
    keys = jax.jit(key_features)(inputs["k"][:1], ones[:1], projection)
    np.testing.assert_allclose(queries, expected["feat_q"], rtol=1e-9, atol=0)
    np.testing.assert_allclose(keys, expected["feat_k"], rtol=1e-9, atol=0)


def test_approaches_standard_attention_as_features_grow():
    q, k, v = random_inputs(0, 2, 24, 2, 8, scale=0.5)
    mask = jnp.arange(24)[None, :] < jnp.array([[24], [15]])
    exact = jax.jit(standard_attention)(q, k, v, mask)

    @jax.jit
    def error(projection):
        out = attend(q, k, v, mask, projection)
        return jnp.mean(jnp.where(mask[:, :, None, None], out - exact, 0) ** 2)

    def mean_error(num_features):
        keys = jax.random.split(jax.random.key(1), 8)
        squares = [error(orthogonal_features(key, num_features, 8)) for key in keys]
        return float(np.sqrt(np.mean(squares)))

    few, many = mean_error(64), mean_error(64 * 64)
    # 1 / sqrt(features): 8 times smaller. Measured: 8.2.
    assert 5 < few / many < 13
    assert many < 0.01


@pytest.mark.parametrize("kernel", KERNELS)
def test_padding_is_as_if_cut_off(kernel):
    q, k, v = random_inputs(2, 1, 12, 2, 8)
    real = np.array([0, 1, 3, 4, 8])
    mask = jnp.zeros((1, 12), bool).at[0, real].set(True)
    projection = orthogonal_features(jax.random.key(3), 20, 8)
    # Louder padding than tokens: its exponent would overflow if it were exponentiated.
    k = jnp.where(mask[:, :, None, None], k, 1e4)
    v = jnp.where(mask[:, :, None, None], v, jnp.nan)
    whole = attend(q, k, v, mask, projection, kernel=kernel)
    q, k, v, mask = (x[:, real] for x in (q, k, v, mask))
    cut = attend(q, k, v, mask, projection, kernel=kernel)
    np.testing.assert_allclose(whole[:, real], cut, rtol=1e-5, atol=1e-6)


def test_maximum_of_the_keys_ignores_padding():
    # All projections are negative, smaller than the 0 that stands for padding.
    k = -1 - 0.2 * jax.random.uniform(jax.random.key(11), (1, 6, 2, 4))
    mask = jnp.arange(6)[None, :] < 4
    projection = jax.random.uniform(jax.random.key(12), (3, 4))
    features = key_features(k, mask, projection)
    np.testing.assert_allclose(
        features[:, :, :4], key_features(k[:, :4], mask[:, :4], projection), rtol=1e-5
    )
    assert np.all(features[:, :, 4:] == 0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_real_token_gives_zero_and_gradients_stay_finite(kernel):
    # 30 times the usual size: without the maximum, exp would overflow float32.
    q, k, v = random_inputs(4, 2, 6, 1, 4, scale=30.0)
    mask = jnp.zeros((2, 6), bool).at[1, 2].set(True)
    projection = orthogonal_features(jax.random.key(5), 7, 4)

    def attention(q, k, v):
        return performer_attention(q, k, v, mask, projection, kernel=kernel)

    out, *gradients = out_and_gradients(attention, q, k, v, v)
    assert np.all(out[0] == 0)
    np.testing.assert_allclose(out[1], jnp.broadcast_to(v[1, 2], out[1].shape), rtol=1e-5)
    assert all(np.all(np.isfinite(x)) for x in gradients)


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16_is_rounded_only_at_the_border(kernel):
    q, k, v = (x.astype(jnp.bfloat16) for x in random_inputs(6, 1, 9, 2, 8))
    mask = jnp.ones((1, 9), bool)
    projection = orthogonal_features(jax.random.key(7), 16, 8)
    out = attend(q, k, v, mask, projection, kernel=kernel)
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    full = attend(q, k, v, mask, projection, kernel=kernel)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, full.astype(jnp.bfloat16))


def test_directions_are_orthonormal_in_each_block():
    size, count = 64, 300
    projection = np.asarray(orthogonal_features(jax.random.key(8), count, size), np.float64)
    assert projection.shape == (count, size)
    directions = projection / np.linalg.norm(projection, axis=1, keepdims=True)
    for start in range(0, count, size):
        block = directions[start : start + size]
        # To round-off, which a single pass of Gram-Schmidt exceeds a thousandfold.
        np.testing.assert_allclose(block @ block.T, np.eye(len(block)), atol=1e-6)
    assert np.abs(directions[:size] @ directions[size : 2 * size].T).max() > 0.1


def test_drawing_calls_no_library_that_waits_for_other_threads():
    # jaxlib's LAPACK does, and two calls at once on two threads wait for ever.
    assert (
        "custom-call"
        not in orthogonal_features.lower(jax.random.key(0), 40, 16).compile().as_text()
    )


def test_rows_are_distributed_as_gaussian_ones():
    rows = np.asarray(orthogonal_features(jax.random.key(9), 40_000, 8), np.float64)
    squares = np.sum(rows**2, axis=1)
    # Chi-square with 8 degrees: mean 8, variance 16; five standard errors.
    assert abs(squares.mean() - 8) < 5 * np.sqrt(16 / len(rows))
    assert abs(squares.var() - 16) < 1
    # No coordinate prefers a sign.
    assert np.abs(rows.mean(axis=0)).max() < 5 / np.sqrt(len(rows))
    np.testing.assert_allclose(rows.T @ rows / len(rows), np.eye(8), atol=0.04)


@pytest.mark.parametrize("options", [{"kernel": "relu"}, {"epsilon": 0.0}, {"epsilon": 0.25}])
def test_module_computes_the_function_and_holds_no_parameter(options):
    attention = PerformerAttention(
        length=10, heads=2, head_dim=8, rngs=nnx.Rngs(0), num_features=12, **options
    )
    q, k, v = random_inputs(10, 2, 10, 2, 8)
    mask = jnp.ones((2, 10), bool)
    expected = attend(q, k, v, mask, attention.projection[...], **options)
    np.testing.assert_array_equal(jax.jit(attention)(q, k, v, mask), expected)
    assert not jax.tree.leaves(nnx.state(attention, nnx.Param))
    assert [x.shape for x in jax.tree.leaves(nnx.state(attention, Untrained))] == [(12, 8)]


def test_layers_draw_their_own_projection():
    rngs = nnx.Rngs(0)
    one, two = (
        PerformerAttention(length=4, heads=1, head_dim=4, rngs=rngs, num_features=4)
        for _ in range(2)
    )
    assert not np.allclose(one.projection[...], two.projection[...])


def test_redraw_under_vmap_over_seeds():
    def build(seed):
        rngs = nnx.Rngs(seed)
        module = PerformerAttention(length=4, heads=1, head_dim=4, rngs=rngs, num_features=6)
        return nnx.split(module)

    graph, state = jax.vmap(build)(jax.random.split(jax.random.key(0), 3))

    def redraw(state, key):
        module = nnx.merge(graph, state)
        module.redraw(key)
        return nnx.state(module)

    keys = jax.random.split(jax.random.key(1), 3)
    drawn = jax.jit(jax.vmap(redraw))(state, keys)
    assert not np.allclose(drawn["projection"][...], state["projection"][...])
    expected = jnp.stack([orthogonal_features(key, 6, 4) for key in keys])
    np.testing.assert_allclose(drawn["projection"][...], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_features": 0}, "num_features must be a positive integer, not 0"),
        ({"num_features": -3}, "not -3"),
        ({"num_features": True}, "not True"),
        ({"kernel": "sofmax"}, "did you mean 'softmax'"),
        ({"kernel": "elu"}, "known: relu, softmax"),
        ({"epsilon": -1e-4}, "epsilon must be a number from 0 to less than 1, not -0.0001"),
        ({"epsilon": 1.0}, "not 1.0"),
        ({"kernel": "relu", "epsilon": 0.0}, "epsilon is for kernel 'softmax'"),
        ({"redraw_steps": -1}, "redraw_steps"),
        ({"redraw_steps": True}, "redraw_steps"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        PerformerAttention(length=8, heads=1, head_dim=4, rngs=nnx.Rngs(0), **options)


def test_unknown_kernel_of_the_function():
    q, k, v = random_inputs(0, 1, 4, 1, 4)
    with pytest.raises(ValueError, match="unknown kernel 'gelu'"):
        performer_attention(q, k, v, jnp.ones((1, 4), bool), jnp.ones((4, 4)), kernel="gelu")
    with pytest.raises(ValueError, match="unknown kernel 'gelu'"):
        query_features(q, jnp.ones((4, 4)), kernel="gelu")
    with pytest.raises(ValueError, match="unknown kernel 'gelu'"):
        key_features(k, jnp.ones((1, 4), bool), jnp.ones((4, 4)), kernel="gelu")


def test_directions_are_exact_whatever_the_precision_of_other_products():
    draw = functools.partial(performer.orthogonal_features, num_features=40, head_dim=16)
    with jax.default_matmul_precision("tensorfloat32"):
        program = jax.make_jaxpr(draw)(jax.random.key(0))
    precisions = [
        equation.params["precision"]
        for equation in equations(program.jaxpr)
        if equation.primitive.name == "dot_general"
    ]
    assert precisions == [(jax.lax.Precision.HIGHEST,) * 2] * 4


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_epsilon_that_is_asked_for_is_used(epsilon):
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 12, 2, 8))
    mask = jnp.ones((2, 12), bool)
    projection = orthogonal_features(jax.random.key(1), 16, 8)
    found = attend(q, k, v, mask, projection, epsilon=epsilon)
    queries = jax.jit(functools.partial(query_features, epsilon=epsilon))(q, projection)
    keys = jax.jit(functools.partial(key_features, epsilon=epsilon))(k, mask, projection)
    weights = np.einsum("bhlm,bhkm->bhlk", queries, keys)
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, np.einsum("bhlk,bkhd->blhd", weights, v), atol=1e-5)
