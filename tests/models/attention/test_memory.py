"""What XLA says of the compiled step of each attention; nothing is run."""

import functools

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models.attention import ATTENTIONS, make

OPTIONS = {"standard": {"implementation": "chunked"}}  # the other one is quadratic


@functools.cache
def compiled(name, length):
    """Forward and backward of one layer on one sequence, in training."""
    rngs = nnx.Rngs(params=0, attention=1)
    options = OPTIONS.get(name, {})
    attention = make(name, length=length, heads=2, head_dim=32, rngs=rngs, **options)
    graph, arrays = nnx.split(attention)

    def loss(arrays, q, k, v, mask, g, key):
        return jnp.sum(nnx.merge(graph, arrays)(q, k, v, mask, key=key) * g)

    x = jax.ShapeDtypeStruct((1, length, 2, 32), jnp.float32)
    mask = jax.ShapeDtypeStruct((1, length), jnp.bool_)
    key = jax.eval_shape(lambda: jax.random.key(0))
    step = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), allow_int=True))
    return step.lower(arrays, x, x, x, mask, x, key).compile()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_memory_is_linear_in_the_length(name):
    short, long = (
        compiled(name, length).memory_analysis().temp_size_in_bytes for length in (8192, 32_768)
    )
    assert long < 4.4 * short
    assert long < 32_768 * 32_768 * 4 / 20, "a twentieth of the scores of one head"


@pytest.mark.parametrize("name", ATTENTIONS)
def test_nothing_is_float64(name):
    text = compiled(name, 8192).as_text()
    assert "f32[" in text
    assert "f64[" not in text
