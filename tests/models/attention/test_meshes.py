"""Attentions on meshes that others made: explicit axes, which are JAX's default, and shard_map."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from models.attention import make
from tests.attention_cases import SMALL

LENGTH, HEADS, HEAD_DIM = 21, 2, 8
BY_DATA = PartitionSpec("data")


def on_explicit_axes(attend):
    return jax.sharding.auto_axes(attend, out_sharding=BY_DATA)


def in_shard_map(attend):
    return jax.shard_map(attend, in_specs=BY_DATA, out_specs=BY_DATA, check_vma=False)


EXPLICIT = on_explicit_axes, AxisType.Explicit
QUICK = ("standard", "nystrom", "reformer")
slow = pytest.mark.slow


def gradients(attend, inputs):
    def loss(*inputs):
        return jnp.sum(attend(*inputs) ** 2)

    return jax.jit(jax.grad(loss, (0, 1, 2)))(*inputs)


@functools.cache
def alone(name):
    """An attention, inputs, and their gradients on one device."""
    module = make(
        name,
        length=LENGTH,
        heads=HEADS,
        head_dim=HEAD_DIM,
        rngs=nnx.Rngs(params=0, attention=1),
        **SMALL[name].options,
    )
    q, k, v = jax.random.normal(jax.random.key(0), (3, 4, LENGTH, HEADS, HEAD_DIM))
    mask = jnp.arange(LENGTH)[None] < np.c_[[21, 13, 1, 0]]
    keys = jax.random.split(jax.random.key(1), 4)  # one for each example, as in training
    inputs = q, q if module.shares_qk else k, v, mask, keys

    def attend(q, k, v, mask, keys):
        return module(q, k, v, mask, key=keys)

    return attend, inputs, gradients(attend, inputs)


@pytest.mark.parametrize(
    ("name", "wrapped", "axis_type"),
    [
        pytest.param(name, *mesh, marks=() if mesh is EXPLICIT and name in QUICK else slow)
        for name in SMALL
        for mesh in (EXPLICIT, (in_shard_map, AxisType.Auto))
    ],
)
def test_examples_may_be_divided_among_devices(name, wrapped, axis_type):
    attend, inputs, expected = alone(name)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(axis_type,), devices=jax.devices()[:2])
    with jax.set_mesh(mesh):
        placed = jax.device_put(inputs, NamedSharding(mesh, BY_DATA))
        found = gradients(wrapped(attend), placed)
    assert not found[0].sharding.is_fully_replicated
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)  # of sums in another order
