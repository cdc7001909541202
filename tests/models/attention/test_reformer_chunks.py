"""Pairs of chunks against their plain form, differentiated by JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import reformer_chunks
from models.attention.blocks import tile_bytes
from models.attention.reformer_chunks import KEY_EPSILON, PADDING, SELF_SCORE, attend_chunk_pairs
from models.machine import Machine

BATCH, HEADS, CHUNKS, SIZE, WIDTH = 2, 2, 6, 4, 8


def plain(queries_values, positions, key_positions):
    """Whole arrays of keys, those of a chunk and of the one before side by side."""
    q, v = jnp.split(queries_values, 2, axis=-1)
    k = q / jnp.sqrt(jnp.sum(jnp.square(q), axis=-1, keepdims=True) + WIDTH * KEY_EPSILON)

    def with_chunk_before(x):
        return jnp.concatenate([jnp.roll(x, 1, axis=2), x], axis=3)

    k, v, key_positions = map(with_chunk_before, (k, v, key_positions))
    scores = jnp.einsum("bhcqd,bhckd->bhcqk", q, k)
    at = key_positions[..., None, :]
    scores = jnp.where(at == PADDING, jnp.finfo(scores.dtype).min, scores)
    scores = jnp.where(positions[..., None] == at, SELF_SCORE, scores)
    total = jax.nn.logsumexp(scores, axis=-1)
    return jnp.einsum("bhcqk,bhckd->bhcqd", jax.nn.softmax(scores), v), total


def case(dtype):
    """Two rounds of shuffled positions, so that a chunk may see a query's own position twice."""
    rng = np.random.default_rng(0)
    queries_values = rng.normal(size=(BATCH, HEADS, CHUNKS, SIZE, 2 * WIDTH))
    length = CHUNKS * SIZE // 2
    rounds = [rng.permutation(length) for _ in range(2 * BATCH * HEADS)]
    positions = np.concatenate(rounds).reshape(BATCH, HEADS, CHUNKS, SIZE)
    key_positions = np.where(positions < length - 3, positions, PADDING)
    queries_values *= (key_positions != PADDING)[..., None]
    positions, key_positions = (jnp.asarray(x, jnp.int32) for x in (positions, key_positions))
    return jnp.asarray(queries_values, dtype), positions, key_positions


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("chunks_of_a_tile", [1, 2, 6])
def test_values_and_gradients_equal_the_plain_form(monkeypatch, chunks_of_a_tile):
    bytes_of_a_chunk = BATCH * HEADS * SIZE * 2 * SIZE * 8
    size = chunks_of_a_tile * bytes_of_a_chunk
    monkeypatch.setattr(reformer_chunks, "tile_bytes", lambda machine: size)
    assert reformer_chunks._tile(CHUNKS, bytes_of_a_chunk) == chunks_of_a_tile
    queries_values, *positions = case(np.float64)
    real = positions[1] != PADDING

    @functools.partial(jax.jit, static_argnums=0)
    def results(attend, queries_values):
        def total(queries_values):
            out, logsumexp = attend(queries_values, *positions)
            out, logsumexp = jnp.where(real[..., None], out, 0), jnp.where(real, logsumexp, 0)
            return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.cos(logsumexp)), (out, logsumexp)

        return jax.grad(total, has_aux=True)(queries_values)

    found, expected = (results(attend, queries_values) for attend in (attend_chunk_pairs, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)


def test_a_tile_divides_the_chunks():
    assert reformer_chunks._tile(30, tile_bytes(Machine("cpu")) // 7) == 6
    assert reformer_chunks._tile(31, tile_bytes(Machine("cpu")) // 7) == 1
    assert reformer_chunks._tile(31, 10 * tile_bytes(Machine("cpu"))) == 1


def test_bfloat16_gives_float32():
    out, logsumexp = jax.jit(attend_chunk_pairs)(*case(jnp.bfloat16))
    assert out.dtype == logsumexp.dtype == jnp.float32
    expected, _ = jax.jit(attend_chunk_pairs)(*case(jnp.float32))
    np.testing.assert_allclose(out, expected, atol=0.05)


def test_the_score_of_a_token_that_sees_only_itself_is_a_constant():
    positions = jnp.arange(4).reshape(1, 1, 2, 2)
    real = positions == 0
    drawn = jax.random.normal(jax.random.key(0), (1, 1, 2, 2, 2 * WIDTH))
    queries_values = jnp.where(real[..., None], drawn, 0)

    def logsumexp(queries_values):
        keys = jnp.where(real, positions, PADDING)
        return attend_chunk_pairs(queries_values, positions, keys)[1][0, 0, 0, 0]

    value, gradient = jax.value_and_grad(logsumexp)(queries_values)
    assert value == SELF_SCORE
    assert not gradient.any()


def test_both_shares_of_a_chunk_are_added_up_in_float32(monkeypatch):
    """Values get 257 from queries of one chunk and 1 from the other's; bfloat16 holds no 257."""
    monkeypatch.setattr(reformer_chunks, "tile_bytes", lambda machine: 1)  # a chunk at a time
    positions = jnp.arange(CHUNKS * SIZE).reshape(1, 1, CHUNKS, SIZE)
    queries_values = jnp.zeros((1, 1, CHUNKS, SIZE, 2 * WIDTH), jnp.bfloat16)
    # Each query sees 2 SIZE = 8 keys equally.
    of_chunks = jnp.array([[512.0, 512.0, 512.0, 520.0], [2.0, 2.0, 2.0, 2.0]] * (CHUNKS // 2))

    def total(queries_values):
        out, _ = attend_chunk_pairs(queries_values, positions, positions + 100)
        return jnp.sum(out * of_chunks[None, None, :, :, None])

    _, of_values = jnp.split(jax.grad(total)(queries_values), 2, axis=-1)
    np.testing.assert_array_equal(of_values.astype(jnp.float32), np.full(of_values.shape, 258))


def test_scores_and_sums_of_bfloat16_are_float32():
    """Scores of 256 and 257, and values of the sum 259: bfloat16 holds neither 257 nor 259."""
    positions = jnp.arange(4).reshape(1, 1, 2, 2)
    q, v = jnp.zeros((2, 4, WIDTH))
    q = q.at[:, :2].set(jnp.array([[256, 128], [1, 0], [1, 2**-7], [-1, 0]]))
    of_scores = jnp.concatenate([q, v.at[2].set(1)], axis=1)
    of_sums = jnp.concatenate([0 * q, v.at[:, 0].set(jnp.array([256.0, 1, 1, 1]))], axis=1)
    outs = []
    for case, keys in ((of_scores, positions), (of_sums, positions + 100)):
        case = case.astype(jnp.bfloat16).reshape(1, 1, 2, 2, 2 * WIDTH)
        outs.append(attend_chunk_pairs(case, positions, keys)[0][0, 0, 0, 0])
    np.testing.assert_allclose(outs[0], np.full(WIDTH, np.e / (1 + np.e)), rtol=2**-7)
    assert outs[1][0] == 259 / 4
