"""The convolution's kernels, interpreted, against the plain form; lowered for a GPU."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import convolution_kernels
from models.attention.convolution import depthwise_convolution, three_blocks
from models.attention.convolution_kernels import convolve
from models.kernel_choice import preferred_for_convolution
from models.machine import Machine, assumed, this_machine
from tests.models.attention.arrays import assert_rounded, out_and_gradients
from tests.suites import slow_but
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

GPU = Machine("gpu", runs_kernels=True)


def inputs(length, width, dtype=jnp.float32, head_dim=16):
    x, g = np.random.default_rng(0).normal(size=(2, 2, length, 3, head_dim))
    kernel = np.random.default_rng(1).normal(size=(3, width))
    return jnp.asarray(x, dtype), jnp.asarray(kernel, jnp.float32), jnp.asarray(g, dtype)


def gradients(convolution, x, kernel, g):
    def apply(x, kernel, _):
        return convolution(x, kernel)

    return out_and_gradients(apply, x, kernel, 0.0, g)[:3]


def interpreted(x, kernel):
    return convolve(x, three_blocks(kernel), True)


# Less than a block, whole blocks, more than a program's and a part; odd, even and the widest.
# Whatever the width, the program's parts are the same: not each with each.
TELLING = ((20, 35), (20, 128), (128, 1), (300, 4), (300, 128))


@pytest.mark.parametrize(
    ("length", "width"),
    slow_but(TELLING, itertools.product([20, 128, 300], [1, 4, 35, 128])),
)
def test_equals_the_plain_form(length, width, monkeypatch):
    monkeypatch.setattr(convolution_kernels, "_GROUP", 2)
    arrays = inputs(length, width)
    found, expected = (gradients(f, *arrays) for f in (interpreted, depthwise_convolution))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2**-20 * np.abs(b).max())


def test_a_kernel_that_reaches_beyond_the_next_block_is_refused():
    np.testing.assert_array_equal(np.sum(three_blocks(jnp.ones((1, 129))), axis=(1, 3)), 129)
    with pytest.raises(
        ValueError, match="a kernel of width 130 reaches beyond the next block of 64"
    ):
        three_blocks(jnp.ones((1, 130)))


def test_bfloat16_is_rounded_once():
    arrays = inputs(300, 35, jnp.bfloat16)
    found = gradients(interpreted, *arrays)
    assert [x.dtype.name for x in found] == ["bfloat16", "bfloat16", "float32"]
    x, kernel, g = (y.astype(jnp.float32) for y in arrays)
    kernel = kernel.astype(jnp.bfloat16).astype(jnp.float32)  # as products take it
    assert_rounded(found, gradients(depthwise_convolution, x, kernel, g), roundings=1)


def test_seeds_are_mapped():
    x, kernel, g = inputs(100, 5)
    two = jnp.stack([kernel, 2 * kernel])
    found = jax.vmap(lambda kernel: gradients(interpreted, x, kernel, g))(two)
    for seed in range(2):
        for a, b in zip(found, gradients(interpreted, x, two[seed], g), strict=True):
            np.testing.assert_allclose(a[seed], b, rtol=1e-5, atol=1e-4)


@TRITON_IS_LEAVING
def test_two_kernels_on_a_gpu(monkeypatch):
    run = functools.partial(gradients, depthwise_convolution)
    with on_an_h100(monkeypatch), assumed(GPU):
        traced = jax.jit(run).trace(*inputs(300, 35, jnp.bfloat16))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall(r"custom_call @__gpu\$xla.gpu.triton", text)) == 2


def test_which_it_takes():
    assert preferred_for_convolution(jnp.bfloat16, 32, 128, GPU)
    assert not preferred_for_convolution(jnp.bfloat16, 32, 129, GPU)
    assert not preferred_for_convolution(jnp.float32, 32, 35, GPU)
    assert not preferred_for_convolution(jnp.bfloat16, 128, 35, GPU)
    assert not preferred_for_convolution(jnp.bfloat16, 32, 35, Machine("gpu"))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("head_dim", [16, 32, 64])
def test_on_a_gpu(head_dim):
    assert this_machine().runs_kernels
    arrays = inputs(300, 35, jnp.bfloat16, head_dim)
    found = jax.jit(functools.partial(gradients, depthwise_convolution))(*arrays)
    x, kernel, g = (y.astype(jnp.float32) for y in arrays)
    kernel = kernel.astype(jnp.bfloat16).astype(jnp.float32)
    with assumed(Machine("gpu")), jax.default_matmul_precision("float32"):
        expected = jax.jit(functools.partial(gradients, depthwise_convolution))(x, kernel, g)
    assert_rounded(found, expected, roundings=1)
