"""The sliding window block by block against the plain form: values, gradients, memory."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention.contract import masked_softmax
from models.attention.longformer import (
    BLOCK,
    LongformerAttention,
    Tile,
    longformer_attention,
    tile_of,
)
from models.attention.standard import standard_attention
from models.machine import Machine
from tests.models.attention.arrays import (
    assert_same,
    assert_trains_like,
    load,
    load_inputs,
    masks,
    of_two_seeds,
    out_and_gradients,
    random_inputs,
)
from tests.suites import slow_but


def plain(q, k, v, mask, window):
    """The definition, with all scores in memory."""
    positions = np.arange(q.shape[1])
    near = np.abs(positions[:, None] - positions[None, :]) <= window
    weights = jnp.einsum("blhd,bmhd->bhlm", q, jnp.where(mask[:, :, None, None], k, 0))
    allowed = near[None, None] & mask[:, None, None, :] & mask[:, None, :, None]
    weights = masked_softmax(weights / math.sqrt(q.shape[-1]), allowed)
    return jnp.einsum("bhlm,bmhd->blhd", weights, jnp.where(mask[:, :, None, None], v, 0))


@functools.cache
def plain_of(length, window):
    """The plain form with a length's masks: one function, compiled once."""
    return functools.partial(plain, mask=masks(length), window=window)


# Windows below, at and above the block's size and its multiples; lengths below and above both.
@pytest.mark.parametrize(
    ("length", "window"),
    slow_but(
        [(37, 5), (150, 64), (200, 65)],
        [(1, 1), (37, 5), (37, 128), (BLOCK, BLOCK), (150, 1), (150, 64), (200, 65), (300, 128)],
    ),
)
def test_equals_the_plain_form(length, window, float64):
    q, k, v, g = random_inputs(length)
    mask = masks(length)
    attend = functools.partial(longformer_attention, mask=mask, window=window)
    found = out_and_gradients(attend, q, k, v, g)
    expected = out_and_gradients(plain_of(length, window), q, k, v, g)
    assert_same(found, expected)
    assert not np.asarray(found[0])[3].any()


# 250 positions are 4 blocks: tiles that divide them, that do not, and that are larger.
@pytest.mark.parametrize(
    ("heads", "blocks"), slow_but([(2, 3), (4, 5)], [(4, 1), (1, 2), (2, 3), (1, 4), (4, 5)])
)
def test_every_tile_gives_the_same(heads, blocks, float64):
    q, k, v, g = random_inputs(250, heads=4)
    mask, tile = masks(250), Tile(heads, blocks, reach=128)
    attend = functools.partial(longformer_attention, mask=mask, window=70, tile=tile)
    found = out_and_gradients(attend, q, k, v, g)
    assert_same(found, out_and_gradients(plain_of(250, 70), q, k, v, g))


@pytest.mark.parametrize("tile", [(2, 1, 64), (2, 1, 192), (3, 1, 128), (0, 1, 128), (2, 0, 128)])
def test_a_tile_that_does_not_fit_is_refused(tile):
    x = jnp.ones((4, 250, 4, 8))
    with pytest.raises(ValueError, match=r"reach of 128|must be a positive integer"):
        longformer_attention(x, x, x, masks(250), window=70, tile=Tile(*tile))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("mask", "name"), [("mask_ones", "local_nomask"), ("mask_pad", "local_pad")]
)
def test_golden_values(mask, name):
    arrays = load_inputs()
    attend = jax.jit(longformer_attention, static_argnames="window")
    out = attend(arrays["q"], arrays["k"], arrays["v"], arrays[mask], window=8)
    # That reference's softmax is float32, and so are the stored arrays.
    np.testing.assert_allclose(out.reshape(2, 128, 32), load("longformer")[name], atol=2e-6)


def standard_of_100(q, k, v):
    mask = masks(100)
    return jnp.where(mask[:, :, None, None], standard_attention(q, k, v, mask), 0)


@pytest.mark.parametrize("window", [99, 100, 2**31])
def test_a_window_of_the_length_is_standard_attention(window, float64):
    q, k, v, g = random_inputs(100)
    mask = masks(100)
    attend = functools.partial(longformer_attention, mask=mask, window=window)
    found = out_and_gradients(attend, q, k, v, g)
    assert_same(found, out_and_gradients(standard_of_100, q, k, v, g))


def test_nothing_beyond_the_window_is_seen(float64):
    q, k, v, g = random_inputs(200)
    mask = jnp.ones((4, 200), bool)
    attend = functools.partial(longformer_attention, mask=mask, window=30)
    g = jnp.zeros_like(g).at[:, 100].set(g[:, 100])
    _, dq, dk, dv = map(np.asarray, out_and_gradients(attend, q, k, v, g))
    positions = np.arange(200)
    assert not dq[:, positions != 100].any()
    for x in (dk, dv):
        seen = np.abs(x).max(axis=(0, 2, 3)) > 0
        np.testing.assert_array_equal(seen, np.abs(positions - 100) <= 30)


@pytest.mark.parametrize("amount", [1, 70])
def test_the_amount_of_padding_changes_nothing(amount, float64):
    q, k, v, g = random_inputs(90)
    mask = masks(90)
    widths = ((0, 0), (0, amount), (0, 0), (0, 0))
    padded = [jnp.pad(x, widths, constant_values=jnp.nan) for x in (q, k, v)]
    longer = jnp.pad(mask, widths[:2])

    def attend(mask):
        return functools.partial(longformer_attention, mask=mask, window=20)

    found = out_and_gradients(attend(longer), *padded, jnp.pad(g, widths))
    assert all(np.isfinite(x).all() for x in found)
    assert_same([x[:, :90] for x in found], out_and_gradients(attend(mask), q, k, v, g))


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v, g = random_inputs(150, jnp.float32)
    attend = functools.partial(longformer_attention, mask=masks(150), window=40)
    found = out_and_gradients(attend, 300 * q, 300 * k, v, g)
    assert all(np.isfinite(x).all() for x in found)
    expected = jax.jit(plain_of(150, 40))(300 * q, 300 * k, v)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


def test_seeds_train_at_once(float64):
    mask = masks(70)
    assert_trains_like(
        lambda _, q, k, v: longformer_attention(q, k, v, mask, window=9),
        lambda _, q, k, v: plain(q, k, v, mask, 9),
        jnp.arange(2),
        of_two_seeds(functools.partial(random_inputs, 70)),
        assert_same,
    )


def test_tiles():
    # Heads of one sequence together, until they no longer fit into the cache.
    assert tile_of((1, 4096, 2, 32), 4, window=128, machine=Machine("cpu")) == Tile(2, 1, 128)
    assert tile_of((1, 4096, 12, 64), 4, window=128, machine=Machine("cpu")) == Tile(3, 1, 128)
    assert tile_of((32, 4096, 2, 32), 4, window=128, machine=Machine("cpu")) == Tile(1, 1, 128)
    # Elsewhere all blocks at once, in equal parts if they are too many.
    assert tile_of((1, 4000, 2, 32), 4, window=128, machine=Machine("gpu")) == Tile(2, 63, 128)
    assert tile_of((32, 8192, 12, 64), 4, window=128, machine=Machine("gpu")) == Tile(12, 8, 128)
    # No further than the sequence.
    assert tile_of((1, 100, 2, 32), 4, window=4096, machine=Machine("cpu")).reach == 2 * BLOCK
    assert tile_of((1, 1, 2, 32), 4, window=4096, machine=Machine("cpu")) == Tile(2, 1, 0)


def test_module_computes_the_function_and_holds_nothing():
    attention = LongformerAttention(length=70, heads=2, head_dim=8, rngs=nnx.Rngs(0), window=5)
    q, k, v, _ = random_inputs(70, jnp.float32)
    expected = jax.jit(functools.partial(longformer_attention, window=5))(q, k, v, masks(70))
    np.testing.assert_array_equal(jax.jit(attention)(q, k, v, masks(70)), expected)
    assert not jax.tree.leaves(nnx.state(attention))


@pytest.mark.parametrize("window", [0, -1, True])
def test_bad_windows(window):
    with pytest.raises(ValueError, match=f"window must be a positive integer, not {window}"):
        LongformerAttention(length=8, heads=1, head_dim=4, rngs=nnx.Rngs(0), window=window)


def test_gradients_of_keys_and_values_are_added_up_in_float32():
    """Values get 257 from one block of queries and 1 from the next; bfloat16 holds no 257."""
    x, mask = jnp.zeros((1, 2 * BLOCK, 1, 8), jnp.bfloat16), jnp.ones((1, 2 * BLOCK), bool)
    g = jnp.repeat(jnp.array([512.0, 520.0, 2.0]), jnp.array([48, 16, BLOCK]))

    def total(v):
        out = longformer_attention(x, x, v, mask, window=2 * BLOCK)
        return jnp.sum(out.astype(jnp.float32) * g[None, :, None, None])

    gradient = jax.jit(jax.grad(total))(x)
    np.testing.assert_array_equal(gradient.astype(jnp.float32), np.full(x.shape, 258))


def test_scores_of_bfloat16_are_float32():
    """Two keys with scores of 256 and 257; bfloat16 holds no 257."""
    q, k, v = jnp.zeros((3, 1, 2, 1, 4))
    q = q.at[..., :2].set(jnp.array([512.0, 256])[None, None, None])
    k = k.at[0, :, 0, :2].set(jnp.array([[1.0, 0], [1.0, 2**-7]]))
    arrays = (x.astype(jnp.bfloat16) for x in (q, k, v.at[:, 1].set(1)))
    attend = jax.jit(functools.partial(longformer_attention, window=2))
    out = attend(*arrays, jnp.ones((1, 2), bool))
    np.testing.assert_allclose(out.astype(jnp.float32), np.e / (1 + np.e), rtol=2**-7)
