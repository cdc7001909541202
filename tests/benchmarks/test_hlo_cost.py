"""Bytes that compiled programs move."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.hlo_cost import bytes_of, cost_of, memory_of


def compiled(function, *arguments):
    return jax.jit(function).lower(*arguments).compile()


def test_without_loops_it_is_xlas_own_count():
    def attend(q, k):
        return jax.nn.softmax(q @ k.T, axis=-1) @ k

    program = compiled(jax.grad(lambda q, k: attend(q, k).sum()), *jnp.ones((2, 64, 16)))
    assert bytes_of(program.as_text()) == pytest.approx(
        program.cost_analysis()["bytes accessed"], rel=0.02
    )


@pytest.mark.parametrize("turns", [7, 50])
def test_a_loop_counts_every_turn_and_of_its_arrays_the_slices(turns):
    def total(xs):
        return jax.lax.scan(lambda sum_, x: (sum_ + x @ x, None), jnp.zeros((64, 64)), xs)[0]

    xs = jnp.ones((turns, 64, 64))
    cost = cost_of(compiled(total, xs), total, (xs,))
    assert cost["flops"] >= turns * 2 * 64**3
    matrix = 64 * 64 * 4
    # Each turn at least reads a slice, writes a product, and adds it to the sum.
    assert 5 * matrix * turns <= cost["bytes_accessed"] <= 12 * matrix * (turns + 2)


def test_the_workspace_of_a_library_is_not_moved():
    """A product on a GPU, as XLA writes it, with 32 MB for cuBLAS."""
    arguments = "f32[512,64]{1,0} %a, f32[64,64]{1,0} %b"
    text = f"""
ENTRY %main (a: f32[512,64], b: f32[64,64]) -> f32[512,64] {{
  %a = f32[512,64]{{1,0}} parameter(0)
  %b = f32[64,64]{{1,0}} parameter(1)
  %gemm.0 = (f32[512,64]{{1,0}}, s8[33554432]{{0}}) custom-call({arguments}), \
custom_call_target="__cublas$gemm"
  ROOT %out = f32[512,64]{{1,0}} get-tuple-element(%gemm.0), index=0
}}
"""
    assert bytes_of(text) == 4 * (512 * 64 + 64 * 64 + 512 * 64)


def test_a_loop_of_unknown_turns_tells_nothing():
    def halve(x):
        return jax.lax.while_loop(lambda x: jnp.sum(x) > 1, lambda x: x / 2, x)

    assert bytes_of(compiled(halve, jnp.ones(8)).as_text()) is None


def test_counting_each_loop_once_is_xlas_own_count():
    def powers(x):
        return jax.lax.fori_loop(0, 20, lambda i, x: jnp.tanh(x @ x), x)

    program = compiled(powers, jnp.ones((64, 64)))
    once = re.sub(r'("known_trip_count":{"n":")\d+', r"\g<1>1", program.as_text())
    own = program.cost_analysis()["bytes accessed"]
    np.testing.assert_allclose(bytes_of(once), own, rtol=0.1)
    assert bytes_of(program.as_text()) > 10 * own


def test_a_loop_in_a_loop_counts_every_turn_of_both():
    def turns(number, body):
        return lambda x: jax.lax.fori_loop(0, number, lambda i, x: body(x), x)

    def power(x):
        return jnp.tanh(x @ x)

    nested, flat = (
        bytes_of(compiled(function, jnp.ones((64, 64))).as_text())
        for function in (turns(5, turns(8, power)), turns(40, power))
    )
    assert nested == pytest.approx(flat, rel=0.1)


UPDATED = "f32[512,64]{1,0} %a, f32[1,64]{1,0} %b, s32[] %i"
UPDATE = f"f32[512,64]{{1,0}} dynamic-update-slice({UPDATED}, s32[] %i)"
PARAMETERS = """\
  %a = f32[512,64]{1,0} parameter(0)
  %b = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
"""


@pytest.mark.parametrize(
    ("operation", "index"),
    [
        (UPDATE, 0),
        (f"f32[512,64]{{1,0}} fusion({UPDATED}), kind=kLoop, calls=%fused", 4),
    ],
)
def test_an_update_moves_its_slice_alone(operation, index):
    arguments = "(a: f32[512,64], b: f32[1,64], i: s32[]) -> f32[512,64]"
    text = f"""
%fused {arguments} {{
{PARAMETERS}  ROOT %update = {UPDATE}
}}

ENTRY %main {arguments} {{
{PARAMETERS}  ROOT %out = {operation}
}}
"""
    assert bytes_of(text) == 2 * 4 * 64 + index


def test_the_memory_of_a_donated_array_counts_once():
    x = jnp.ones(1000, jnp.float32)
    kept, donated = (
        memory_of(jax.jit(jnp.negative, donate_argnums=which).lower(x).compile())
        for which in ((), 0)
    )
    assert (kept, donated) == (8000, 4000)
