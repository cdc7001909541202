"""Matrices of attentions by the identity, their errors, and the best of every rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lra.analysis.matrices import best_rank_errors, exact_matrix, matrix_errors, module_matrix
from models.attention import make
from tests.attention_cases import CASES, attention_of

WITHOUT_MATRIX = ("linformer conv", "linformer pooled")


def inputs(length=14, heads=2, head_dim=8, holes=True):
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, length, heads, head_dim))
    mask = np.ones((2, length), bool)
    if holes:
        mask[0, [0, 5, length - 1]] = False
    return tuple(map(jnp.asarray, (q, k, v, mask)))


@pytest.mark.parametrize("case", [case for case in CASES if case not in WITHOUT_MATRIX])
def test_an_attention_is_its_matrix_times_the_values(case, float64):
    """Also at a length that is no multiple of the head's width, and with masked positions."""
    q, k, v, mask = inputs()
    sizes = {"length": 14, "heads": 2, "head_dim": 8}
    attention = make(attention_of(case), **sizes, rngs=nnx.Rngs(0), **CASES[case].options)
    k = q if attention.shares_qk else k
    graphdef, state = nnx.split(attention)
    found = jnp.einsum("bhij,bjhd->bihd", module_matrix(graphdef, state, q, k, mask), v)
    out = jax.jit(lambda state, *x: nnx.merge(graphdef, state)(*x))(state, q, k, v, mask)
    expected = jnp.where(mask[:, :, None, None], out, 0)
    hint = "an attention that is not linear in its values belongs in WITHOUT_MATRIX"
    np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=hint)


def test_the_exact_matrix_is_a_softmax_over_real_positions(float64):
    q, k, _, mask = inputs()
    matrix = exact_matrix(q, k, mask)
    real = np.asarray(mask[0])
    scores = np.einsum("ihd,jhd->hij", q[0], k[0])[:, real][:, :, real] / np.sqrt(8)
    weights = np.exp(scores)
    expected = weights / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(matrix)[0][:, real][:, :, real], expected, atol=1e-14)
    assert not np.asarray(matrix)[0][:, ~real].any()
    assert not np.asarray(matrix)[0][:, :, ~real].any()


def test_the_best_rank_is_the_tail_of_the_singular_values(float64):
    """Against the truncated decomposition, for the matrix and for its output."""
    q, k, v, mask = inputs()
    exact = np.asarray(exact_matrix(q, k, mask))
    found = best_rank_errors(exact, np.asarray(v))
    left, singular, right = np.linalg.svd(exact)
    for rank in (0, 1, 4, 11, 14):
        truncated = (left[..., :rank] * singular[..., None, :rank]) @ right[..., :rank, :]
        errors = matrix_errors(jnp.asarray(truncated), jnp.asarray(exact), v)
        np.testing.assert_allclose(found.matrix[..., rank], errors.matrix, atol=1e-13)
        np.testing.assert_allclose(found.output[..., rank], errors.output, atol=1e-13)
        tail = np.sqrt(np.sum(singular[..., rank:] ** 2, -1) / np.sum(singular**2, -1))
        np.testing.assert_allclose(errors.matrix, tail, atol=1e-13)


def test_no_matrix_of_a_rank_comes_closer_than_the_best(float64):
    q, k, v, mask = inputs(length=16, holes=False)
    exact = exact_matrix(q, k, mask)
    best = best_rank_errors(np.asarray(exact), np.asarray(v))
    attention = make("nystrom", length=16, heads=2, head_dim=8, rngs=nnx.Rngs(0), num_landmarks=4)
    attention.kernel = None
    errors = matrix_errors(module_matrix(*nnx.split(attention), q, k, mask), exact, v)
    assert np.all(np.asarray(errors.matrix) >= best.matrix[..., 4])


def test_nothing_to_approximate_is_no_error(float64):
    zero = jnp.zeros((1, 1, 3, 3))
    errors = matrix_errors(zero, zero, jnp.zeros((1, 3, 1, 2)))
    assert not jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, errors))
