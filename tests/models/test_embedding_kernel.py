"""The embeddings by the kernel, interpreted, against the plain form; lowered for a GPU."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import embedding_kernel, kernel_choice
from models.encoder import Encoder
from models.machine import Machine, assumed, this_machine
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

KEY = jax.random.key(7)
GPU = Machine("gpu", runs_kernels=True)


def build(positions="learned", dtype=jnp.bfloat16, vocabulary=50, length=128):
    encoder = Encoder(
        vocab_size=vocabulary,
        length=length,
        num_layers=0,
        dim=16,
        mlp_dim=16,
        num_heads=1,
        head_dim=16,
        dropout=0.1,
        positions=positions,
        remat=False,
        attention={"name": "standard"},
        dtype=dtype,
        rngs=nnx.Rngs(0),
    )
    return nnx.split(encoder)


def inputs(vocabulary=50, dtype=jnp.bfloat16, batch=13, length=128):
    ids = jax.random.randint(jax.random.key(1), (batch, length), 0, vocabulary)
    return ids, jax.random.normal(jax.random.key(2), (batch, length, 16)).astype(dtype)


def run(graph, state, ids, g, key):
    """The embedded tokens and the gradients of the tables."""
    out, gradient = jax.vjp(lambda state: nnx.merge(graph, state)._embed(ids, key), state)
    return jax.tree.leaves((out, gradient(g)))


@pytest.fixture
def interpreted(monkeypatch):
    """The kernel is interpreted, taken in float32 too, and has uneven groups of examples."""
    function = functools.partial(embedding_kernel.embed, interpret=True)
    monkeypatch.setattr(embedding_kernel, "embed", function)
    monkeypatch.setattr(embedding_kernel, "_PROGRAMS", 5)
    takes = kernel_choice.preferred_for_embedding
    monkeypatch.setattr(
        kernel_choice,
        "preferred_for_embedding",
        lambda length, vocabulary, dim, _, m: takes(length, vocabulary, dim, jnp.bfloat16, m),
    )


def both(parts, arrays, key):
    with assumed(GPU):
        found = run(*parts, *arrays, key)
    with assumed(Machine("cpu")):
        return found, run(*parts, *arrays, key)


@pytest.mark.parametrize("key", [None, KEY, "one for each example"], ids=["kept", "one", "each"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_equals_the_plain_form(positions, key, interpreted):
    key = jax.random.split(KEY, 13) if isinstance(key, str) else key
    found, expected = both(build(positions, jnp.float32), inputs(dtype=jnp.float32), key)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-20 * np.abs(y).max())


@pytest.mark.parametrize("vocabulary", [3, 16, 20, 257])
def test_any_number_of_ids(vocabulary, interpreted):
    parts = build(dtype=jnp.float32, vocabulary=vocabulary)
    found, expected = both(parts, inputs(vocabulary, jnp.float32), KEY)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-20 * np.abs(y).max())


def test_bfloat16_is_that_of_the_plain_form(interpreted):
    """Gradients are rounded behind the dropout, then summed in float32."""
    found, expected = both(build(), inputs(), KEY)
    np.testing.assert_array_equal(found[0], expected[0])
    for x, y in zip(found[1:], expected[1:], strict=True):
        assert x.dtype == jnp.float32
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-16 * np.abs(y).max())


def test_seeds_are_mapped(interpreted):
    graph, state = build(dtype=jnp.float32)
    two = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), state)
    keys, (ids, g) = jax.random.split(KEY), inputs(dtype=jnp.float32)
    of_seed = functools.partial(run, graph)
    with assumed(GPU):
        found = jax.vmap(of_seed, (0, None, None, 0))(two, ids, g, keys)
        for seed in range(2):
            alone = of_seed(jax.tree.map(lambda x, s=seed: x[s], two), ids, g, keys[seed])
            for x, y in zip(found, alone, strict=True):
                np.testing.assert_allclose(x[seed], y, rtol=0, atol=1e-5)


@TRITON_IS_LEAVING
@pytest.mark.parametrize("key", [None, KEY], ids=["kept", "dropped"])
def test_one_kernel_on_a_gpu(key, monkeypatch):
    of_graph = functools.partial(run, build()[0])
    with on_an_h100(monkeypatch), assumed(GPU):
        traced = jax.jit(of_graph).trace(build()[1], *inputs(), key)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall(r"custom_call @__gpu\$xla.gpu.triton", text)) == 1


def test_a_length_that_does_not_fit_is_refused():
    token, ids = jnp.ones((50, 16)), jnp.zeros((2, 100), jnp.int32)
    with pytest.raises(ValueError, match="100 positions, which are no multiple of 64"):
        embedding_kernel.embed(token, None, ids, dropout=0.0, seeds=None, dtype=jnp.bfloat16)


def test_ranges_of_ids_are_powers_of_two():
    powers = embedding_kernel._powers_of_two
    assert powers(256) == [256]
    assert powers(257) == [256, 16]
    assert powers(3) == [16]
    assert powers(50) == [64]
    assert powers(33) == [32, 16]


def test_which_it_takes():
    def takes(length=1024, vocabulary=256, dim=64, dtype=jnp.bfloat16, machine=GPU):
        return kernel_choice.preferred_for_embedding(length, vocabulary, dim, dtype, machine)

    assert takes()
    assert takes(vocabulary=257, dim=16)
    assert not takes(length=1000)
    assert not takes(vocabulary=500)
    assert not takes(dim=128)
    assert not takes(dim=48)
    assert not takes(dtype=jnp.float32)
    assert not takes(machine=Machine("gpu"))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernel needs a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("key", [None, KEY], ids=["kept", "dropped"])
@pytest.mark.parametrize("vocabulary", [16, 257])
def test_on_a_gpu(vocabulary, key):
    assert this_machine().runs_kernels
    graph, state = build(vocabulary=vocabulary)
    arrays = inputs(vocabulary)
    found = jax.jit(functools.partial(run, graph))(state, *arrays, key)
    with assumed(Machine("gpu")):
        expected = jax.jit(functools.partial(run, graph))(state, *arrays, key)
    for x, y in zip(found, expected, strict=True):
        x, y = (np.asarray(each, np.float32) for each in (x, y))
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-8 * np.abs(y).max())
