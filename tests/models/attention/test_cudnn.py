"""Attention by cuDNN: everything around the kernel, which itself needs a GPU."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention.chunked import chunked_attention
from models.attention.cudnn import (
    cudnn_attention,
    prefix_attention,
    supports,
)
from models.attention.standard import standard_attention
from models.machine import Machine, this_machine
from tests.cudnn_driver import without_driver
from tests.models.attention.arrays import out_and_gradients


def inputs(length, dtype=jnp.float64, head_dim=8):
    draws = np.random.default_rng(0).normal(size=(4, 3, length, 2, head_dim))
    mask = np.random.default_rng(1).random((3, length)) < 0.5
    mask[0], mask[2] = True, False
    return *(jnp.asarray(x, dtype) for x in draws), jnp.asarray(mask)


def by_jax(q, k, v, mask):
    """With JAX's own softmax, which mixes formats, in the kernel's place."""
    with jax.numpy_dtype_promotion("standard"):
        return prefix_attention(q, k, v, mask, implementation="xla")


@pytest.mark.parametrize("length", [24, 13])
def test_the_real_keys_moved_to_the_front_give_the_same(length, float64):
    q, k, v, g, mask = inputs(length)

    def prefix(q, k, v):
        return by_jax(q, k, v, mask)

    found = out_and_gradients(prefix, q, k, v, g)
    plain = out_and_gradients(lambda *x: standard_attention(*x, mask), q, k, v, g)
    for x, y in zip(found, plain, strict=True):
        # JAX's own softmax is in float32.
        np.testing.assert_allclose(x, y, atol=2e-5)
    assert not np.asarray(found[0])[2].any()


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("queries", "keys"), [(24, 8), (13, 5), (6, 24)])
def test_there_may_be_more_or_fewer_keys_than_queries(queries, keys, masked, float64):
    _, k, v, _, mask = inputs(keys)
    q, _, _, g, _ = inputs(queries)
    mask = mask if masked else None

    def prefix(q, k, v):
        return by_jax(q, k, v, mask)

    def chunked(q, k, v):
        return chunked_attention(q, k, v, jnp.ones(k.shape[:2], bool) if mask is None else mask)

    found = out_and_gradients(prefix, q, k, v, g)
    for x, y in zip(found, out_and_gradients(chunked, q, k, v, g), strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5)  # as above


@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (0, 0, 0, None), (None, 0, None, None)])
def test_the_kernel_is_reached_forward_and_backward_under_vmap(axes, monkeypatch):
    """Lowered for a GPU on any machine."""
    without_driver(monkeypatch)
    q, k, v, _, mask = inputs(13, jnp.bfloat16)

    def loss(q, k, v, mask):
        return jnp.sum(prefix_attention(q, k, v, mask, implementation="cudnn"))

    arguments = [
        x if axis is None else jnp.stack([x, x])
        for x, axis in zip((q, k, v, mask), axes, strict=True)
    ]
    gradients = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1, 2)), in_axes=axes))
    lowered = gradients.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert "__cudnn$fmhaSoftmax(" in lowered
    assert "__cudnn$fmhaSoftmaxBackward(" in lowered
    # The lengths of queries and of keys, which XLA must not take for the same in all seeds.
    pair = r"optimization_barrier %\S+, %\S+ : (tensor<[0-9x]+i32>), \1$"
    assert len(re.findall(pair, lowered, re.MULTILINE)) >= 2


def test_what_the_kernel_takes():
    ampere = Machine("gpu", has_cudnn=True)
    assert supports(jnp.bfloat16, 32, ampere)
    assert supports(jnp.float16, 128, ampere)
    assert not supports(jnp.float32, 32, ampere)
    assert not supports(jnp.bfloat16, 12, ampere)
    assert not supports(jnp.bfloat16, 136, ampere)
    assert not supports(jnp.bfloat16, 32, Machine("gpu"))
    assert not supports(jnp.bfloat16, 32, Machine("cpu"))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "message"),
    [
        (jnp.float32, 8, "takes 16-bit inputs, not float32: set dtype to bfloat16"),
        (jnp.bfloat16, 12, "takes heads of a multiple of 8 up to 128 wide, not 12"),
        (jnp.bfloat16, 8, "needs an NVIDIA GPU of compute capability 8.0 or more, and JAX runs on"),
    ],
)
def test_refusals_name_cause_and_cure(dtype, head_dim, message):
    if this_machine().has_cudnn and "GPU" in message:
        pytest.skip("there is a GPU")
    q, k, v, _, mask = inputs(8, dtype, head_dim)
    with pytest.raises(ValueError, match=f"implementation='cudnn' {message}"):
        cudnn_attention(q, k, v, mask)


def test_on_a_gpu():
    if not this_machine().has_cudnn:
        pytest.skip("cuDNN needs a GPU")
    q, k, v, _, mask = inputs(24, jnp.bfloat16)
    out = cudnn_attention(q, k, v, mask)
    expected = standard_attention(q, k, v, mask)
    np.testing.assert_allclose(
        out.astype(jnp.float32), expected.astype(jnp.float32), rtol=2**-6, atol=2**-6
    )
