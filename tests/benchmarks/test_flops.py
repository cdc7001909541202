"""Products are counted once for each time they are computed."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.flops import product_flops
from models.attention.chunked import Blocks
from models.attention.cudnn import prefix_attention
from models.attention.flash import flash_attention
from models.attention.linformer import linformer_attention
from models.attention.standard import standard_attention
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


@pytest.mark.parametrize("seeds", [1, 3])
def test_kernels_count_for_each_of_their_programs(seeds):
    """Blocks of scores are computed again in both of the kernels of the backward pass."""
    x = jnp.ones((seeds, 2, 32, 2, 16))
    mask, blocks = jnp.ones((2, 32), bool), Blocks(16, 8)

    def total(q, k, v):
        return jnp.sum(flash_attention(q, k, v, mask, blocks=blocks, interpret=True))

    one = seeds * (2 * 2 * 2 * 32 * 32 * 16)
    assert product_flops(jax.vmap(total), x, x, x) == 2 * one
    assert product_flops(jax.vmap(jax.grad(total, argnums=(0, 1, 2))), x, x, x) == (2 + 4 + 3) * one


@pytest.mark.parametrize("length", [1024, 8192])  # less than a block of positions, or two
def test_linformer_projects_once_on_whichever_platform(length):
    heads, head_dim, projected = 2, 32, 128
    x = jnp.ones((1, length, heads, head_dim))
    mask, e = jnp.ones((1, length), bool), jnp.ones((1, projected, length))
    flops = product_flops(linformer_attention, x, x, x, mask, e)
    # Of keys, of values, of scores and of what they weigh.
    assert flops == 4 * (2 * length * projected * heads * head_dim)
