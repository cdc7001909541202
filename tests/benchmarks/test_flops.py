"""Products are counted once for each time they are computed."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from benchmarks.flops import product_flops
from models.attention import make
from models.attention.blocks import Blocks
from models.attention.chunked import chunked_attention
from models.attention.cudnn import prefix_attention
from models.attention.linformer import linformer_attention
from models.attention.standard import standard_attention
from models.machine import Machine, assumed
from tests.cudnn_driver import without_driver


def test_of_the_branches_of_a_condition_the_largest_counts():
    def either(number, a, b):
        branches = (lambda a, b: a @ b, lambda a, b: a @ b @ b, lambda a, b: a)
        return jax.lax.switch(number, branches, a, b)

    a, b = jnp.ones((8, 16)), jnp.ones((16, 16))
    assert product_flops(either, 0, a, b) == 2 * (2 * 8 * 16 * 16)


@pytest.mark.parametrize("mode", ["forward", "forward_backward"])
def test_cudnn_counts_as_exact_attention_does(mode, monkeypatch):
    without_driver(monkeypatch)
    x = jnp.ones((2, 16, 2, 8), jnp.bfloat16)
    mask = jnp.ones((2, 16), bool)

    def count(attention):
        def total(q, k, v):
            return jnp.sum(attention(q, k, v))

        function = total if mode == "forward" else jax.grad(total, argnums=(0, 1, 2))
        return product_flops(function, x, x, x)

    fused = count(lambda q, k, v: prefix_attention(q, k, v, mask, implementation="cudnn"))
    assert fused == count(lambda q, k, v: standard_attention(q, k, v, mask))
    assert fused == (2 if mode == "forward" else 6) * (2 * 2 * 2 * 16 * 16 * 8)


@pytest.mark.parametrize("name", ["standard", "nystrom", "linformer", "performer", "reformer"])
def test_a_machine_with_kernels_counts_the_plain_form(name):
    options = {
        "reformer": {"chunk_length": 16},
        "nystrom": {"num_landmarks": 16},
        "linformer": {"proj_dim": 16},
    }
    sizes = {"length": 64, "heads": 2, "head_dim": 16}
    graph, state = nnx.split(make(name=name, **sizes, **options.get(name, {}), rngs=nnx.Rngs(0)))
    x, mask = jnp.ones((2, 64, 2, 16), jnp.bfloat16), jnp.ones((2, 64), bool)

    def total(state, x):
        key = jax.random.key(0)
        return jnp.sum(nnx.merge(graph, state)(x, x, x, mask, key=key).astype(jnp.float32))

    def count(machine):
        with assumed(machine):
            return product_flops(jax.grad(total, argnums=1), state, x)

    assert count(Machine("gpu", runs_kernels=True, inverts=True)) == count(Machine("gpu")) > 0


def test_a_function_that_was_traced_outside_is_traced_again():
    """Its first trace is of a kernel, or of loops without a set number of turns."""
    x, mask = jnp.ones((2, 64, 2, 16), jnp.bfloat16), jnp.ones((2, 64), bool)

    def function(x, mask):
        return chunked_attention(x, x, x, mask, blocks=Blocks(16, 16))

    jax.jit(function).trace(x, mask)
    assert product_flops(function, x, mask) == 2 * (2 * 2 * 2 * 64 * 64 * 16)


def test_exact_attention_by_its_kernel_counts_as_the_plain_form():
    x, mask = jnp.ones((2, 32, 2, 16), jnp.bfloat16), jnp.ones((2, 32), bool)
    sizes = {"length": 32, "heads": 2, "head_dim": 16}
    module = make(name="standard", **sizes, implementation="flash", rngs=nnx.Rngs(0))
    count = product_flops(lambda q, k, v: module(q, k, v, mask), x, x, x)
    assert count == 2 * (2 * 2 * 2 * 32 * 32 * 16)


@pytest.mark.parametrize("length", [1024, 8192])  # less than a block of positions, or two
def test_linformer_projects_once_on_whichever_platform(length):
    heads, head_dim, projected = 2, 32, 128
    x = jnp.ones((1, length, heads, head_dim))
    mask, e = jnp.ones((1, length), bool), jnp.ones((1, projected, length))
    flops = product_flops(linformer_attention, x, x, x, mask, e)
    # Of keys, of values, of scores and of what they weigh.
    assert flops == 4 * (2 * length * projected * heads * head_dim)
