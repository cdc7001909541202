"""Attention to and from few positions: where cuDNN does it, and that it may."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import cudnn, flash, make
from models.attention.chunked import chunked_attention
from models.attention.low_rank import low_rank_attention
from models.attention.machine import Machine, assumed, this_machine
from models.attention.nystrom import nystrom_attention
from tests.cudnn_driver import without_driver
from tests.models.attention.arrays import assert_rounded, out_and_gradients
from tests.triton_lowering import TRITON_IS_LEAVING

AMPERE = Machine("gpu", has_cudnn=True)
MASK = np.random.default_rng(1).random((3, 24)) < 0.7
BF16 = jnp.bfloat16


def normal(*shape, dtype=jnp.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


@pytest.fixture
def by_cudnn(monkeypatch):
    """A machine with cuDNN, by JAX's own softmax in the kernel's place, which mixes formats."""

    def stand_in(*arrays):
        assert {x.dtype for x in arrays[:3]} == {jnp.dtype(BF16)}
        return cudnn.prefix_attention(*arrays, implementation="xla")

    monkeypatch.setattr(cudnn, "cudnn_attention", stand_in)
    with assumed(AMPERE), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linformer", {"proj_dim": 5, "share": ()}),
        ("linformer", {"proj_dim": 5, "share": (), "projection": "mean_pool"}),
        ("nystrom", {"num_landmarks": 5}),
    ],
)
@pytest.mark.parametrize(("dtype", "reached"), [(BF16, True), (jnp.float32, False)])
def test_a_gpu_attends_by_cudnn_in_16_bits(name, options, dtype, reached, monkeypatch):
    """Lowered for a GPU on any machine."""
    without_driver(monkeypatch)
    attention = make(name, length=12, heads=2, head_dim=8, rngs=nnx.Rngs(0), **options)
    graphdef, state = nnx.split(attention)
    x = jnp.ones((3, 12, 2, 8), dtype)

    def loss(state, x):
        return jnp.sum(nnx.merge(graphdef, state)(x, x, x, jnp.ones((3, 12), bool)))

    with assumed(AMPERE):
        traced = jax.jit(jax.grad(loss, argnums=(0, 1), allow_int=True)).trace(state, x)
        lowered = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert ("__cudnn$fmhaSoftmaxBackward(" in lowered) == reached


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(
    ("queries", "keys"), [((24, BF16), (6, jnp.float32)), ((6, jnp.float32), (24, BF16))]
)
def test_the_few_may_be_wider_than_the_sequence(queries, keys, masked, by_cudnn):
    (num_queries, q_dtype), (num_keys, k_dtype) = queries, keys
    q = normal(3, num_queries, 2, 8, dtype=q_dtype)
    k, v = normal(2, 3, num_keys, 2, 8, dtype=k_dtype, seed=1)
    g = normal(3, num_queries, 2, 8, dtype=q_dtype, seed=2)
    mask = jnp.asarray(MASK[:, :num_keys]) if masked else None

    found = out_and_gradients(lambda *qkv: low_rank_attention(*qkv, mask), q, k, v, g)
    assert [x.dtype for x in found] == [x.dtype for x in (q, q, k, v)]

    def in_float32(*qkv):
        return chunked_attention(*qkv, jnp.ones(k.shape[:2], bool) if mask is None else mask)

    expected = out_and_gradients(in_float32, *(x.astype(jnp.float32) for x in (q, k, v, g)))
    # The inputs that are wider, weights, their gradients, and the result.
    assert_rounded(found, expected, roundings=4)


def test_what_masked_queries_hold_reaches_no_gradient(by_cudnn):
    q, k, v = normal(3, 24, 2, 8), normal(3, 6, 2, 8, seed=1), normal(3, 6, 2, 8, seed=2)
    q, k, v = (x.astype(BF16) for x in (q, k, v))
    real = jnp.asarray(MASK)[:, :, None, None]

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1, 2))
    def gradients(q, k, v):
        out = low_rank_attention(q, k, v, query_mask=jnp.asarray(MASK))
        return jnp.sum(jnp.where(real, out, 0).astype(jnp.float32))

    filled = gradients(jnp.where(real, q, jnp.nan), k, v)
    for one, other in zip(filled, gradients(q, k, v), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scale", [0.5, 1, 2])
def test_nystrom_loses_to_16_bits_no_more_than_its_inputs_do(scale, by_cudnn):
    """The inverse enlarges what rounding the factors changes; this bounds how much remains."""
    q, k, v = (
        scale * normal(2, 256, 2, 32),
        scale * normal(2, 256, 2, 32, seed=1),
        normal(2, 256, 2, 32, seed=2),
    )
    mask = jnp.ones((2, 256), bool)

    @jax.jit
    def attend(q, k, v):
        return nystrom_attention(q, k, v, mask, num_landmarks=32)

    rounded = [x.astype(BF16) for x in (q, k, v)]
    exact = attend(q, k, v)
    by_inputs = np.linalg.norm(attend(*(x.astype(jnp.float32) for x in rounded)) - exact)
    by_all = np.linalg.norm(attend(*rounded).astype(jnp.float32) - exact)
    result = 2**-9 * np.linalg.norm(exact)
    assert by_all < 2 * by_inputs + result


@TRITON_IS_LEAVING
@pytest.mark.parametrize("head_dim", [8, 32], ids=["by cuDNN", "by flash"])
def test_on_a_gpu(head_dim):
    if not this_machine().has_cudnn:
        pytest.skip("the kernels need a GPU")
    mask = jnp.asarray(np.random.default_rng(4).random((3, 64)) < 0.7)
    arrays = [normal(3, 64, 2, head_dim, seed=seed) for seed in range(4)]

    def run(dtype):
        def attend(*qkv):
            return nystrom_attention(*qkv, mask, num_landmarks=16)

        results = out_and_gradients(attend, *(x.astype(BF16).astype(dtype) for x in arrays))
        return [np.asarray(x, np.float32) for x in results]

    found = run(BF16)
    with assumed(Machine("gpu")), jax.default_matmul_precision("float32"):
        plain, expected = run(BF16), run(jnp.float32)
    for x, y, z in zip(found, plain, expected, strict=True):
        assert np.linalg.norm(x - z) < 2 * np.linalg.norm(y - z) + 2**-7 * np.linalg.norm(z)


@pytest.mark.parametrize(("queries", "keys"), [(5, 40), (40, 5), (40, 16)])
def test_flash_takes_other_numbers_of_queries_than_of_keys(queries, keys, monkeypatch):
    by_flash = functools.partial(flash.flash_attention, interpret=True)
    monkeypatch.setattr(flash, "flash_attention", by_flash)
    q, g = normal(3, queries, 2, 16), normal(3, queries, 2, 16, seed=3)
    k, v = normal(2, 3, keys, 2, 16, seed=1)
    mask = jnp.asarray(np.random.default_rng(4).random((3, keys)) < 0.7)

    def run():
        attend = functools.partial(low_rank_attention, mask=mask)
        return out_and_gradients(lambda *qkv: attend(*qkv), *(x.astype(BF16) for x in (q, k, v, g)))

    with assumed(Machine("gpu", runs_kernels=True)):
        found = run()
    with assumed(Machine("cpu")):
        expected = out_and_gradients(
            functools.partial(chunked_attention, mask=mask),
            *(x.astype(BF16).astype(jnp.float32) for x in (q, k, v, g)),
        )
    assert_rounded(found, expected, roundings=3)
