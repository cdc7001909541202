"""Inputs, golden and random, and comparisons of outputs and gradients.

Golden arrays are what reference implementations returned on fixed inputs, in float64.
"""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from models.machine import this_machine

_FOLDER = Path(__file__).parents[2] / "golden"
_TOLERANCE = 1e-9


def load(name):
    """`tests/golden/NAME.npz` by key, as stored: [batch, heads, length, head_dim]."""
    with np.load(_FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def load_inputs():
    """The fixed inputs; q, k, v, g in the project's order [batch, length, heads, head_dim]."""
    arrays = {name: jnp.asarray(array) for name, array in load("inputs").items()}
    return arrays | {name: jnp.swapaxes(arrays[name], 1, 2) for name in "qkvg"}


def random_inputs(length, dtype=jnp.float64, *, heads=2, head_dim=8, seed=0):
    """q, k, v and a gradient of the output, for four sequences."""
    draws = np.random.default_rng(seed).normal(size=(4, 4, length, heads, head_dim))
    q, k, v, g = (jnp.asarray(x, dtype) for x in draws)
    return 2 * q, k, v, g


def masks(length):
    """Of four sequences: full, prefix, with holes, none."""
    positions = np.arange(length)
    holes = np.random.default_rng(0).random(length) < 0.5
    return jnp.asarray(np.stack([positions >= 0, positions < length // 3, holes, positions < 0]))


def out_and_gradients(attend, q, k, v, g):
    """attend(q, k, v) and the gradients of sum(attend(q, k, v) * g) by q, k and v, compiled.

    Compiled once for calls with the same function on the same (assumed) machine.
    """
    return _run(attend, this_machine(), q, k, v, g)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(attend, machine, q, k, v, g):
    out, gradient = jax.vjp(attend, q, k, v)
    return out, *gradient(g)


def of_two_seeds(draw):
    """The arrays of `draw(seed=1)` and `draw(seed=2)`, stacked."""
    return [jnp.stack(x) for x in zip(draw(seed=1), draw(seed=2), strict=True)]


def assert_trains_like(attend, plain, of_seeds, arrays, same):
    """Compiled as in training, `attend(of_seed, q, k, v)` has the gradients of `plain`.

    Two seeds at once, remat, and a loop over steps whose number is not known to the compiler; q,
    k, v and the output's gradient, `arrays`, and `of_seeds` have an axis of seeds in front.
    `same(found, expected)` compares the gradients of one seed.
    """

    def gradients(attend, of_seed, *arrays):
        return out_and_gradients(functools.partial(attend, of_seed), *arrays)[1:]

    @jax.jit
    def loop(steps, *mapped):
        def step(_, total):
            found = jax.vmap(functools.partial(gradients, jax.checkpoint(attend)))(*mapped)
            return jax.tree.map(jnp.add, total, found)

        return jax.lax.fori_loop(0, steps, step, tuple(map(jnp.zeros_like, arrays[:3])))

    total = loop(2, of_seeds, *arrays)
    for i, of_seed in enumerate(of_seeds):
        same([x[i] / 2 for x in total], gradients(plain, of_seed, *(x[i] for x in arrays)))


def assert_values_and_gradients(attend, inputs, expected, name):
    """attend(q, k, v) and the gradients of sum(attend(q, k, v) * g) are those stored."""
    found = out_and_gradients(attend, *(inputs[name] for name in "qkvg"))
    found = dict(zip(("", "_dq", "_dk", "_dv"), found, strict=True))
    for suffix, array in found.items():
        assert_close(array, expected[name + suffix].swapaxes(1, 2))


def assert_same(found, expected):
    """Equal arrays, but for rounding in float64."""
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def assert_rounded(found, expected, roundings):
    """bfloat16 arrays that differ from float32 ones by half a unit of 8 bits for each rounding."""
    for x, y in zip(found, expected, strict=True):
        error = np.asarray(x, np.float32) - np.asarray(y)
        assert np.linalg.norm(error) < roundings * 2**-9 * np.linalg.norm(y)


def assert_close(array, expected):
    """Equal to 1e-9, relative and absolute: float64 through another order of summation."""
    np.testing.assert_allclose(array, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
