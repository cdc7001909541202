"""What XLA says of the compiled step of each attention; nothing is run."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from models.attention import ATTENTIONS, make
from tests.attention_cases import SMALL
from tests.suites import slow_but

OPTIONS = {"standard": {"implementation": "chunked"}}  # the other one is quadratic


@functools.cache
def compiled(name, length, dtype=jnp.float32):
    return lowered(name, length, dtype).compile()


def lowered(name, length, dtype=jnp.float32):
    """Forward and backward of one layer on one sequence, in training."""
    rngs = nnx.Rngs(params=0, attention=1)
    options = OPTIONS.get(name, {})
    attention = make(name, length=length, heads=2, head_dim=32, rngs=rngs, **options)
    graph, arrays = nnx.split(attention)

    def loss(arrays, q, k, v, mask, g, key):
        return jnp.sum(nnx.merge(graph, arrays)(q, k, v, mask, key=key).astype(g.dtype) * g)

    x = jax.ShapeDtypeStruct((1, length, 2, 32), dtype)
    g = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    mask = jax.ShapeDtypeStruct((1, length), jnp.bool_)
    key = jax.eval_shape(lambda: jax.random.key(0))
    step = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), allow_int=True))
    return step.lower(arrays, x, x, x, mask, g, key)


@pytest.mark.parametrize(
    "name",
    slow_but(
        ("standard", "nystrom", "performer"),
        [name for name, case in SMALL.items() if case.linear_memory],
    ),
)
def test_memory_is_linear_in_the_length(name):
    short, long = (
        compiled(name, length).memory_analysis().temp_size_in_bytes for length in (8192, 32_768)
    )
    assert long < 4.4 * short
    assert long < 32_768 * 32_768 * 4 / 20, "a twentieth of the scores of one head"


@pytest.mark.parametrize("name", ATTENTIONS)
def test_no_array_is_float64(name):
    with jax.enable_x64(True):
        text = lowered(name, 512).as_text()
    assert "xf32>" in text
    assert "xf64>" not in text


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of XLA's CPU backend")
@pytest.mark.parametrize("name", ["nystrom", "linear"])
def test_no_loop_converts_a_whole_sequence_of_bfloat16_to_write_a_block(name):
    text = compiled(name, 8192, jnp.bfloat16).as_text()
    assert re.search(r"u16\[1,8192,2,32\]\S* dynamic-update-slice", text)
    assert not re.search(r"f32\[1,8192,2,32\]\S* dynamic-update-slice", text)


# With JAX 0.10 loops over bfloat16 itself would hold 5.2, 3.5 and 3.9 more.
@pytest.mark.parametrize(("name", "most"), [("standard", 2.6), ("nystrom", 1.6), ("linear", 1.6)])
def test_bfloat16_adds_few_copies_of_a_sequence_in_float32(name, most):
    wide, narrow = (
        compiled(name, 8192, dtype).memory_analysis().temp_size_in_bytes
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    sequence = 8192 * 2 * 32 * 4
    assert narrow - wide < most * sequence
