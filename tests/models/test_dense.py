"""Linear layers and their products against `@` and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.dense import Linear, kernel_einsum, times_kernel


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_values_and_gradients(shape):
    keys = jax.random.split(jax.random.key(0), 3)
    with jax.enable_x64(True):
        x = jax.random.normal(keys[0], (*shape, 4), jnp.float64)
        kernel = jax.random.normal(keys[1], (4, 6), jnp.float64)
        g = jax.random.normal(keys[2], (*shape, 6), jnp.float64)
        found, found_vjp = jax.vjp(times_kernel, x, kernel)
        expected, expected_vjp = jax.vjp(jnp.matmul, x, kernel)
        for a, b in zip((found, *found_vjp(g)), (expected, *expected_vjp(g)), strict=True):
            assert a.dtype == jnp.float64
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("subscripts", ["hml,blhd->bmhd", "wio,bmwhi->bmho", "hti,bcihd->bcthd"])
def test_kernel_einsum_is_einsum(subscripts):
    sizes = dict(zip("abcdhilmotw", (2, 3, 2, 4, 2, 5, 7, 3, 6, 5, 3), strict=True))
    inputs, out = subscripts.split("->")
    shapes = [[sizes[axis] for axis in axes] for axes in (*inputs.split(","), out)]
    keys = jax.random.split(jax.random.key(0), 3)
    with jax.enable_x64(True):
        kernel, x, g = (
            jax.random.normal(key, shape, jnp.float64)
            for key, shape in zip(keys, shapes, strict=True)
        )
        found, found_vjp = jax.vjp(lambda *both: kernel_einsum(subscripts, *both), kernel, x)
        expected, expected_vjp = jax.vjp(lambda *both: jnp.einsum(subscripts, *both), kernel, x)
        for a, b in zip((found, *found_vjp(g)), (expected, *expected_vjp(g)), strict=True):
            assert a.dtype == jnp.float64
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_kernels_keep_their_format():
    kernel, x = jnp.ones((4, 6)), jnp.ones((8, 4), jnp.bfloat16)
    out, vjp = jax.vjp(times_kernel, x, kernel)
    assert out.dtype == jnp.bfloat16
    assert [d.dtype for d in vjp(out)] == [jnp.bfloat16, jnp.float32]
    out, vjp = jax.vjp(lambda *both: kernel_einsum("io,li->lo", *both), kernel, x)
    assert out.dtype == jnp.float32
    assert [d.dtype for d in vjp(out)] == [jnp.float32, jnp.bfloat16]


def test_the_kernel_s_gradient_is_not_transposed():
    """XLA would make a product of two transposed matrices of it, slow on a CPU."""
    x, kernel = jnp.ones((2, 8, 4)), jnp.ones((4, 6))

    def loss(kernel, x):
        return jnp.sum(times_kernel(x, kernel))

    assert "transpose[" not in str(jax.make_jaxpr(jax.grad(loss))(kernel, x))


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_flax_s(bias):
    x = jax.random.normal(jax.random.key(0), (2, 5, 4))
    layer = Linear(4, 6, bias=bias, dtype=jnp.float32, rngs=nnx.Rngs(1))
    same = nnx.Linear(4, 6, use_bias=bias, dtype=jnp.float32, rngs=nnx.Rngs(2))
    nnx.update(same, nnx.state(layer))
    np.testing.assert_allclose(layer(x), same(x), atol=1e-6)


def test_linear_layers_start_as_those_of_pytorch():
    layer = Linear(100, 2_000, dtype=jnp.float32, rngs=nnx.Rngs(0))
    for values in (layer.kernel[...], layer.bias[...]):
        assert np.abs(values).max() <= 0.1
        np.testing.assert_allclose(np.std(values), 0.1 / 3**0.5, rtol=0.05)


def test_a_bias_has_its_gradient_in_bfloat16_too():
    x = jnp.zeros((64, 256, 4), jnp.bfloat16)
    g = jax.random.uniform(jax.random.key(0), (64, 256, 6)).astype(jnp.bfloat16)
    layer = Linear(4, 6, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(layer)

    def run(state):
        return nnx.merge(graphdef, state)(x)

    out, vjp = jax.vjp(run, state)
    assert out.dtype == jnp.bfloat16
    (gradient,) = vjp(g)
    expected = np.asarray(g, np.float64).sum((0, 1))
    np.testing.assert_allclose(gradient["bias"][...], expected, rtol=1e-5)


def test_a_bias_is_added_in_float32():
    layer = Linear(1, 1, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    layer.kernel[...] = -jnp.ones((1, 1))
    layer.bias[...] = jnp.full((1,), 1 + 2.0**-9)  # 1 in bfloat16
    assert layer(jnp.ones((1, 1), jnp.bfloat16)) == 2.0**-9


def test_a_kernel_s_gradient_is_not_rounded():
    x, kernel = jnp.array([[1.0], [2.0**-9]], jnp.bfloat16), jnp.ones((1, 1))
    _, vjp = jax.vjp(times_kernel, x, kernel)
    assert vjp(jnp.ones((2, 1), jnp.bfloat16))[1] == 1 + 2.0**-9
    _, vjp = jax.vjp(lambda kernel, x: kernel_einsum("io,bi->bo", kernel, x), kernel, x)
    assert vjp(jnp.ones((2, 1)))[0] == 1 + 2.0**-9
