"""The GPU kernels, interpreted, against the plain form; lowered for a GPU on any machine."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention.blocks import Blocks
from models.attention.flash import flash_attention
from models.attention.standard import StandardAttention, standard_attention
from models.machine import Machine, assumed
from tests.models.attention.arrays import (
    assert_rounded,
    assert_trains_like,
    masks,
    of_two_seeds,
    out_and_gradients,
    random_inputs,
)
from tests.suites import slow_but
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

SMALL = Blocks(queries=16, keys=8)
DROPOUT, KEY = 0.3, jax.random.key(5)
with_and_without_dropout = pytest.mark.parametrize("key", [None, KEY], ids=["kept", "dropped"])

interpreted = functools.partial(flash_attention, blocks=SMALL, interpret=True)


def inputs(length, dtype=jnp.float32, seed=0):
    return random_inputs(length, dtype, head_dim=16, seed=seed)


def assert_same(found, expected):
    """To 32 roundings of float32, of half a unit of 24 bits, of the largest entry of all.

    Scores of about 10 are rounded three times, which changes a weight by as many units of itself.
    """
    largest = max(np.abs(y).max() for y in expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=32 * 2**-24 * largest)


@functools.cache
def attention_of(length, dropped=True):
    """The kernels of small blocks on a length's masks: one function, compiled once."""
    key = KEY if dropped else None
    return functools.partial(interpreted, mask=masks(length), dropout=DROPOUT, key=key)


@with_and_without_dropout
# Whole blocks, a part of one; less than a block.
@pytest.mark.parametrize("length", slow_but((32, 37), (32, 37, 1)))
def test_equals_the_plain_form(length, key):
    q, k, v, g = inputs(length)
    options = {"mask": masks(length), "dropout": DROPOUT, "key": key}
    found = out_and_gradients(attention_of(length, key is not None), q, k, v, g)
    expected = out_and_gradients(functools.partial(standard_attention, **options), q, k, v, g)
    assert_same(found, expected)
    for x in found:  # of the sequence without any real token
        assert not np.asarray(x)[3].any()


def test_what_is_dropped_does_not_depend_on_the_blocks():
    q, k, v, g = inputs(37)
    attend = attention_of(37)
    found = out_and_gradients(functools.partial(attend, blocks=Blocks(32, 16)), q, k, v, g)
    assert_same(found, out_and_gradients(attend, q, k, v, g))


def only_real(results, mask):
    """The output, which padding gets an arbitrary one of, at tokens; and the gradients."""
    out, *gradients = results
    return [jnp.where(mask[..., None, None], out, 0), *gradients]


PADDED = jnp.arange(100)[None] < jnp.array([100, 40, 33, 0])[:, None]


@functools.cache
def plain_of_padded(dropped):
    options = {"mask": PADDED, "dropout": DROPOUT, "key": KEY if dropped else None}
    return functools.partial(standard_attention, **options)


@with_and_without_dropout
@pytest.mark.parametrize(
    "blocks",
    [
        Blocks(16, 32),
        Blocks(32, 16),
        pytest.param(Blocks(16, 16), marks=pytest.mark.slow),
    ],
)
def test_blocks_of_padding_are_left_out(blocks, key):
    """Tokens are as without; what stands in blocks behind the last one is 0."""
    q, k, v, g = inputs(100)
    mask = PADDED
    g = jnp.where(mask[..., None, None], g, 0)
    options = {"mask": mask, "dropout": DROPOUT, "key": key}
    attend = functools.partial(interpreted, query_mask=mask, blocks=blocks, **options)
    found = out_and_gradients(attend, q, k, v, g)
    expected = out_and_gradients(plain_of_padded(key is not None), q, k, v, g)
    assert_same(only_real(found, mask), only_real(expected, mask))
    assert not np.asarray(found[0])[1, 64:].any()
    assert np.asarray(found[0])[0, 64:].all()
    assert all(np.isfinite(x).all() for x in found)


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v, g = inputs(37)
    attend = attention_of(37, dropped=False)
    found = out_and_gradients(attend, 300 * q, 300 * k, v, g)
    assert all(np.isfinite(x).all() for x in found)
    # A weight is all or nothing for most queries: of the largest score.
    scores = jnp.einsum("lhd,mhd->hlm", q[0], k[0])
    expected = jnp.stack([v[0, jnp.argmax(scores[head], axis=1), head] for head in range(2)], 1)
    assert np.mean(np.abs(found[0][0] - expected) < 1e-6) > 0.9


def test_even_nan_at_padding_stays_there():
    q, k, v, g = inputs(37)
    mask = masks(37)
    k_nan, v_nan = (jnp.where(mask[:, :, None, None], x, jnp.nan) for x in (k, v))
    attend = attention_of(37)
    found = out_and_gradients(attend, q, k_nan, v_nan, g)
    for x, y in zip(found, out_and_gradients(attend, q, k, v, g), strict=True):
        np.testing.assert_array_equal(x, y)


@with_and_without_dropout
def test_bfloat16_sums_in_float32(key):
    q, k, v, g = inputs(37, jnp.bfloat16)
    attend = attention_of(37, key is not None)
    found = out_and_gradients(attend, q, k, v, g)
    assert all(x.dtype == jnp.bfloat16 for x in found)
    expected = out_and_gradients(attend, *(x.astype(jnp.float32) for x in (q, k, v, g)))
    assert_rounded(found, expected, roundings=3)  # weights, their sum, the result


@pytest.mark.parametrize("drops", [False, True])
def test_seeds_train_at_once(drops):
    mask = masks(21)

    def attend(attention, key, q, k, v):
        return attention(q, k, v, mask, dropout=DROPOUT, key=key if drops else None)

    assert_trains_like(
        functools.partial(attend, interpreted),
        functools.partial(attend, standard_attention),
        jax.random.split(jax.random.key(1)),
        of_two_seeds(functools.partial(inputs, 21)),
        assert_same,
    )


def total_gradients(q, k, v, key, mask, **options):
    def total(q, k, v):
        out = flash_attention(q, k, v, mask, dropout=DROPOUT, key=key, **options)
        return jnp.sum(out.astype(jnp.float32))

    return jax.value_and_grad(total, argnums=(0, 1, 2))(q, k, v)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("drops", [False, True])
@TRITON_IS_LEAVING
def test_three_kernels_whatever_the_number_of_seeds_lowered_for_a_gpu(dtype, drops, monkeypatch):
    """Seeds are one more axis of the grid: no loop; the mask is not copied for each of them."""
    x = jax.ShapeDtypeStruct((3, 4, 300, 2, 32), dtype)
    keys = jax.eval_shape(lambda: jax.random.split(KEY, 3)) if drops else None
    mask = jax.ShapeDtypeStruct((4, 300), jnp.bool_)
    seeds = jax.jit(jax.vmap(total_gradients, in_axes=(0, 0, 0, 0, None)))
    with on_an_h100(monkeypatch), assumed(Machine("gpu", has_cudnn=True)):
        text = seeds.trace(x, x, x, keys, mask).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"custom_call @__gpu\$xla.gpu.triton.* : \((.*)\) ->", text)
    assert len(calls) == 3
    assert all("tensor<4x320xf32>" in call or "tensor<4x384xf32>" in call for call in calls)
    assert drops == any("ui32" in call for call in calls)
    assert drops or "stablehlo.while" not in text


@pytest.mark.parametrize(("asked", "named"), [("float32", "HIGHEST"), ("tensorfloat32", "HIGH")])
def test_products_are_in_the_precision_asked_for(asked, named):
    q, k, v, _ = inputs(16)
    gradients = functools.partial(total_gradients, blocks=SMALL, interpret=True)
    with jax.default_matmul_precision(asked):
        text = str(jax.make_jaxpr(gradients)(q, k, v, KEY, masks(16)))
    # Two products forward; backward four for keys and three for queries.
    assert text.count(f"precision=(Precision.{named}, Precision.{named})") == 9
    assert text.count("dot_general[") == 9


@pytest.mark.parametrize(
    ("dtype", "head_dim", "message"),
    [
        (jnp.bfloat16, 8, "takes a head_dim that is a power of two from 16 on, not 8: change"),
        (jnp.bfloat16, 24, "takes a head_dim that is a power of two from 16 on, not 24: change"),
        (jnp.float64, 16, "takes q, k and v of one dtype among float32, .*, not float64: choose"),
    ],
)
def test_refusals_name_cause_and_cure(dtype, head_dim, message, float64):
    q = jnp.ones((1, 8, 1, head_dim), dtype)
    with pytest.raises(ValueError, match=f"implementation='flash' {message}"):
        flash_attention(q, q, q, jnp.ones((1, 8), bool), interpret=True)


def test_formats_that_differ_are_refused():
    q = jnp.ones((1, 8, 1, 16))
    with pytest.raises(ValueError, match="not bfloat16, float32"):
        flash_attention(q, q, q.astype(jnp.bfloat16), jnp.ones((1, 8), bool), interpret=True)


def module():
    options = {"dropout": DROPOUT, "implementation": "flash"}
    return StandardAttention(length=16, heads=2, head_dim=16, rngs=nnx.Rngs(0), **options)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])  # such as an older GPU, or AMD's
def test_other_devices_are_refused(backend):
    q, k, v, _ = inputs(16)
    for key in (None, KEY):
        with (
            assumed(Machine(backend)),
            pytest.raises(ValueError, match=rf"'flash' needs an NVIDIA .* \('{backend}'\): choose"),
        ):
            module()(q, k, v, masks(16), key=key)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@with_and_without_dropout
def test_on_a_gpu(dtype, key):
    q, k, v, g = inputs(300, dtype)
    mask = masks(300)
    g = jnp.where(mask[..., None, None], g, 0)
    plain = functools.partial(standard_attention, mask=mask, dropout=DROPOUT, key=key)
    with jax.default_matmul_precision("float32"):
        found = out_and_gradients(lambda *x: module()(*x, mask, key=key), q, k, v, g)
        expected = out_and_gradients(plain, *(x.astype(jnp.float32) for x in (q, k, v, g)))
    found, expected = (only_real(x, mask) for x in (found, expected))
    assert_rounded(found, expected, roundings=3)


def test_no_second_order():
    x = jnp.ones((1, 8, 1, 16))
    with pytest.raises(TypeError, match="forward-mode autodiff"):
        jax.jvp(lambda q: interpreted(q, x, x, jnp.ones((1, 8), bool)), (x,), (x,))
