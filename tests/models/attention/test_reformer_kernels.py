"""Reformer's GPU kernels, interpreted, against the plain form; lowered for a GPU on any machine."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import kernel_choice
from models.attention.hashing import lsh_buckets
from models.attention.reformer import (
    ReformerAttention,
    attend_by_kernels,
    reformer_attention,
)
from models.attention.reformer_kernels import bucket_kernel
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

CHUNK = 16
AN_H100 = Machine("gpu", memory=2**36, runs_kernels=True)


def case(length, dtype=jnp.float32, *, hashes=2, half_buckets=4, seed=0):
    """Inputs of four sequences, of which one is a single token, and rotations of each."""
    q, _, v, g = random_inputs(length, dtype, head_dim=16, seed=seed)
    shape = (4, 2, 16, hashes, half_buckets)
    rotations = jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)
    return q, v, g, rotations


@functools.partial(jax.jit, static_argnames=("attend", "factors"))
def results(attend, q, v, g, mask, rotations, factors):
    """The output, and the gradients by q and v."""

    def attention(q, _, v):
        return attend(q, v, mask, rotations, chunk_length=CHUNK, factors=factors)

    out, dq, _, dv = out_and_gradients(attention, q, q, v, g)
    return out, dq, dv


interpreted = functools.partial(attend_by_kernels, interpret=True)


def assert_same(found, expected):
    """To 32 roundings of float32 of the largest entry."""
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=32 * 2**-24 * np.abs(y).max())


@pytest.mark.parametrize(
    ("length", "hashes"),
    # Two chunks, the last with padding; five whole ones; five, the last with padding.
    [(20, 1), (80, 2), pytest.param(75, 3, marks=pytest.mark.slow)],
)
def test_equals_the_plain_form(length, hashes):
    *arrays, rotations = case(length, hashes=hashes)
    mask = masks(length)
    found = results(interpreted, *arrays, mask, rotations, factors=(8,))
    expected = results(reformer_attention, *arrays, mask, rotations, factors=(8,))
    assert_same(found, expected)
    for x in found:  # of the sequence without any real token
        assert not np.asarray(x)[3].any()


@pytest.mark.slow
def test_rotations_that_all_sequences_share_and_two_factors():
    q, v, g, rotations = case(37, half_buckets=6)
    arguments = q, v, g, masks(37), rotations[0]
    found = results(interpreted, *arguments, factors=(4, 8))
    assert_same(found, results(reformer_attention, *arguments, factors=(4, 8)))


@pytest.mark.parametrize("factors", [(8,), (6,), (4, 8), (64,)])
def test_buckets_are_the_same(factors):
    q, _, _, rotations = case(37, jnp.bfloat16, half_buckets=sum(factors) // 2)
    mask = masks(37)
    options = {"padded": 48, "block": CHUNK, "interpret": True}
    numbers = bucket_kernel(q, mask, rotations, factors, **options)
    np.testing.assert_array_equal(numbers % 48, np.broadcast_to(np.arange(48), numbers.shape))
    buckets = np.asarray(numbers // 48)
    np.testing.assert_array_equal(buckets[..., :37], lsh_buckets(q, mask, rotations, factors))
    assert np.all(buckets[..., 37:] == np.prod(factors))


def test_of_projections_as_large_the_first_is_the_bucket():
    q, mask = jnp.zeros((1, 16, 1, 16)), jnp.ones((1, 16), bool)
    rotations = jnp.ones((1, 16, 2, 8))
    numbers = bucket_kernel(q, mask, rotations, (16,), padded=16, block=16, interpret=True)
    np.testing.assert_array_equal(numbers // 16, np.zeros((1, 1, 2, 16)))


def test_a_single_token_attends_to_itself():
    """Its key's logarithm has an error of 0.008, which only its gradient shows."""
    q, v, g, rotations = case(20)
    mask = jnp.zeros((4, 20), bool).at[np.arange(4), [0, 7, 19, 16]].set(True)
    arguments = q, v, g, mask, rotations
    out, dq, dv = results(interpreted, *arguments, factors=(8,))
    expected = results(reformer_attention, *arguments, factors=(8,))
    np.testing.assert_array_equal(np.asarray(out)[mask], np.asarray(expected[0])[mask])
    assert not np.asarray(dq).any()
    np.testing.assert_allclose(dv, expected[2], rtol=0.01, atol=1e-6)


def test_even_nan_at_padding_stays_there():
    q, v, g, rotations = case(37)
    mask = masks(37)
    q_nan, v_nan = (jnp.where(mask[:, :, None, None], x, jnp.nan) for x in (q, v))
    found = results(interpreted, q_nan, v_nan, g, mask, rotations, factors=(8,))
    expected = results(interpreted, q, v, g, mask, rotations, factors=(8,))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_bfloat16_sums_in_float32():
    *arrays, rotations = case(75, jnp.bfloat16)
    found = results(interpreted, *arrays, masks(75), rotations, factors=(8,))
    assert all(x.dtype == jnp.bfloat16 for x in found)
    wide = (x.astype(jnp.float32) for x in arrays)
    expected = results(reformer_attention, *wide, masks(75), rotations, factors=(8,))
    assert_rounded(found, expected, roundings=4)  # keys, weights, of a round, the result


def test_seeds_train_at_once():
    q, v, g, rotations = of_two_seeds(functools.partial(case, 37))
    mask, options = masks(37), {"chunk_length": CHUNK, "factors": (8,)}
    assert_trains_like(
        lambda rotations, q, _, v: interpreted(q, v, mask, rotations, **options),
        lambda rotations, q, _, v: reformer_attention(q, v, mask, rotations, **options),
        rotations,
        (q, q, v, g),
        assert_same,
    )


def module(length=300, chunk_length=64):
    options = {"heads": 2, "head_dim": 32, "chunk_length": chunk_length}
    return ReformerAttention(length=length, **options, rngs=nnx.Rngs(0))


def lowered_gradients(monkeypatch, dtype, chunk_length):
    """Of three seeds, which share a mask."""
    attention = module(chunk_length=chunk_length)

    def gradients(q, v, key, mask):
        def total(q, v):
            return jnp.sum(attention(q, q, v, mask, key=key).astype(jnp.float32))

        return jax.grad(total, argnums=(0, 1))(q, v)

    x = jax.ShapeDtypeStruct((3, 4, 300, 2, 32), dtype)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (3, 4)))
    mask = jax.ShapeDtypeStruct((4, 300), jnp.bool_)
    seeds = jax.jit(jax.vmap(gradients, in_axes=(0, 0, 0, None)))
    with on_an_h100(monkeypatch), assumed(AN_H100):
        return seeds.trace(x, x, keys, mask).lower(lowering_platforms=("cuda",)).as_text()


@TRITON_IS_LEAVING
@pytest.mark.parametrize("chunk_length", [16, 32, 64])
def test_the_module_takes_three_kernels_whatever_the_number_of_seeds(chunk_length, monkeypatch):
    """Rows are neither gathered, scattered nor moved in loops."""
    text = lowered_gradients(monkeypatch, jnp.bfloat16, chunk_length)
    assert len(re.findall(r"custom_call @__gpu\$xla.gpu.triton", text)) == 3
    assert not re.search(r'stablehlo\.(while|"?gather|"?scatter|dynamic_slice)', text)


@TRITON_IS_LEAVING
@pytest.mark.parametrize(("dtype", "chunk_length"), [(jnp.float32, 64), (jnp.bfloat16, 48)])
def test_other_formats_and_chunks_take_none(dtype, chunk_length, monkeypatch):
    text = lowered_gradients(monkeypatch, dtype, chunk_length)
    assert "__gpu$xla.gpu.triton" not in text


@pytest.mark.parametrize(
    ("chunk_length", "expected"), [(8, False), (16, True), (48, False), (64, True), (128, False)]
)
def test_chunks_that_are_blocks(chunk_length, expected):
    assert kernel_choice.preferred_for_chunks(jnp.bfloat16, 32, chunk_length, AN_H100) == expected


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("length", [1024, 1000])
@pytest.mark.parametrize("head_dim", [16, 32, 64])
def test_on_a_gpu(length, head_dim):
    """Also the gradients, against the plain form in float32 and its buckets."""
    q, _, v, g = random_inputs(length, jnp.bfloat16, head_dim=head_dim)
    rotations = jax.random.normal(jax.random.key(1), (2, head_dim, 2, 16), jnp.float32)
    mask = masks(length)

    def outputs(attend, q, v, g):
        def attention(q, _, v):
            return attend(q, v, mask, rotations, chunk_length=64, factors=(32,))

        out, dq, _, dv = out_and_gradients(attention, q, q, v, g)
        return out, dq, dv

    with jax.default_matmul_precision("float32"):
        found = outputs(attend_by_kernels, q, v, g)
        wide = (x.astype(jnp.float32) for x in (q, v, g))
        expected = outputs(reformer_attention, *wide)
    assert_rounded(found, expected, roundings=4)


def test_no_second_order():
    q, v, _, rotations = case(37)
    attend = functools.partial(interpreted, chunk_length=CHUNK, factors=(8,))
    with pytest.raises(TypeError, match="forward-mode autodiff"):
        jax.jvp(lambda q: attend(q, v, masks(37), rotations), (q,), (q,))
