"""Nyström attention: reference arrays, its limit, its landmarks under masks, its options."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import nystrom
from models.attention.convolution import depthwise_convolution
from models.attention.nystrom import NystromAttention
from models.attention.standard import standard_attention
from models.machine import Machine, assumed
from tests.models.attention.arrays import (
    assert_close,
    assert_rounded,
    assert_values_and_gradients,
    load,
    load_inputs,
    out_and_gradients,
)
from tests.programs import equations

SIZES = ("num_landmarks", "pinv_iterations")
nystrom_attention = jax.jit(nystrom.nystrom_attention, static_argnames=SIZES)
nystrom_factors = jax.jit(nystrom.nystrom_factors, static_argnames=SIZES)
iterative_pinv = jax.jit(nystrom.iterative_pinv, static_argnames="iterations")


def inputs(length, dtype=jnp.float64, scale=1.0):
    q, k, v, g = np.random.default_rng(0).normal(size=(4, 2, length, 2, 8))
    return tuple(jnp.asarray(x, dtype) for x in (scale * q, scale * k, v, g))


def build(**options):
    options = {"length": 64, "heads": 2, "head_dim": 8, "rngs": nnx.Rngs(0)} | options
    return NystromAttention(**options)


@pytest.mark.parametrize("num_landmarks", [16, 32])
def test_golden_values_and_gradients(num_landmarks, float64):
    arrays = load_inputs()

    def attend(q, k, v):
        return nystrom_attention(q, k, v, arrays["mask_ones"], num_landmarks=num_landmarks)

    assert_values_and_gradients(attend, arrays, load("nystrom"), f"nystrom_m{num_landmarks}")


def test_golden_convolution(float64):
    arrays, expected = load_inputs(), load("nystrom")
    kernel = arrays["conv_w"][:, 0, :, 0]

    def attend(q, k, v, kernel):
        return nystrom_attention(q, k, v, arrays["mask_ones"], num_landmarks=16, conv_kernel=kernel)

    assert_values_and_gradients(lambda *x: attend(*x, kernel), arrays, expected, "nystrom_m16_conv")

    def loss(kernel):
        return jnp.sum(attend(arrays["q"], arrays["k"], arrays["v"], kernel) * arrays["g"])

    assert_close(jax.jit(jax.grad(loss))(kernel), expected["nystrom_m16_conv_dconv"][:, 0, :, 0])


@pytest.mark.parametrize("iterations", [0, 1, 3, 6, 12])
def test_golden_inverse(iterations, float64):
    found = iterative_pinv(load_inputs()["stoch"], iterations)
    assert_close(found, load("nystrom")[f"pinv_iter{iterations}"])


def test_inverse_of_any_batch_and_rank(float64):
    """Converges to the pseudo-inverse, of a singular matrix too; each matrix for itself."""
    matrices = np.random.default_rng(0).normal(size=(2, 3, 6, 6))
    matrices[0, 0, :, 5] = matrices[0, 0, :, 4]
    found = iterative_pinv(jnp.asarray(matrices), 25)
    np.testing.assert_allclose(found, np.linalg.pinv(matrices), atol=1e-9)
    np.testing.assert_allclose(iterative_pinv(jnp.asarray(matrices[1, 2]), 25), found[1, 2])


def test_inverse_of_bfloat16_is_computed_in_float32():
    a = jax.nn.softmax(3 * jax.random.normal(jax.random.key(0), (8, 8)))
    half = a.astype(jnp.bfloat16)
    found = iterative_pinv(half)
    assert found.dtype == jnp.bfloat16
    expected = iterative_pinv(half.astype(jnp.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(found.astype(jnp.float32), expected.astype(jnp.float32))


def test_a_step_of_the_inverse_keeps_one_matrix_for_the_backward_pass():
    def memory(steps):
        gradient = jax.jit(jax.grad(lambda a: jnp.sum(nystrom.iterative_pinv(a, steps) ** 2)))
        compiled = gradient.lower(jax.ShapeDtypeStruct((64, 64), jnp.float32)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    matrix = 64 * 64 * 4
    assert memory(16) - memory(6) < 12 * matrix


@pytest.mark.parametrize("holes", [False, True])
def test_as_many_landmarks_as_tokens_give_standard_attention(holes, float64):
    """F = A = B, so F A^-1 B = A once the iteration has converged."""
    q, k, v, g = inputs(12, scale=2.0)
    mask = np.ones((2, 12), bool)
    if holes:
        mask[:, [0, 4, 5, 11]] = False
    mask = jnp.asarray(mask)
    real = mask[:, :, None, None]

    def attend(q, k, v):
        out = nystrom_attention(q, k, v, mask, num_landmarks=12, pinv_iterations=30)
        return jnp.where(real, out, 0)

    def exact(q, k, v):
        return jnp.where(real, standard_attention(q, k, v, mask), 0)

    found = out_and_gradients(attend, q, k, v, g)
    for x, y in zip(found, out_and_gradients(exact, q, k, v, g), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-7)


def test_six_iterations_are_not_exact(float64):
    q, k, v, _ = inputs(12, scale=2.0)
    mask = jnp.ones((2, 12), bool)
    out = nystrom_attention(q, k, v, mask, num_landmarks=12)
    assert np.max(np.abs(out - jax.jit(standard_attention)(q, k, v, mask))) > 1e-3


def test_empty_segments_leave_the_others_as_they_are(float64):
    """The same tokens with two segments of padding more (segments of 4 in both cases)."""
    q, k, v, _ = inputs(32)
    short = jnp.ones((2, 24), bool).at[1, 13].set(False)
    long = jnp.pad(short, ((0, 0), (0, 8)))
    expected = nystrom_attention(*(x[:, :24] for x in (q, k, v)), short, num_landmarks=6)
    found = nystrom_attention(q, k, v, long, num_landmarks=8)
    np.testing.assert_allclose(found[:, :24], expected, rtol=1e-12, atol=1e-12)


def test_one_real_token_gives_its_value(float64):
    """Its landmark is itself: F, A and B are 1 there, and so is the iteration's every step."""
    arrays = load_inputs()
    mask = arrays["mask_one"]
    out = nystrom_attention(*(arrays[name] for name in "qkv"), mask, num_landmarks=16)
    assert mask[0].sum() == 1
    np.testing.assert_allclose(out[0][mask[0]], arrays["v"][0][mask[0]], rtol=1e-12)


def test_an_output_does_not_depend_on_other_heads_and_sequences(float64):
    """The start of the inverse is taken by matrix: a sharp neighbour changes nothing."""
    q, k, v, _ = inputs(32)
    mask = jnp.ones((2, 32), bool)
    sharp = q.at[1].multiply(10).at[:, :, 1].multiply(10)
    expected = nystrom_attention(q, k, v, mask, num_landmarks=8)
    found = nystrom_attention(sharp, k, v, mask, num_landmarks=8)
    np.testing.assert_allclose(found[0, :, 0], expected[0, :, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [32, 37])
def test_factors_give_the_output(length, float64):
    q, k, v, _ = inputs(length)
    mask = jnp.arange(length)[None] < jnp.array([[length], [9]])
    f, z, b = nystrom_factors(q, k, mask, num_landmarks=8)
    dense = np.asarray(f) @ np.asarray(z) @ np.asarray(b)
    expected = np.einsum("bhlt,bthd->blhd", dense, v)
    out = nystrom_attention(q, k, v, mask, num_landmarks=8)
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(jnp.sum(f, axis=-1), 1)
    assert not np.asarray(b)[1, :, :, 9:].any()
    used = -(-9 // (length // 8)) if length == 32 else 2
    assert not np.asarray(f)[1, :, :, used:].any()
    assert not np.asarray(b)[1, :, used:].any()
    np.testing.assert_allclose(z[1, :, used:, used:], np.stack([np.eye(8 - used)] * 2))


# Without a convolution there is less of the same.
@pytest.mark.parametrize("width", [pytest.param(0, marks=pytest.mark.slow), 5])
def test_bfloat16_is_rounded_only_at_the_border(width):
    q, k, v, g = inputs(64, jnp.bfloat16)
    mask = jnp.arange(64)[None] < jnp.array([[64], [40]])
    kernel = jax.random.normal(jax.random.key(0), (2, width)) if width else None

    def attend(q, k, v):
        return nystrom_attention(q, k, v, mask, num_landmarks=8, conv_kernel=kernel)

    with assumed(Machine(jax.default_backend())):  # without cuDNN
        found = out_and_gradients(attend, q, k, v, g)
    assert all(x.dtype == jnp.bfloat16 for x in found)
    expected = out_and_gradients(attend, *(x.astype(jnp.float32) for x in (q, k, v, g)))
    # A result without convolution and the sum with it, or the kernel and gradients of both uses of
    # q, k or v.
    assert_rounded(found, expected, roundings=3)


def test_segments_that_only_padding_would_fill_are_left_out():
    even, uneven = build(num_landmarks=16), build(length=66, num_landmarks=16)
    assert [even.segments(n) for n in (64, 61, 60, 5, 4)] == [
        (16, 64),
        (16, 64),
        (15, 60),
        (2, 8),
        (1, 4),
    ]
    # Uneven segments are not multiples of a size: none is left out.
    assert uneven.segments(5) == (16, 66)


def test_the_module_is_its_function():
    q, k, v, _ = inputs(64, jnp.float32)
    mask = jnp.arange(64)[None] < jnp.array([[64], [40]])
    options = {"num_landmarks": 8, "pinv_iterations": 4}
    module = build(conv_kernel=5, **options)
    expected = nystrom_attention(q, k, v, mask, **options)
    without = jax.jit(build(conv_kernel=0, **options))(q, k, v, mask)
    np.testing.assert_allclose(without, expected, rtol=1e-5, atol=1e-6)
    real_v = jnp.where(mask[:, :, None, None], v, 0)
    skip = jax.jit(depthwise_convolution)(real_v, module.kernel[...])
    found = jax.jit(module)(q, k, v, mask)
    np.testing.assert_allclose(found, expected + skip, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "parameters"), [(35, 4 * 35), (0, 0)])
def test_parameters(width, parameters):
    leaves = jax.tree.leaves(nnx.state(build(heads=4, conv_kernel=width), nnx.Param))
    assert sum(x.size for x in leaves) == parameters
    for x in leaves:
        assert x.dtype == jnp.float32
        assert 0.9 / np.sqrt(35) < np.abs(x).max() <= 1 / np.sqrt(35)
        assert abs(np.mean(x)) < 4 / np.sqrt(3 * 35 * x.size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_landmarks": 65}, "num_landmarks = 65 exceeds the length 64; choose at most"),
        ({"num_landmarks": 0}, "num_landmarks must be a positive integer, not 0"),
        ({"pinv_iterations": 0}, "pinv_iterations must be a positive integer, not 0"),
        ({"conv_kernel": -1}, "conv_kernel must be 0 or a positive integer, not -1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (2, 0), (2,)])
def test_a_kernel_of_other_heads_is_refused(shape):
    attend = (
        nystrom.nystrom_attention.__wrapped__
    )  # without the check of annotations, which users lack
    q, k, v, _ = inputs(8, jnp.float32)
    mask, kernel = jnp.ones((2, 8), bool), jnp.ones(shape)
    with pytest.raises(ValueError, match=r"must be an array \[2 heads, width\], not \("):
        attend(q, k, v, mask, num_landmarks=4, conv_kernel=kernel)
    with pytest.raises(ValueError, match=r"must be an array \[2 heads, width\], not 35"):
        attend(q, k, v, mask, num_landmarks=4, conv_kernel=35)


def test_a_sequence_shorter_than_its_landmarks_is_refused():
    q, k, v, _ = inputs(4, jnp.float32)
    with pytest.raises(ValueError, match="num_landmarks = 8 exceeds the length 4"):
        nystrom_attention(q, k, v, jnp.ones((2, 4), bool), num_landmarks=8)


def test_nan_at_padding_reaches_no_gradient():
    q, k, v, g = jax.random.normal(jax.random.key(0), (4, 2, 12, 2, 4))
    mask = jnp.asarray(np.random.default_rng(0).random((2, 12)) < 0.7)
    real = mask[:, :, None, None]
    kernel = jnp.ones((2, 3))

    @jax.jit
    def gradients(*qkv):
        def loss(q, k, v):
            out = nystrom_attention(q, k, v, mask, num_landmarks=4, conv_kernel=kernel)
            return jnp.sum(jnp.where(real, out * g, 0))

        return jax.grad(loss, argnums=(0, 1, 2))(*qkv)

    filled = gradients(*(jnp.where(real, x, jnp.nan) for x in (q, k, v)))
    for one, other in zip(filled, gradients(q, k, v), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_inverse_is_exact_whatever_the_precision_of_other_products():
    """The scores of A, the four products of a step, and Z (B V)."""
    q, k, v, _ = inputs(32, jnp.float32)
    with jax.default_matmul_precision("tensorfloat32"):
        attend = functools.partial(nystrom.nystrom_attention, num_landmarks=4)
        program = jax.make_jaxpr(attend)(q, k, v, jnp.ones((2, 32), bool))
    precisions = [
        equation.params["precision"]
        for equation in equations(program.jaxpr)
        if equation.primitive.name == "dot_general"
    ]
    assert precisions.count((jax.lax.Precision.HIGHEST,) * 2) == 1 + 4 + 1
    assert len(precisions) == 1 + 4 + 1 + 4  # attention from and to the landmarks


def test_landmarks_of_bfloat16_are_float32():
    """The mean of 1 and 1 + 2^-7; bfloat16 has no number between them."""
    x = jnp.array([1, 1 + 2**-7], jnp.bfloat16).reshape(1, 2, 1, 1)
    landmarks = nystrom._landmarks(x, x, jnp.ones((1, 2), bool), 1)
    for mean in (landmarks.q, landmarks.k):
        assert mean.item() == 1 + 2**-8
