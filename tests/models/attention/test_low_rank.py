"""Attention to and from few positions: where cuDNN or flash does it, and that they may."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import kernel_choice
from models.attention import cudnn, flash, make, pinv_kernel
from models.attention.chunked import chunked_attention
from models.attention.low_rank import low_rank_attention
from models.attention.nystrom import nystrom_attention
from models.machine import Machine, assumed, this_machine
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

    calls = []

    def stand_in(*arrays):
        assert {x.dtype for x in arrays[:3]} == {jnp.dtype(BF16)}
        calls.append(arrays)
        return cudnn.prefix_attention(*arrays, implementation="xla")

    monkeypatch.setattr(cudnn, "cudnn_attention", stand_in)
    with assumed(AMPERE), jax.numpy_dtype_promotion("standard"):
        yield calls


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


@pytest.mark.parametrize(
    "dtypes",
    [(jnp.float16, BF16, BF16), (BF16, BF16, jnp.float32), (jnp.float32, BF16, jnp.float32)],
)
def test_other_mixtures_go_to_blocks(dtypes, by_cudnn):
    q, k, v = (normal(3, 24, 2, 8, dtype=dtype, seed=i) for i, dtype in enumerate(dtypes))
    mask = jnp.asarray(MASK)
    found = low_rank_attention(q, 1e5 * k, v, mask)
    assert not by_cudnn
    np.testing.assert_array_equal(found, chunked_attention(q, 1e5 * k, v, mask))


def assert_masked_queries_reach_no_gradient(q, k, v):
    real = jnp.asarray(MASK)[:, :, None, None]

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1, 2))
    def gradients(q, k, v):
        out = low_rank_attention(q, k, v, query_mask=jnp.asarray(MASK))
        return jnp.sum(jnp.where(real, out, 0).astype(jnp.float32))

    filled = gradients(jnp.where(real, q, jnp.nan), k, v)
    for one, other in zip(filled, gradients(q, k, v), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_masked_queries_hold_reaches_no_gradient(by_cudnn):
    q, k, v = normal(3, 24, 2, 8), normal(3, 6, 2, 8, seed=1), normal(3, 6, 2, 8, seed=2)
    q, k, v = (x.astype(BF16) for x in (q, k, v))
    assert_masked_queries_reach_no_gradient(q, k, v)


@pytest.mark.parametrize(
    "head_dim",
    [pytest.param(8, id="by cuDNN"), pytest.param(16, id="by flash", marks=pytest.mark.slow)],
)
def test_nystrom_is_rounded_little_more_than_in_the_plain_form(head_dim, request, monkeypatch):
    calls = request.getfixturevalue("by_flash" if head_dim == 16 else "by_cudnn")
    invert = functools.partial(pinv_kernel.iterate, interpret=True)
    monkeypatch.setattr(pinv_kernel, "iterate", invert)
    assert_nystrom_is_rounded_little_more(head_dim)
    assert calls


@TRITON_IS_LEAVING
@pytest.mark.parametrize("head_dim", [8, 32], ids=["by cuDNN", "by flash"])
def test_on_a_gpu(head_dim):
    machine = this_machine()
    if not (machine.runs_kernels if head_dim == 32 else machine.has_cudnn):
        pytest.skip("the kernels need a GPU")
    assert_nystrom_is_rounded_little_more(head_dim)


def assert_nystrom_is_rounded_little_more(head_dim):
    """Errors against float32 are little larger on this machine than without kernels."""
    mask = jnp.asarray(np.random.default_rng(4).random((3, 64)) < 0.7)
    q, k, v, g = (normal(3, 64, 2, head_dim, seed=seed) for seed in range(4))
    real = mask[:, :, None, None]
    arrays = q, k, v, jnp.where(real, g, 0)  # what masked queries get is arbitrary

    def run(dtype):
        def attend(*qkv):
            return jnp.where(real, nystrom_attention(*qkv, mask, num_landmarks=16), 0)

        results = out_and_gradients(attend, *(x.astype(BF16).astype(dtype) for x in arrays))
        return [np.asarray(x, np.float32) for x in results]

    found = run(BF16)
    with assumed(Machine("gpu")), jax.default_matmul_precision("float32"):
        plain, expected = run(BF16), run(jnp.float32)
    for x, y, z in zip(found, plain, expected, strict=True):
        assert np.linalg.norm(x - z) < 2 * np.linalg.norm(y - z) + 2**-7 * np.linalg.norm(z)


@pytest.fixture
def by_flash(monkeypatch):
    """A GPU that prefers kernels, which are interpreted; the calls are counted."""
    attend, calls = flash.flash_attention, []

    def interpreted(*arrays, **options):
        calls.append(options)
        return attend(*arrays, **options, interpret=True)

    monkeypatch.setattr(flash, "flash_attention", interpreted)
    with assumed(Machine("gpu", runs_kernels=True)):
        yield calls


@pytest.mark.parametrize(
    ("queries", "keys", "masked_queries"),
    [
        (5, 40, False),
        (40, 5, True),
        (40, 16, False),
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in ((5, 40, True), (40, 5, False), (40, 16, True))
        ),
    ],
)
def test_flash_takes_other_numbers_of_queries_than_of_keys(queries, keys, masked_queries, by_flash):
    rng = np.random.default_rng(4)
    q, k, v, g = (
        jnp.asarray(rng.normal(size=(3, n, 2, 16)), BF16) for n in (queries, keys, keys, queries)
    )
    mask, real = (jnp.asarray(rng.random((3, n)) < 0.7) for n in (keys, queries))
    if masked_queries:
        g = jnp.where(real[..., None, None], g, 0)
    query_mask = real if masked_queries else None

    def attend(*qkv):
        out = low_rank_attention(*qkv, mask, query_mask=query_mask)
        return out if query_mask is None else jnp.where(real[..., None, None], out, 0)

    found = out_and_gradients(attend, q, k, v, g)
    assert len(by_flash) == 1
    with assumed(Machine("cpu")):
        wide = (x.astype(jnp.float32) for x in (q, k, v, g))
        expected = out_and_gradients(attend, *wide)
    assert_rounded(found, expected, roundings=3)


def test_what_masked_queries_hold_reaches_no_gradient_by_flash_either(by_flash):
    rng = np.random.default_rng(4)
    q, k, v = (jnp.asarray(rng.normal(size=(3, n, 2, 16)), BF16) for n in (24, 6, 6))
    assert_masked_queries_reach_no_gradient(q, k, v)
    assert by_flash


@functools.cache
def nystrom_of_256(how):
    """Compiled once for all scales; `how` tells the programs of the fixtures apart."""
    return jax.jit(
        lambda q, k, v: nystrom_attention(q, k, v, jnp.ones((2, 256), bool), num_landmarks=32)
    )


@pytest.mark.parametrize("how", ["by_cudnn", "by_flash"])
@pytest.mark.parametrize("scale", [0.5, 1, 2])
def test_nystrom_loses_to_16_bits_no_more_than_its_inputs_do(scale, how, request, monkeypatch):
    """The inverse enlarges what rounding the factors changes; this bounds how much remains."""
    request.getfixturevalue(how)
    # Of the other kernels only low rank's are interpreted here.
    monkeypatch.setattr(kernel_choice, "preferred_for_matrices", lambda *_: False)
    q, k, v = (
        scale * normal(2, 256, 2, 32),
        scale * normal(2, 256, 2, 32, seed=1),
        normal(2, 256, 2, 32, seed=2),
    )
    attend = nystrom_of_256(how)
    rounded = [x.astype(BF16) for x in (q, k, v)]
    exact = attend(q, k, v)
    by_inputs = np.linalg.norm(attend(*(x.astype(jnp.float32) for x in rounded)) - exact)
    by_all = np.linalg.norm(attend(*rounded).astype(jnp.float32) - exact)
    result = 2**-9 * np.linalg.norm(exact)
    assert by_all < 2 * by_inputs + result
