"""Exact attention: reference arrays, dropout, which implementation runs, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention.standard import (
    StandardAttention,
    choose_implementation,
    standard_attention,
)
from models.dropout import keep_probability, keep_weights, weight_seeds
from models.machine import Machine, copies_on_a_device, this_machine
from tests.models.attention.arrays import assert_values_and_gradients, load, load_inputs


def build(**options):
    return StandardAttention(length=16, heads=2, head_dim=8, rngs=nnx.Rngs(0), **options)


def inputs(length=16, dtype=jnp.float32):
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, length, 2, 8))
    mask = np.arange(length)[None] < np.array([[length], [length - 5]])
    return *(jnp.asarray(x, dtype) for x in (q, k, v)), jnp.asarray(mask)


@pytest.mark.parametrize("mask", ["ones", "pad"])
def test_golden_values_and_gradients(mask, float64):
    arrays = load_inputs()

    def attend(q, k, v):
        return standard_attention(q, k, v, arrays[f"mask_{mask}"])

    assert_values_and_gradients(attend, arrays, load("standard"), f"softmax_{mask}")


def test_by_hand():
    """Two keys with scores 0 and log 3: weights 1/4 and 3/4."""
    q = jnp.array([1.0, 0, 0, 0]).reshape(1, 1, 1, 4) * jnp.ones((1, 3, 1, 1))
    k = jnp.zeros((1, 3, 1, 4)).at[0, 1, 0, 0].set(2 * np.log(3)).at[0, 2].set(100)
    v = jnp.broadcast_to(jnp.array([4.0, 8, 1000])[None, :, None, None], k.shape)
    out = standard_attention(q, k, v, jnp.array([[True, True, False]]))
    np.testing.assert_allclose(out, 7, rtol=1e-6)


@pytest.mark.parametrize("implementation", ["xla", "chunked"])
def test_one_real_token_gives_its_value(implementation):
    q, k, v, _ = inputs()
    mask = jnp.zeros((2, 16), bool).at[:, 5].set(True)
    out = build(implementation=implementation)(q, k, v, mask)
    np.testing.assert_allclose(out[:, 5], v[:, 5], rtol=1e-6)


def test_even_nan_at_padding_stays_there():
    q, k, v, mask = inputs()
    real = mask[:, :, None, None]

    def loss(q, k, v):
        return jnp.sum(jnp.where(real, standard_attention(q, k, v, mask), 0))

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    k_nan, v_nan = (jnp.where(real, x, jnp.nan) for x in (k, v))
    for x, y in zip(gradients(q, k_nan, v_nan), gradients(q, k, v), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("implementation", ["xla", "chunked"])
def test_dropout_leaves_the_mean(implementation):
    """Over many keys the mean output is that without dropout; in evaluation there is none."""
    q, k, v, mask = inputs()
    exact = standard_attention(q, k, v, mask)[mask]
    attention = build(dropout=0.5, implementation=implementation)
    np.testing.assert_allclose(attention(q, k, v, mask)[mask], exact, atol=1e-6)
    keys = jax.random.split(jax.random.key(0), 400)
    outs = jax.jit(jax.vmap(lambda key: attention(q, k, v, mask, key=key)))(keys)[:, mask]
    deviation = np.std(outs, axis=0)
    assert deviation.min() > 0.01
    error = np.abs(np.mean(outs, axis=0) - exact) / (deviation / np.sqrt(400))
    assert np.mean(error < 2) > 0.9
    assert error.max() < 6


@pytest.mark.parametrize("implementation", ["xla", "chunked"])
def test_the_module_drops_at_the_rate_of_its_option(implementation):
    (q, k, v, mask), key = inputs(), jax.random.key(0)
    expected = standard_attention(q, k, v, mask, dropout=0.25, key=key)
    found = build(dropout=0.25, implementation=implementation)(q, k, v, mask, key=key)
    np.testing.assert_allclose(found[mask], expected[mask], atol=1e-5)


def test_dropout_drops_weights_and_scales_the_others():
    q, k, _, mask = inputs()
    v = jnp.broadcast_to(jnp.eye(16, 8)[None, :, None, :], q.shape)
    key, dropout = jax.random.key(1), 0.25
    weights = standard_attention(q, k, v, mask)
    dropped = standard_attention(q, k, v, mask, dropout=dropout, key=key)
    seeds = weight_seeds(key, (2, 16, 2))
    keep = jnp.transpose(keep_weights(seeds, jnp.arange(16), dropout), (0, 3, 1, 2))[..., :8]
    np.testing.assert_allclose(
        dropped, jnp.where(keep, weights / keep_probability(dropout), 0), atol=1e-6
    )


def test_without_dropout_a_key_changes_nothing():
    q, k, v, mask = inputs()
    attention = build(dropout=0.0, implementation="chunked")
    np.testing.assert_array_equal(
        attention(q, k, v, mask, key=jax.random.key(0)), attention(q, k, v, mask)
    )


SMALL, LARGE, TEXT = (8, 256, 2, 32), (32, 2048, 2, 32), (32, 4096, 2, 32)
GPU, AMPERE = Machine("gpu", 50 * 2**30), Machine("gpu", 50 * 2**30, has_cudnn=True)
ONE = AMPERE._replace(runs_kernels=True)
TPU, CPU = Machine("tpu", 50 * 2**30), Machine("cpu")


@pytest.mark.parametrize(
    ("shape", "dtype", "dropout", "machine", "expected"),
    [
        (LARGE, jnp.bfloat16, False, AMPERE, "cudnn"),
        (LARGE, jnp.bfloat16, False, GPU, "xla"),
        (SMALL, jnp.float16, False, AMPERE, "cudnn"),
        (LARGE, jnp.bfloat16, True, AMPERE, "xla"),
        (LARGE, jnp.float32, False, AMPERE, "xla"),
        (LARGE, jnp.bfloat16, False, TPU, "xla"),
        (LARGE, jnp.bfloat16, False, CPU, "chunked"),
        (LARGE, jnp.bfloat16, True, Machine("gpu"), "chunked"),
        (TEXT, jnp.bfloat16, True, AMPERE, "chunked"),
        (TEXT, jnp.bfloat16, True, ONE, "flash"),
        (TEXT, jnp.bfloat16, False, ONE, "cudnn"),
        (TEXT, jnp.float32, True, ONE, "chunked"),
        ((32, 4096, 2, 8), jnp.bfloat16, True, ONE, "chunked"),
        ((32, 4096, 2, 48), jnp.bfloat16, True, ONE, "chunked"),
        ((32, 4096, 2, 128), jnp.bfloat16, True, ONE, "chunked"),
        (TEXT, jnp.float32, False, TPU, "chunked"),
        ((32, 4096, 2, 12), jnp.bfloat16, False, AMPERE, "chunked"),
        ((32, 4096, 2, 256), jnp.bfloat16, False, AMPERE, "chunked"),
        (SMALL, jnp.bfloat16, True, AMPERE, "xla"),
        (SMALL, jnp.bfloat16, True, Machine("gpu"), "xla"),
        (SMALL, jnp.float32, False, GPU, "xla"),
        (SMALL, jnp.float32, True, CPU, "chunked"),
    ],
)
def test_what_auto_stands_for(shape, dtype, dropout, machine, expected):
    assert choose_implementation(shape, dtype, dropout=dropout, machine=machine) == expected


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_auto_turns_to_chunked_beyond_a_fiftieth_of_the_memory(dtype):
    for batch, expected in ((256, "xla"), (257, "chunked")):
        shape = (batch, 1024, 1, 32)
        assert choose_implementation(shape, dtype, dropout=True, machine=GPU) == expected


def test_seeds_and_devices_count_in_what_auto_stands_for():
    shape = (128, 1024, 1, 32)  # two of them take a fiftieth of the memory
    for copies, expected in ((2.0, "xla"), (3.0, "chunked"), (0.25, "xla")):
        with copies_on_a_device(copies):
            chosen = choose_implementation(shape, jnp.float32, dropout=True, machine=GPU)
        assert chosen == expected
    with copies_on_a_device(0.25):
        whole = (4 * 256, *shape[1:])
        assert choose_implementation(whole, jnp.float32, dropout=True, machine=GPU) == "xla"


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of a machine without a GPU")
def test_a_machine_without_a_gpu():
    assert this_machine() == Machine("cpu")


@pytest.mark.parametrize(
    ("machine", "dtype"),
    # cuDNN would take the last inputs, if no weights were dropped.
    [(CPU, jnp.float32), (GPU, jnp.float32), (AMPERE, jnp.bfloat16)],
)
def test_auto_gives_what_it_chose(machine, dtype, monkeypatch):
    monkeypatch.setattr("models.attention.standard.this_machine", lambda: machine)
    arguments = inputs(dtype=dtype)
    chosen = choose_implementation(arguments[0].shape, dtype, dropout=True, machine=machine)

    def run(implementation):
        attention = build(implementation=implementation)
        return jax.jit(lambda *x: attention(*x, key=jax.random.key(0)))(*arguments)

    np.testing.assert_array_equal(run("auto"), run(chosen))


def test_an_unknown_implementation_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown implementation 'chunkd' .*did you mean 'chunked'"
    ):
        build(implementation="chunkd")


def test_a_dropout_of_one_is_refused():
    with pytest.raises(ValueError, match="dropout must be a number from 0 to less than 1, not 1"):
        build(dropout=1.0)


def test_cudnn_refuses_dropout_in_training_only():
    arguments = inputs(dtype=jnp.bfloat16)
    attention = build(dropout=0.1, implementation="cudnn")
    with pytest.raises(ValueError, match="cannot drop attention weights in training: set"):
        attention(*arguments, key=jax.random.key(0))
    if not this_machine().has_cudnn:
        for refused in (lambda: attention(*arguments), lambda: without_dropout(arguments)):
            with pytest.raises(ValueError, match="needs an NVIDIA GPU of compute capability"):
                refused()


def without_dropout(arguments):
    build(dropout=0.0, implementation="cudnn")(*arguments, key=jax.random.key(0))


def test_it_has_no_parameters():
    assert not jax.tree.leaves(nnx.state(build()))
