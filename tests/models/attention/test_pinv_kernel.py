"""The kernels of the iteration, interpreted, against the plain form; lowered for a GPU."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import kernel_choice
from models.attention.nystrom import iterative_pinv
from models.attention.pinv_kernel import iterate
from models.machine import Machine, assumed, this_machine
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

GPU = Machine("gpu", runs_kernels=True, inverts=True)


def matrices(size, number=3):
    scores = 2 * jax.random.normal(jax.random.key(0), (number, 2, size, size))
    return jax.nn.softmax(scores, axis=-1), jax.random.normal(jax.random.key(1), scores.shape)


def with_gradient(function, a, g):
    out, gradient = jax.vjp(function, a)
    return out, *gradient(g)


@pytest.fixture
def interpreted(monkeypatch):
    """On a machine that is taken for a GPU, the kernels are interpreted."""
    monkeypatch.setattr(
        "models.attention.pinv_kernel.iterate",
        lambda a, z, iterations: iterate(a, z, iterations, True),
    )
    with assumed(GPU):
        yield


@pytest.mark.parametrize("iterations", [1, 6])
def test_equals_the_plain_form(iterations, interpreted):
    pinv = functools.partial(iterative_pinv, iterations=iterations)
    found = with_gradient(pinv, *matrices(16))
    with assumed(Machine("gpu")):
        expected = with_gradient(pinv, *matrices(16))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.abs(y).max())


def test_no_iteration_is_the_starting_point(interpreted):
    a, _ = matrices(16)
    starts = iterative_pinv(a, 0)
    with assumed(Machine("gpu")):
        np.testing.assert_array_equal(starts, iterative_pinv(a, 0))


def test_seeds_are_mapped(interpreted):
    a, g = matrices(16, number=4)
    run = functools.partial(with_gradient, functools.partial(iterative_pinv, iterations=2))
    found = jax.vmap(run)(a.reshape(2, 2, 2, 16, 16), g.reshape(2, 2, 2, 16, 16))
    for x, y in zip(found, run(a, g), strict=True):
        np.testing.assert_allclose(x.reshape(y.shape), y, rtol=0, atol=1e-6 * np.abs(y).max())


@TRITON_IS_LEAVING
def test_two_kernels_whatever_the_number_of_seeds(monkeypatch):
    def gradient(a, g):
        return with_gradient(functools.partial(iterative_pinv, iterations=6), a, g)

    x = jax.ShapeDtypeStruct((3, 4, 2, 64, 64), jnp.float32)
    with on_an_h100(monkeypatch), assumed(GPU):
        lowered = jax.jit(jax.vmap(gradient)).trace(x, x).lower(lowering_platforms=("cuda",))
    calls = re.findall(r"custom_call @__gpu\$xla.gpu.triton", lowered.as_text())
    assert len(calls) == 2


def test_which_matrices_it_takes():
    takes = functools.partial(kernel_choice.preferred_for_matrices, machine=GPU)
    assert takes(64, jnp.float32)
    assert takes(16, jnp.float32)
    assert not takes(48, jnp.float32)
    assert not takes(8, jnp.float32)
    assert not takes(128, jnp.float32)
    assert not takes(64, jnp.float64)
    assert not kernel_choice.preferred_for_matrices(
        64, jnp.float32, GPU._replace(runs_kernels=False)
    )
    assert not kernel_choice.preferred_for_matrices(64, jnp.float32, GPU._replace(inverts=False))


def test_products_in_parts_are_as_good_as_those_of_float32(interpreted):
    assert_as_good_as_float32()


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
def test_on_a_gpu():
    assert this_machine().runs_kernels
    assert_as_good_as_float32()


def assert_as_good_as_float32():
    """Inverse and gradient on this machine, to a few roundings."""
    pinv = functools.partial(iterative_pinv, iterations=6)
    a, g = matrices(64)

    def run(a, g):  # compiled anew for each machine
        results = jax.jit(lambda a, g: with_gradient(pinv, a, g))(a, g)
        return [np.asarray(x, np.float64) for x in results]

    found = run(a, g)
    with assumed(Machine("gpu")):
        plain = run(a, g)
        with jax.enable_x64(True):
            expected = run(a.astype(jnp.float64), g.astype(jnp.float64))
    for x, y, z in zip(found, plain, expected, strict=True):
        error, usual = np.linalg.norm(x - z), np.linalg.norm(y - z)
        assert error < 4 * usual + 1e-6 * np.linalg.norm(z)
