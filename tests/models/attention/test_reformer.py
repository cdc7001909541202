"""Reformer against Hugging Face's arrays, a slow independent version, and its promises of cost."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention.contract import Untrained
from models.attention.hashing import bucket_factors
from models.attention.reformer import ReformerAttention, reformer_attention
from tests.models.attention.arrays import assert_close, load, load_inputs, out_and_gradients
from tests.models.attention.reformer_reference import dense_shared_qk, slow_reformer

# Compiled whole: one by one the operations take longer to compile.
attend = jax.jit(reformer_attention, static_argnames="chunk_length")


@pytest.fixture
def golden(float64):
    arrays = {name: jnp.asarray(array) for name, array in load("reformer").items()} | load_inputs()
    return arrays | {"nomask": arrays["mask_ones"], "pad": arrays["mask_pad"]}


@pytest.mark.parametrize(("hashes", "mask"), [(2, "nomask"), (4, "nomask"), (2, "pad")])
def test_golden_outputs(golden, hashes, mask):
    rotations = golden[f"h{hashes}_rotations"]
    out = attend(golden["q"], golden["v"], golden[mask], rotations, chunk_length=16)
    expected = golden[f"h{hashes}_{mask}_out"].reshape(out.shape)
    # Only real positions are compared: what stands elsewhere is nobody's concern.
    real = np.asarray(golden[mask])
    assert_close(out[real], expected[real])


def test_golden_single_chunk(golden):
    q, v, mask = golden["q"], golden["v"], golden["nomask"]
    out = attend(q, v, mask, golden["h2_rotations"], chunk_length=128)
    expected = golden["full_nomask_out"].reshape(out.shape)
    assert_close(out, expected)


def random_case(seed, batch, length, heads=2, width=8, hashes=2, half_buckets=4):
    rng = np.random.default_rng(seed)
    q, v = rng.normal(size=(2, batch, length, heads, width))
    return q, v, rng.normal(size=(heads, width, hashes, half_buckets))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("length", "hashes"), [(32, 1), (37, 2), (41, 3), (9, 2)])
def test_equals_the_slow_version_with_holes_and_odd_lengths(length, hashes):
    q, v, rotations = random_case(length, 3, length, hashes=hashes)
    mask = np.random.default_rng(1).random((3, length)) < 0.6
    mask[2] = True
    out = attend(*map(jnp.asarray, (q, v, mask, rotations)), chunk_length=8)
    expected = slow_reformer(q, v, mask, rotations, 8)
    np.testing.assert_allclose(np.asarray(out)[mask], expected[mask], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("length", [8, 13, 16])
def test_single_chunk_equals_its_dense_form(length):
    q, v, rotations = map(jnp.asarray, random_case(2, 2, length))
    mask = jnp.asarray(np.random.default_rng(3).random((2, length)) < 0.7)

    def total(attention, q, v):
        return jnp.sum(jnp.where(mask[:, :, None, None], jnp.sin(attention(q, v)), 0))

    def single(q, v):
        return attend(q, v, mask, rotations, chunk_length=16)

    def dense(q, v):
        return dense_shared_qk(q, v, mask)

    gradient = jax.jit(jax.value_and_grad(total, argnums=(1, 2)), static_argnums=0)
    single, dense = (gradient(attention, q, v) for attention in (single, dense))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), single, dense)


@pytest.mark.usefixtures("float64")
def test_gradient_is_the_finite_difference():
    q, v, rotations = map(jnp.asarray, random_case(4, 2, 29))
    mask = jnp.asarray(np.random.default_rng(5).random((2, 29)) < 0.8)

    @jax.jit
    def total(q, v):
        out = attend(q, v, mask, rotations, chunk_length=8)
        return jnp.sum(jnp.where(mask[:, :, None, None], jnp.sin(out), 0))

    dq, dv = jax.jit(jax.grad(total, argnums=(0, 1)))(q, v)
    uq, uv, _ = map(jnp.asarray, random_case(6, 2, 29))
    step = 1e-6  # small enough that no bucket changes
    ahead, behind = total(q + step * uq, v + step * uv), total(q - step * uq, v - step * uv)
    slope = jnp.sum(dq * uq) + jnp.sum(dv * uv)
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * step), rtol=1e-7)


def test_no_real_token_gives_zero_one_gives_its_value():
    q, v, rotations = (jnp.asarray(x, jnp.float32) for x in random_case(7, 3, 20))
    mask = jnp.zeros((3, 20), bool).at[1, 5].set(True).at[2, 3:].set(True)
    for chunk_length in (4, 20):

        def attention(q, _, v, chunk_length=chunk_length):
            return attend(q, v, mask, rotations, chunk_length=chunk_length)

        out, *gradients = out_and_gradients(attention, q, q, v, jnp.ones_like(q))
        assert np.all(out[0] == 0)
        np.testing.assert_allclose(out[1, 5], v[1, 5], rtol=1e-6)
        assert all(np.all(np.isfinite(x)) for x in (out, *gradients))


def gradient_of_module(length, chunk_length=64):
    """The gradient of one layer of two heads for two sequences, lowered."""
    attention = ReformerAttention(
        length=length, heads=2, head_dim=8, rngs=nnx.Rngs(0), chunk_length=chunk_length
    )

    def total(q, v, mask):
        return jnp.sum(jnp.sin(attention(q, q, v, mask)))

    array = jax.ShapeDtypeStruct((2, length, 2, 8), jnp.float32)
    mask = jax.ShapeDtypeStruct((2, length), jnp.bool_)
    return jax.jit(jax.grad(total, argnums=(0, 1))).lower(array, array, mask)


def test_gradients_contain_no_scatter():
    assert "scatter" not in gradient_of_module(256).as_text()


def module(**options):
    defaults = {"length": 64, "heads": 2, "head_dim": 8, "chunk_length": 16}
    return ReformerAttention(**(defaults | {"rngs": nnx.Rngs(0)} | options))


@pytest.mark.parametrize(
    ("length", "chunk_length", "factors"),
    [
        (2048, 64, (64,)),  # the benchmark's lengths
        (4096, 64, (128,)),
        (1024, 64, (32,)),
        (1000, 64, (16,)),
        (64, 64, (2,)),
        (100, 64, (2,)),
        (8192, 64, (16, 16)),
        (65536, 64, (32, 64)),
        (7, 1, (2, 4)),
    ],
)
def test_number_of_buckets(length, chunk_length, factors):
    attention = module(length=length, chunk_length=chunk_length, num_hashes=3)
    assert attention.factors == factors
    assert attention.rotations.shape == (2, 8, 3, sum(factors) // 2)


def test_evaluation_uses_the_rotations_held_and_training_others():
    attention = module()
    q, v, _ = (jnp.asarray(x, jnp.float32) for x in random_case(9, 2, 64))
    mask = jnp.ones((2, 64), bool)
    fixed = attend(q, v, mask, attention.rotations[...], chunk_length=16)
    np.testing.assert_array_equal(jax.jit(attention)(q, q, v, mask), fixed)
    train = jax.jit(lambda key: attention(q, q, v, mask, key=key))
    assert not np.allclose(train(jax.random.key(1)), fixed)


def test_holds_untrained_rotations_and_no_parameter():
    attention = module()
    assert not jax.tree.leaves(nnx.state(attention, nnx.Param))
    assert len(jax.tree.leaves(nnx.state(attention, Untrained))) == 1
    assert attention.shares_qk


def test_bfloat16_is_close_to_float32():
    q, v, rotations = (jnp.asarray(x, jnp.bfloat16) for x in random_case(11, 2, 40))
    mask = jnp.ones((2, 40), bool)
    half = attend(q, v, mask, rotations, chunk_length=8)
    q, v, rotations = (x.astype(jnp.float32) for x in (q, v, rotations))
    full = attend(q, v, mask, rotations, chunk_length=8)
    assert half.dtype == jnp.bfloat16
    # Buckets come from the same float32 products; weights and keys are rounded to 8 bits.
    np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.04)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_length": 65}, "chunk_length 65 is larger than the length, 64"),
        ({"chunk_length": 0}, "chunk_length must be a positive integer, not 0"),
        ({"num_hashes": -1}, "num_hashes must be a positive integer, not -1"),
        ({"num_hashes": True}, "not True"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        module(**options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4, 1, 3), r"do not end with \(2, 4, 1, 2\) = .heads, head_dim, hashes, half"),
        ((1, 4, 1, 2), r"do not end with \(2, 4, 1, 2\)"),
        ((3, 2, 4, 1, 2), r"rotations \(3, 2, 4, 1, 2\) for 5 examples"),
    ],
)
@pytest.mark.parametrize("chunk_length", [4, 16])
def test_other_rotations_are_refused(shape, message, chunk_length):
    attend = reformer_attention.__wrapped__  # without the check of annotations, which users lack
    x, mask = jnp.ones((5, 8, 2, 4)), jnp.ones((5, 8), bool)
    with pytest.raises(ValueError, match=message):
        attend(x, x, mask, jnp.ones(shape), chunk_length=chunk_length, factors=(4,))


@pytest.mark.parametrize(
    ("length", "chunk_length", "product"),
    [(2**16 + 1, 64, "65600 x 5;"), (2**16, 2, "65536 x 65537;")],
)
def test_what_does_not_sort_by_32_bits_is_refused(length, chunk_length, product):
    array = jax.ShapeDtypeStruct((1, length, 1, 4), jnp.float32)
    mask = jax.ShapeDtypeStruct((1, length), jnp.bool_)
    factors = (4,) if chunk_length == 64 else bucket_factors(length, chunk_length)
    rotations = jax.ShapeDtypeStruct((1, 4, 1, sum(factors) // 2), jnp.float32)
    attend = partial(reformer_attention, chunk_length=chunk_length, factors=factors)
    message = rf"at most 65536 positions, .* at most 2\^32, not {product}"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(attend, array, array, mask, rotations)


def test_heads_and_rounds_draw_rotations_of_their_own(monkeypatch):
    attention, given = module(num_hashes=2), []
    monkeypatch.setattr(
        "models.attention.reformer.reformer_attention",
        lambda q, v, mask, rotations, **_: given.append(rotations) or v,
    )
    x, mask = jnp.ones((3, 64, 2, 8)), jnp.ones((3, 64), bool)
    for key in (None, jax.random.split(jax.random.key(0), 3)):
        attention(x, x, x, mask, key=key)
    held, drawn = (np.moveaxis(x, -2, -3).reshape(-1, 8 * x.shape[-1]) for x in given)
    for rotations, number in ((held, 2 * 2), (drawn, 3 * 2 * 2)):
        assert len(np.unique(rotations, axis=0)) == number


def test_scores_of_bfloat16_within_a_single_chunk_are_float32():
    """Two keys with scores of 256 and 257; bfloat16 holds no 257."""
    q, v = jnp.zeros((2, 1, 4, 1, 8))
    queries = jnp.array([[256, 128], [1, 0], [1, 2**-7], [-1, 0]])
    q, v = q.at[0, :, 0, :2].set(queries), v.at[:, 2].set(1)
    q, v, rotations = (x.astype(jnp.bfloat16) for x in (q, v, jnp.ones((1, 8, 1, 1))))
    out = attend(q, v, jnp.ones((1, 4), bool), rotations, chunk_length=4)
    np.testing.assert_allclose(out[0, 0, 0].astype(jnp.float32), np.e / (1 + np.e), rtol=2**-7)
