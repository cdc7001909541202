"""When kernels are chosen, and that each attention's can be lowered in any mode of JAX."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import attention, kernel_choice, machine
from models.encoder import Encoder
from models.machine import Machine, assumed
from tests.suites import slow_but
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

GPU = Machine("gpu", runs_kernels=True, inverts=True)
OPTIONS = {
    "standard": {},
    "performer": {"num_features": 64},
    "reformer": {"chunk_length": 16},
    "nystrom": {"num_landmarks": 16},
    "linformer": {"proj_dim": 16},
}


def build(name):
    rngs = nnx.Rngs(0, attention=1)
    sizes = {"length": 64, "heads": 2, "head_dim": 16}
    return nnx.split(attention.make(name=name, **sizes, rngs=rngs, **OPTIONS[name]))


def inputs(*dtypes):
    keys = jax.random.split(jax.random.key(0), len(dtypes))
    shape = (2, 64, 2, 16)
    arrays = (
        jax.random.normal(key, shape).astype(dtype) for key, dtype in zip(keys, dtypes, strict=True)
    )
    return *arrays, jnp.arange(64)[None] < jnp.array([[64], [20]])


def total(graph, state, q, k, v, mask, key):
    out = nnx.merge(graph, state)(q, k, v, mask, key=key)
    return jnp.sum(out.astype(jnp.float32))


@TRITON_IS_LEAVING
@pytest.mark.parametrize("name", slow_but(("nystrom", "performer"), OPTIONS))
def test_gradients_are_lowered_for_a_gpu_with_64_bit_types_on(name, monkeypatch, float64):
    graph, state = build(name)
    gradients = jax.grad(functools.partial(total, graph, state), argnums=(0, 1, 2))
    with on_an_h100(monkeypatch), assumed(GPU):
        traced = jax.jit(gradients).trace(*inputs(*[jnp.bfloat16] * 3), jax.random.key(1))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "__gpu$xla.gpu.triton" in text


@TRITON_IS_LEAVING
def test_an_encoder_is_too(monkeypatch, float64):
    """Nyström's, which has most kernels: of embeddings, blocks, landmarks, inverse, convolution."""
    sizes = {"vocab_size": 20, "length": 64, "num_layers": 1, "dim": 32, "mlp_dim": 32}
    sizes |= {"num_heads": 2, "head_dim": 16, "dropout": 0.1, "positions": "learned"}
    encoder = Encoder(
        **sizes,
        remat=False,
        attention={"name": "nystrom", "num_landmarks": 16},
        dtype=jnp.bfloat16,
        rngs=nnx.Rngs(0),
    )
    graph, state = nnx.split(encoder)
    assert {x.dtype for x in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    ids, mask = jnp.zeros((2, 64), jnp.int32), inputs(jnp.bfloat16)[-1]

    def loss(state, key):
        return jnp.sum(nnx.merge(graph, state)(ids, mask, key).astype(jnp.float32))

    with on_an_h100(monkeypatch), assumed(GPU):
        traced = jax.jit(jax.grad(loss)).trace(state, jax.random.key(1))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    # 4 of the block, 2 times 3 of attention, 2 of the inverse and of the convolution, 1 embeddings'
    assert len(re.findall(r"custom_call @__gpu\$xla.gpu.triton", text)) == 15


@pytest.mark.parametrize("name", ["standard", "performer"])
def test_inputs_of_several_formats_take_no_kernel(name):
    arrays = inputs(jnp.bfloat16, jnp.bfloat16, jnp.float32)
    run = functools.partial(total, *build(name), *arrays, jax.random.key(1))
    with assumed(GPU):
        found = run()
    with assumed(Machine("gpu")):
        np.testing.assert_array_equal(found, run())


class Device:
    def __init__(self, version="cuda 13", capability="9.0"):
        self.client = self
        self.platform_version, self.compute_capability = version, capability


@pytest.mark.parametrize(
    ("device", "count", "switch", "expected"),
    [
        (Device(), 1, None, True),
        (Device(), 1, "on", True),
        (Device(), 1, "off", False),
        (Device(), 2, None, False),
        (Device(capability="8.0"), 1, None, True),
        (Device(capability="8.9"), 1, None, False),
        (Device(version="rocm"), 1, None, False),
    ],
)
def test_where_kernels_run(device, count, switch, expected, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: count)
    if switch:
        monkeypatch.setenv("LRA_KERNELS", switch)
    assert machine._runs_kernels(device) == expected


def test_another_value_of_the_switch_is_refused(monkeypatch):
    monkeypatch.setenv("LRA_KERNELS", "0")
    with pytest.raises(ValueError, match="LRA_KERNELS=0: it can be on or off"):
        machine._runs_kernels(Device())


def test_which_heads_are_preferred():
    takes = functools.partial(kernel_choice.preferred_for_heads, machine=GPU)
    assert takes(jnp.bfloat16, 16)
    assert takes(jnp.bfloat16, 64)
    assert not takes(jnp.bfloat16, 8)
    assert not takes(jnp.bfloat16, 48)
    assert not takes(jnp.bfloat16, 128)
    assert not takes(jnp.float32, 32)
    assert not kernel_choice.preferred_for_heads(jnp.bfloat16, 32, Machine("gpu", has_cudnn=True))
