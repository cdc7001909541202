"""The GPU kernels of FAVOR+, interpreted, against the form without; lowered on any machine."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.favor_kernels import FavorBlocks, favor_attention_by_kernels
from models.attention.performer import (
    SOFTMAX_EPSILON,
    orthogonal_features,
    performer_attention,
)
from models.kernel_choice import preferred_for_features
from models.machine import Machine, assumed
from tests.models.attention.arrays import (
    assert_rounded,
    assert_trains_like,
    masks,
    of_two_seeds,
    out_and_gradients,
    random_inputs,
)
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

FEATURES, WIDTH = 64, 16
SMALL = FavorBlocks(positions=16, features=32)
PROJECTION = orthogonal_features(jax.random.key(7), FEATURES, WIDTH)
GPU = Machine("gpu", runs_kernels=True)

interpreted = functools.partial(favor_attention_by_kernels, blocks=SMALL, interpret=True)
with_and_without_epsilon = pytest.mark.parametrize("epsilon", [SOFTMAX_EPSILON, 0.0])


def inputs(length, dtype=jnp.bfloat16, seed=0):
    q, k, v, g = random_inputs(length, jnp.float32, head_dim=WIDTH, seed=seed)
    return tuple(x.astype(dtype) for x in (q / 2, k, v, g))


def cast(arrays, dtype=jnp.float32):
    return tuple(x.astype(dtype) for x in arrays)


@functools.cache
def by_small_blocks(length, epsilon=SOFTMAX_EPSILON):
    """The kernels of small blocks on a length's masks: one function, compiled once."""
    return attention_of(interpreted, masks(length), epsilon)


def attention_of(attend, mask, epsilon=SOFTMAX_EPSILON, projection=PROJECTION):
    def attention(q, k, v):
        if attend is performer_attention:
            return attend(q, k, v, mask, projection, epsilon=epsilon)
        return attend(q, k, v, mask, projection, epsilon)

    return attention


# Less than a block, whole blocks, a part of one, whatever an epsilon adds to features.
@pytest.mark.parametrize(
    ("length", "epsilon"),
    [
        *((length, SOFTMAX_EPSILON) for length in (9, 37)),
        (37, 0.0),
        pytest.param(32, SOFTMAX_EPSILON, marks=pytest.mark.slow),
        *(pytest.param(length, 0.0, marks=pytest.mark.slow) for length in (9, 32)),
    ],
)
def test_equals_the_form_without_kernels(length, epsilon):
    arrays, mask = inputs(length), masks(length)
    found = out_and_gradients(by_small_blocks(length, epsilon), *arrays)
    expected = out_and_gradients(attention_of(performer_attention, mask, epsilon), *cast(arrays))
    assert all(x.dtype == jnp.bfloat16 for x in found)
    # Of e or d, of S or u and of the result; gradients sum terms of both signs.
    assert_rounded(found, expected, roundings=3)
    for x in found:  # of the sequence without any real token
        assert not np.asarray(x, np.float32)[3].any()


@with_and_without_epsilon
def test_a_single_key_gives_its_value(epsilon):
    arrays = inputs(1)
    found = out_and_gradients(by_small_blocks(1, epsilon), *arrays)
    out, dq, dk, dv = (np.asarray(x, np.float32) for x in found)
    v, g = (np.asarray(x, np.float32) for x in arrays[2:])
    np.testing.assert_allclose(out[0], v[0], rtol=2**-8)
    np.testing.assert_allclose(dv[0], g[0], rtol=2**-7)
    assert max(np.linalg.norm(dq), np.linalg.norm(dk)) < 3 * 2**-9 * np.linalg.norm(g)


def test_features_that_nearly_underflow_have_finite_gradients():
    """A query whose denominator is too small to divide by has neither output nor gradient."""
    q, k, v, g = inputs(37)
    attend = attention_of(interpreted, jnp.ones((len(q), 37), bool), 0.0)
    found = out_and_gradients(attend, 40 * q, 40 * k, v, g)  # inputs has halved the queries
    assert all(np.isfinite(np.asarray(x, np.float32)).all() for x in found)


@pytest.mark.parametrize(
    "blocks",
    [FavorBlocks(16, 16), pytest.param(FavorBlocks(32, 64), marks=pytest.mark.slow), None],
)
def test_the_sizes_of_blocks_change_only_the_order_of_sums(blocks):
    attend = functools.partial(favor_attention_by_kernels, blocks=blocks, interpret=True)
    found = out_and_gradients(attention_of(attend, masks(37)), *inputs(37))
    expected = out_and_gradients(by_small_blocks(37), *inputs(37))
    assert_rounded(found, cast(expected), roundings=3)


@with_and_without_epsilon
def test_peaks_may_grow_from_block_to_block(epsilon):
    """Exponents of hundreds, growing along the length: neither infinite nor lost."""
    q, k, v, g = inputs(37)
    k = k * jnp.linspace(1, 40, 37, dtype=k.dtype)[None, :, None, None]
    found = out_and_gradients(by_small_blocks(37, epsilon), q, k, v, g)
    plain = jax.jit(attention_of(performer_attention, masks(37), epsilon))
    assert all(np.isfinite(np.asarray(x, np.float32)).all() for x in found)
    assert_rounded(found[:1], [plain(*cast((q, k, v)))], roundings=3)


def test_what_little_leads_out_of_features_near_epsilon_is_not_lost_in_rounding(float64):
    """The output is the mean of the values but for 1e-8 of it, dq of that order."""
    q, k, v, g = inputs(37)
    k, v = 4 * k, v + 1
    mask = masks(37)
    found = out_and_gradients(attention_of(interpreted, mask), q, k, v, g)
    arrays = cast((q, k, v, g), jnp.float64)
    expected = out_and_gradients(attention_of(performer_attention, mask), *arrays)
    assert np.linalg.norm(expected[1]) < 1e-4 * np.linalg.norm(expected[3])
    assert_rounded(found, expected, roundings=4)


def test_even_nan_at_padding_stays_there():
    q, k, v, g = inputs(37)
    mask = masks(37)
    k_nan, v_nan = (jnp.where(mask[:, :, None, None], x, jnp.nan) for x in (k, v))
    attend = by_small_blocks(37)
    found = out_and_gradients(attend, q, k_nan, v_nan, g)
    for x, y in zip(found, out_and_gradients(attend, q, k, v, g), strict=True):
        np.testing.assert_array_equal(x, y)


def test_seeds_train_at_once():
    mask = masks(21)

    def narrow(projection, *x):
        attend = attention_of(interpreted, mask, projection=projection)
        return attend(*cast(x, jnp.bfloat16)).astype(jnp.float32)

    assert_trains_like(
        narrow,
        lambda projection, *x: performer_attention(*x, mask, projection),
        jnp.stack([PROJECTION, PROJECTION[::-1] / 2]),
        cast(of_two_seeds(functools.partial(inputs, 21))),
        functools.partial(assert_rounded, roundings=4),
    )


def total_gradients(q, k, v, mask, projection):
    def total(q, k, v):
        return jnp.sum(performer_attention(q, k, v, mask, projection).astype(jnp.float32))

    return jax.value_and_grad(total, argnums=(0, 1, 2))(q, k, v)


def lowered_calls(function, head_dim, monkeypatch):
    """Operands of the kernels in a program for three seeds, and its text."""
    x = jax.ShapeDtypeStruct((3, 4, 300, 2, head_dim), jnp.bfloat16)
    mask = jax.ShapeDtypeStruct((4, 300), jnp.bool_)
    projection = jax.ShapeDtypeStruct((3, 256, head_dim), jnp.float32)
    seeds = jax.jit(jax.vmap(function, in_axes=(0, 0, 0, None, 0)))
    with on_an_h100(monkeypatch), assumed(GPU):
        traced = seeds.trace(x, x, x, mask, projection)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    return re.findall(r"custom_call @__gpu\$xla.gpu.triton.* : \((.*)\) ->", text), text


@pytest.mark.parametrize("head_dim", [16, 32, 64])
@TRITON_IS_LEAVING
def test_five_kernels_whatever_the_number_of_seeds_lowered_for_a_gpu(head_dim, monkeypatch):
    calls, text = lowered_calls(total_gradients, head_dim, monkeypatch)
    assert len(calls) == 5
    assert "stablehlo.while" not in text


@TRITON_IS_LEAVING
def test_two_kernels_evaluate(monkeypatch):
    calls, _ = lowered_calls(performer_attention, 32, monkeypatch)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("dtype", "shape", "machine", "expected"),
    [
        (jnp.bfloat16, (256, 32), GPU, True),
        (jnp.bfloat16, (64, 64), GPU, True),
        (jnp.bfloat16, (32, 32), GPU, False),
        (jnp.bfloat16, (192, 32), GPU, False),
        (jnp.bfloat16, (256, 8), GPU, False),
        (jnp.bfloat16, (256, 128), GPU, False),
        (jnp.float16, (256, 32), GPU, False),
        (jnp.float32, (256, 32), GPU, False),
        (jnp.bfloat16, (256, 32), Machine("gpu"), False),
        (jnp.bfloat16, (256, 32), Machine("cpu"), False),
    ],
)
def test_which_inputs_are_left_to_kernels(dtype, shape, machine, expected):
    assert preferred_for_features(dtype, *shape, machine) == expected


def test_features_that_do_not_fill_blocks_are_refused():
    with pytest.raises(ValueError, match="16 features, which are no multiple of 32"):
        interpreted(*inputs(9)[:3], masks(9), PROJECTION[:16], 0.0)


def test_relu_has_no_kernels():
    q, k, v, _ = inputs(16)
    with assumed(GPU):
        program = jax.make_jaxpr(functools.partial(performer_attention, kernel="relu"))
        assert "pallas_call" not in str(program(q, k, v, masks(16), PROJECTION))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("head_dim", [16, 32, 64])
@with_and_without_epsilon
def test_on_a_gpu(epsilon, head_dim):
    q, k, v, g = random_inputs(300, jnp.float32, head_dim=head_dim)
    arrays = tuple(x.astype(jnp.bfloat16) for x in (q / 2, k, v, g))
    projection = orthogonal_features(jax.random.key(7), 256, head_dim)
    mask = masks(300)
    plain = attention_of(performer_attention, mask, epsilon, projection)
    found = out_and_gradients(
        attention_of(favor_attention_by_kernels, mask, epsilon, projection), *arrays
    )
    with jax.default_matmul_precision("float32"):
        expected = out_and_gradients(plain, *cast(arrays))
    assert_rounded(found, expected, roundings=4)


def test_no_second_order():
    x = jnp.ones((1, 8, 1, WIDTH), jnp.bfloat16)
    attend = attention_of(interpreted, jnp.ones((1, 8), bool))
    with pytest.raises(TypeError, match="forward-mode autodiff"):
        jax.jvp(lambda q: attend(q, x, x), (x,), (x,))
