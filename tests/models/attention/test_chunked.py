"""Blockwise attention against the plain form: values, gradients, dropout, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import chunked
from models.attention.blocks import Blocks, tile_bytes
from models.attention.chunked import blocks_of, chunked_attention
from models.attention.contract import masked_softmax
from models.attention.standard import standard_attention
from models.machine import Machine, copies_on_a_device
from tests.models.attention.arrays import (
    assert_rounded,
    assert_same,
    assert_trains_like,
    masks,
    of_two_seeds,
    out_and_gradients,
    random_inputs,
)

SMALL = Blocks(queries=16, keys=8)
DROPOUT = 0.3


@pytest.mark.parametrize(("length", "blocks"), [(1, SMALL), (37, SMALL), (32, SMALL), (150, None)])
def test_equals_the_plain_form(length, blocks, float64):
    q, k, v, g = random_inputs(length)
    mask = masks(length)
    blockwise = functools.partial(chunked_attention, mask=mask, blocks=blocks)
    plain = functools.partial(standard_attention, mask=mask)
    found = out_and_gradients(blockwise, q, k, v, g)
    assert_same(found, out_and_gradients(plain, q, k, v, g))
    assert not np.asarray(found[0])[3].any()


@pytest.mark.parametrize(("queries", "keys"), [(5, 37), (37, 5), (16, 8)])
def test_queries_and_keys_of_different_lengths(queries, keys, float64):
    q, _, _, g = random_inputs(queries)
    _, k, v, _ = random_inputs(keys)
    mask = masks(keys)

    def plain(q, k, v):
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / np.sqrt(q.shape[-1])
        weights = masked_softmax(scores, mask[:, None, None, :])
        return jnp.einsum("bhlm,bmhd->blhd", weights, v)

    blockwise = functools.partial(chunked_attention, mask=mask, blocks=SMALL)
    found = out_and_gradients(blockwise, q, k, v, g)
    assert_same(found, out_and_gradients(plain, q, k, v, g))


@functools.cache
def with_blocks_of_padding(dropout):
    """Masks to (by blocks, plain) results of all mapped together, and by blocks of the first."""
    q, k, v, g = random_inputs(37)
    options = {"dropout": dropout, "key": jax.random.key(2)}

    def gradients(attend, mask):
        real = mask[..., None, None]
        out, pullback = jax.vjp(functools.partial(attend, mask=mask, **options), q, k, v)
        return jnp.where(real, out, 0), *pullback(jnp.where(real, g, 0))

    def blockwise(*arrays, mask, **options):
        return chunked_attention(*arrays, mask, query_mask=mask, blocks=SMALL, **options)

    @jax.jit
    def results(mapped):
        found, expected = (
            jax.vmap(functools.partial(gradients, attend))(mapped)
            for attend in (blockwise, standard_attention)
        )
        return found, expected, gradients(blockwise, mapped[0])

    return results


@pytest.mark.parametrize("dropout", [0.0, DROPOUT])
@pytest.mark.parametrize("longest", [0, 3, 16, 20])
def test_blocks_of_padding_are_left_out(longest, dropout, float64):
    """Also of examples mapped together, one of which is longer."""
    lengths = np.array([[longest, longest // 2, 1, 0], [30, 1, 0, 0]])
    found, expected, first = with_blocks_of_padding(dropout)(np.arange(37) < lengths[..., None])
    assert_same(found, expected)
    assert_same(first, [x[0] for x in expected])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="elsewhere all blocks are gone through")
@pytest.mark.parametrize(("real_queries", "real_keys"), [(0, 5), (17, 8), (37, 9)])
def test_loops_end_behind_the_last_real_query_and_key(real_queries, real_keys, monkeypatch):
    turns, keys = [], chunked._keys

    def counted(*arguments):
        jax.debug.callback(lambda: turns.append(1))
        return keys(*arguments)

    monkeypatch.setattr(chunked, "_keys", counted)
    q, k, v, g = random_inputs(37, jnp.float32)
    mask, query_mask = (
        jnp.arange(37)[None] < jnp.array([real, real // 2, 0, 1])[:, None]
        for real in (real_keys, real_queries)
    )
    attend = functools.partial(chunked_attention, mask=mask, query_mask=query_mask, blocks=SMALL)
    jax.block_until_ready(out_and_gradients(attend, q, k, v, g))
    jax.effects_barrier()
    rows, columns = -(-max(real_queries, 1) // SMALL.queries), -(-real_keys // SMALL.keys)
    assert len(turns) == 2 * rows * columns  # forward and backward


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v, g = random_inputs(37, jnp.float32)
    mask = masks(37)
    found = out_and_gradients(
        lambda *x: chunked_attention(*x, mask, blocks=SMALL), 300 * q, 300 * k, v, g
    )
    assert all(np.isfinite(x).all() for x in found)
    expected = standard_attention(300 * q, 300 * k, v, mask)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


@pytest.mark.parametrize("blocks", [SMALL, Blocks(24, 40), None])
def test_dropout_equals_the_plain_form_whatever_the_blocks(blocks, float64):
    q, k, v, g = random_inputs(37)
    mask, key = masks(37), jax.random.key(5)
    options = {"mask": mask, "dropout": DROPOUT, "key": key}
    blockwise = functools.partial(chunked_attention, blocks=blocks, **options)
    plain = functools.partial(standard_attention, **options)
    found = out_and_gradients(blockwise, q, k, v, g)
    assert_same(found, out_and_gradients(plain, q, k, v, g))


def test_seeds_train_at_once(float64):
    mask = masks(21)

    def attend(blockwise, key, q, k, v):
        return blockwise(q, k, v, mask, dropout=DROPOUT, key=key)

    assert_trains_like(
        functools.partial(attend, functools.partial(chunked_attention, blocks=SMALL)),
        functools.partial(attend, standard_attention),
        jax.random.split(jax.random.key(1)),
        of_two_seeds(functools.partial(random_inputs, 21)),
        assert_same,
    )


def test_bfloat16_sums_in_float32():
    q, k, v, g = random_inputs(150, jnp.bfloat16)
    mask = masks(150)
    found = out_and_gradients(lambda *x: chunked_attention(*x, mask), q, k, v, g)
    assert all(x.dtype == jnp.bfloat16 for x in found)
    single = (x.astype(jnp.float32) for x in (q, k, v, g))
    expected = out_and_gradients(lambda *x: standard_attention(*x, mask), *single)
    assert_rounded(found, expected, roundings=3)  # weights, their sum, the result


@functools.cache
def by_small_blocks(dropout):
    mask, key = masks(37), jax.random.key(3)

    def attend(q, k, v):
        return chunked_attention(q, k, v, mask, dropout=dropout, key=key, blocks=SMALL)

    return attend


@pytest.mark.parametrize(
    ("queries", "dropout"),  # one row of blocks, and three
    [
        (16, 0.0),
        (37, DROPOUT),
        *(pytest.param(*x, marks=pytest.mark.slow) for x in ((37, 0.0), (16, DROPOUT))),
    ],
)
@pytest.mark.parametrize(
    "formats", ["bfloat16 " * 3, "float32 bfloat16 bfloat16", "bfloat16 float32 float32"]
)
def test_formats_may_differ_and_are_rounded_only_at_the_border(formats, queries, dropout):
    narrow = [jnp.dtype(name) for name in formats.split()]
    _, k, v, _ = random_inputs(37, jnp.float32)
    q, _, _, g = random_inputs(queries, jnp.float32)
    attend = by_small_blocks(dropout)
    q, k, v, g = (x.astype(y) for x, y in zip((q, k, v, g), [*narrow, narrow[0]], strict=True))
    found = out_and_gradients(attend, q, k, v, g)
    assert [x.dtype for x in found] == [narrow[0], *narrow]
    # The same blocks draw the same masks.
    expected = out_and_gradients(attend, *(x.astype(jnp.float32) for x in (q, k, v, g)))
    assert_rounded(found, expected, roundings=3)  # weights, their sum, the result


def test_float16_and_bfloat16_meet_in_float32():
    """Neither has the other's range or digits."""
    q, k, v, _ = random_inputs(37, jnp.float32)
    k = (2e4 * k).astype(jnp.bfloat16)
    out = chunked_attention(q.astype(jnp.float16), k, v.astype(jnp.bfloat16), masks(37))
    assert out.dtype == jnp.float16
    assert np.isfinite(out).all()


@pytest.mark.parametrize("length", [1, 8, 9, 127, 128, 129, 1000, 1024, 1025, 4000, 16_384])
def test_blocks_are_multiples_of_eight_with_little_padding(length):
    blocks = blocks_of(length, length, heads=2, machine=Machine("cpu"))
    for size, largest in ((blocks.queries, 256), (blocks.keys, 2**17 // blocks.queries)):
        assert size % 8 == 0
        assert size <= largest
        count = -(-length // size)
        assert count * size - length < 8 * count
        assert count == 1 or 2 * size > largest


@pytest.mark.parametrize(
    ("queries", "keys", "expected"),
    [
        (2048, 64, (256, 64)),
        (2048, 256, (256, 256)),
        (64, 2048, (64, 256)),
        (2048, 257, (256, 264)),
    ],
)
def test_few_queries_or_keys_meet_fewer_of_the_others_at_a_time(queries, keys, expected):
    assert blocks_of(queries, keys, heads=2, machine=Machine("cpu")) == expected


def test_with_many_heads_few_queries_meet_more_keys_at_a_time():
    assert blocks_of(64, 2048, heads=16, machine=Machine("cpu")) == (64, 256)
    assert blocks_of(64, 2048, heads=17, machine=Machine("cpu")) == (64, 2048)


@pytest.mark.parametrize("heads", [1, 2, 64, 10_000])
def test_an_accelerator_has_larger_blocks_that_its_memory_holds(heads):
    blocks = blocks_of(65_536, 65_536, heads=heads, machine=Machine("gpu"))
    smallest = blocks_of(65_536, 65_536, heads=heads, machine=Machine("cpu"))
    scores = blocks.queries * blocks.keys
    assert 4 * heads * scores <= tile_bytes(Machine("gpu")) or scores <= 2**14
    assert heads > 64 or scores >= 8 * smallest.queries * smallest.keys


@pytest.mark.parametrize(
    ("queries", "keys", "heads", "expected"),
    [
        (2048, 2048, 64, (2048, 128)),
        (1024, 1024, 512, (256, 128)),
        (64, 2048, 64, (64, 2048)),
        (65_536, 65_536, 1, (2048, 8192)),
        (65_536, 65_536, 10_000, (128, 128)),
    ],
)
def test_a_tpu_has_blocks_that_its_vector_memory_holds(queries, keys, heads, expected):
    blocks = blocks_of(queries, keys, heads=heads, machine=Machine("tpu"))
    assert blocks == expected
    assert 4 * heads * blocks.queries * blocks.keys <= 2**26 or heads > 1024


@pytest.mark.parametrize(
    ("copies", "expected"), [(1.0, (2048, 128)), (3.0, (512, 160)), (0.25, (2048, 512))]
)
def test_on_a_tpu_seeds_and_devices_count(copies, expected):
    with copies_on_a_device(copies):
        assert blocks_of(2048, 2048, heads=64, machine=Machine("tpu")) == expected


def test_no_second_order():
    x = jnp.ones((1, 8, 1, 8))
    with pytest.raises(TypeError, match="forward-mode autodiff"):
        jax.jvp(lambda q: chunked_attention(q, x, x, jnp.ones((1, 8), bool)), (x,), (x,))


def test_gradients_of_keys_and_values_are_added_up_in_float32():
    """Of a single key: 512 rows of blocks, each of which adds 8; bfloat16 would stop at 2,048."""
    q, k = jnp.zeros((1, 4096, 1, 8), jnp.bfloat16), jnp.zeros((1, 1, 1, 8), jnp.bfloat16)
    mask = jnp.ones((1, 1), bool)

    def total(v):
        out = chunked_attention(q, k, v, mask, blocks=Blocks(8, 8))
        return jnp.sum(out.astype(jnp.float32))

    gradient = jax.jit(jax.grad(total))(k)
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_array_equal(gradient.astype(jnp.float32), np.full((1, 1, 1, 8), 4096))


def test_what_masked_queries_hold_and_receive_reaches_no_gradient(float64):
    """Whether blocks are masked in part or as a whole: NaN in queries, gradients of outputs."""
    rng = np.random.default_rng(0)
    q, g = jnp.asarray(rng.normal(size=(2, 2, 20, 2, 8)))
    k, v = jnp.asarray(rng.normal(size=(2, 2, 9, 2, 8)))
    query_mask = np.arange(20) < np.array([[20], [5]])
    query_mask[0, 3] = False
    query_mask = jnp.asarray(query_mask)
    real = query_mask[:, :, None, None]

    def total(q, k, v, g):
        mask = jnp.ones((2, 9), bool)
        return jnp.sum(
            g * chunked_attention(q, k, v, mask, query_mask=query_mask, blocks=Blocks(8, 8))
        )

    gradients = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    expected = gradients(q, k, v, jnp.where(real, g, 0))
    for one, other in zip(gradients(jnp.where(real, q, jnp.nan), k, v, g), expected, strict=True):
        np.testing.assert_array_equal(one, other)
