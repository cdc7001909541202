"""A trace is read back as the operations that took the time."""

import jax
import jax.numpy as jnp

from benchmarks.largest_costs import Cost, largest_costs, table, trace


def test_costs_are_those_of_operations_the_largest_first(tmp_path):
    """Which is the largest is not tested: a busy machine may stop in the middle of any."""
    x = jnp.ones((512, 512))
    # A sort is not fused with a product.
    compiled = jax.jit(lambda x: (x @ x, jnp.sort(x[0]))).lower(x).compile()
    compiled(x)
    trace(tmp_path, lambda: compiled(x))
    costs = largest_costs(tmp_path, compiled.as_text())
    seconds = [cost.seconds for cost in costs]
    assert seconds == sorted(seconds, reverse=True)
    assert min(seconds) > 0
    for operation in ("dot_general", "sort"):
        assert any(operation in cost.source for cost in costs)


def test_a_trace_without_operations_is_said():
    assert table([], 1) == "the trace names no operations"


def test_a_table_shows_shares_per_step():
    costs = [Cost("dot.1", 0.3, "f32[2]", "dot_general"), Cost("add.1", 0.1, "f32[2]", "add")]
    lines = table(costs, steps=2, rows=1).splitlines()
    assert "200.00 ms/step" in lines[0]
    assert lines[1].split() == ["150.00", "ms", "75.0%", "dot.1", "f32[2]", "dot_general"]
    assert len(lines) == 2
