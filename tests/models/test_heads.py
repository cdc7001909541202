"""Pooling by hand-computed numbers; the two classifiers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from configs import default
from models.heads import POOLINGS, Classifier, PairClassifier, pool

X = jnp.array([[[1.0, -1], [3, -5], [100, 100], [100, 100]], [[7, 7], [7, 7], [7, 7], [7, 7]]])
MASK = jnp.array([[True, True, False, False], [False] * 4])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("padded_mean", [1.0, -1.5]),
        ("mean", [2.0, -3.0]),
        ("max", [3.0, -1.0]),
        ("first", [1.0, -1.0]),
    ],
)
def test_pooling(pooling, expected):
    np.testing.assert_allclose(pool(X, MASK, pooling), [expected, [0, 0]])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_addend_of_all_positions_has_the_sum_of_their_gradients(pooling):
    """However the compiler arranges it: see `models.largest`."""
    # A width at which XLA rounds in two ways on a CPU (that of JAX 0.10 only with its fusion
    # emitters, which tests switch off), without blocks before the last normalisation too.
    model = build(Classifier, pooling=pooling, dim=12, num_heads=3, length=16, num_layers=0)
    graph, params = nnx.split(model)

    # As fully optimised as trainings are: the tests' own level would hide what is tested.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 2})
    @functools.partial(jax.grad, argnums=(0, 1))
    def gradients(params, more, ids, mask):
        model = nnx.merge(graph, params)
        pooled = pool(model.encoder(ids, mask) + more, mask, pooling)
        return jnp.sum(model._classify(pooled) ** 2)

    for seed in range(5):
        ids = jax.random.randint(jax.random.key(seed), (4, 16), 0, 9)
        mask = jax.random.bernoulli(jax.random.key(seed + 5), 0.7, (4, 16))
        of_params, of_positions = gradients(params, jnp.zeros((4, 16, 12)), ids, mask)
        of_bias = of_params["encoder"]["norm"]["bias"][...]
        np.testing.assert_allclose(of_bias, of_positions.sum((0, 1)), atol=1e-6)


def test_the_padded_length_may_be_longer_than_the_sequence():
    short = pool(X[:, :2], MASK[:, :2], "padded_mean", padded_length=4)
    np.testing.assert_allclose(short, pool(X, MASK, "padded_mean"))


def test_pooling_sums_in_float32():
    ones = jnp.ones((1, 4096, 1), jnp.bfloat16)
    total = pool(ones, jnp.ones((1, 4096), bool), "padded_mean")
    assert total.dtype == jnp.float32
    assert total[0, 0] == 1  # a bfloat16 sum would stop at 256


def test_what_is_behind_the_pooling_is_not_rounded():
    model = build(Classifier, dtype=jnp.bfloat16)
    features = jax.random.normal(jax.random.key(0), (5, 8))
    logits = model._classify(features)
    assert logits.dtype == jnp.float32
    np.testing.assert_array_equal(logits, build(Classifier)._classify(features))


def build(model_class, classes=3, dtype=jnp.float32, length=8, **changes):
    config = default.get_config()
    config.model.update({"dim": 8, "mlp_dim": 6, "head_dim": 4, "num_layers": 1, **changes})
    return model_class(
        config.model.to_dict(),
        vocab_size=9,
        length=length,
        num_classes=classes,
        dtype=dtype,
        rngs=nnx.Rngs(0),
    )


def test_pairs_see_both_their_product_and_their_difference():
    model = build(PairClassifier)
    ids = jax.random.randint(jax.random.key(0), (2, 2, 8), 1, 9)
    mask = jnp.ones((2, 2, 8), bool)
    a, b = (model._pooled(ids[:, i], mask[:, i], None) for i in range(2))
    features = jnp.concatenate([a, b, a * b, a - b], axis=-1)
    hidden = jnp.maximum(features @ model.hidden.kernel[...] + model.hidden.bias[...][None], 0)
    expected = hidden @ model.logits.kernel[...] + model.logits.bias[...][None]
    np.testing.assert_allclose(model(ids, mask), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("key", [None, 3], ids=["evaluation", "training"])
def test_a_shorter_sequence_gives_what_it_gives_padded(pooling, key):
    # Dropout included: what a position draws does not depend on those behind it.
    key = None if key is None else jax.random.split(jax.random.key(key), 2)
    model = build(PairClassifier, pooling=pooling, dropout=0.5)
    ids = jax.random.randint(jax.random.key(0), (2, 2, 8), 1, 9)
    mask = jnp.asarray(np.arange(8) < np.array([[[5], [2]], [[3], [5]]]))
    padded = model(jnp.where(mask, ids, 0), mask, key)
    np.testing.assert_allclose(model(ids[..., :5], mask[..., :5], key), padded, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_classifier_pools_as_it_is_told(pooling):
    model = build(Classifier, pooling=pooling)
    ids = jax.random.randint(jax.random.key(0), (2, 8), 1, 9)
    mask = jnp.arange(8)[None] < jnp.array([[5], [8]])
    expected = pool(model.encoder(ids, mask), mask, pooling, 8)
    np.testing.assert_allclose(model._pooled(ids, mask, None), expected, atol=1e-6)


def test_an_unknown_pooling_is_refused():
    known = r"unknown pooling .*known: first, max, mean, padded_mean"
    with pytest.raises(ValueError, match=known):
        build(Classifier, pooling="last")
    with pytest.raises(ValueError, match=known):
        pool(jnp.ones((1, 2, 3)), jnp.ones((1, 2), bool), "last")


def test_both_texts_of_a_pair_draw_for_themselves(monkeypatch):
    monkeypatch.setattr(PairClassifier, "_classify", lambda self, features: features)
    model = build(PairClassifier, dropout=0.5)
    text = jax.random.randint(jax.random.key(0), (1, 1, 8), 1, 9)
    ids, mask = jnp.broadcast_to(text, (2, 2, 8)), jnp.ones((2, 2, 8), bool)
    for key in (jax.random.key(1), jax.random.split(jax.random.key(1), 2)):
        differences = np.asarray(model(ids, mask, key)[:, -8:])
        assert (np.abs(differences).max(axis=1) > 1e-3).all()
        assert np.abs(differences[0] - differences[1]).max() > 1e-3
    assert not model(ids, mask)[:, -8:].any()
