"""The kernels of a block's rows, interpreted, against the plain block; lowered for a GPU."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import attention, fused, fused_programs, kernel_choice
from models.attention import flash
from models.attention.packing import make_packing
from models.block import Block
from models.machine import Machine, assumed, this_machine
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100

KEY = jax.random.key(7)
KEYS = {"kept": None, "one": KEY, "each": jax.random.split(KEY, 4)}
GPU = Machine("gpu", runs_kernels=True)
LENGTH, DIM = 48, 32  # 192 rows: three blocks forward, six backward
OPTIONS = {
    "standard": {"dropout": 0.1, "implementation": "xla"},
    "reformer": {"chunk_length": 16},
    "nystrom": {"num_landmarks": 4, "conv_kernel": 0},
}


@functools.cache
def build(name="standard", dtype=jnp.bfloat16, dim=DIM, mlp_dim=64):
    module = attention.make(
        name=name,
        length=LENGTH,
        heads=2,
        head_dim=dim // 2,
        rngs=nnx.Rngs(0),
        **OPTIONS[name],
    )
    sizes = {"dim": dim, "mlp_dim": mlp_dim, "heads": 2, "head_dim": dim // 2}
    block = Block(module, **sizes, dropout=0.1, dtype=dtype, rngs=nnx.Rngs(1))
    for norm in (block.attention_norm, block.mlp_norm):  # other than 1 and 0
        norm.scale[...] += jnp.linspace(-0.5, 0.5, dim)
        norm.bias[...] += jnp.linspace(-0.3, 0.3, dim)
    return nnx.split(block, nnx.Param, ...)


def inputs(dtype=jnp.bfloat16, dim=DIM):
    keys = jax.random.split(jax.random.key(1))
    x, g = (jax.random.normal(key, (4, LENGTH, dim)) for key in keys)
    mask = jnp.arange(LENGTH)[None] < jnp.array([[LENGTH], [20], [0], [LENGTH]])
    return (3 * x + 1).astype(dtype), g.astype(dtype), mask


def run(graph, params, rest, x, g, mask, key):
    """A block's output and the gradients of its input and its weights."""

    def apply(params, x):
        return nnx.merge(graph, params, rest)(x, mask, key)

    out, gradient = jax.vjp(apply, params, x)
    return jax.tree.leaves((out, gradient(g)))


def compiled(graph):
    """`run` of a block as one program: one by one the operations take longer to compile."""
    return jax.jit(functools.partial(run, graph))


def results(parts, arrays, key, machine):
    with assumed(machine):
        return compiled(parts[0])(*parts[1:], *arrays, key)


@functools.cache
def plain_results(name="standard", key="one", dtype=jnp.float32):
    return results(build(name, dtype), inputs(dtype), KEYS[key], Machine("gpu"))


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels are interpreted, and in float32 taken too."""
    for name in ("project", "finish"):
        function = functools.partial(getattr(fused, name), interpret=True)
        monkeypatch.setattr(fused, name, function)
    takes = kernel_choice.preferred_for_rows
    monkeypatch.setattr(
        kernel_choice,
        "preferred_for_rows",
        lambda rows, widths, _, m: takes(rows, widths, jnp.bfloat16, m),
    )


@pytest.mark.parametrize(
    "programs", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_programs_go_through_any_number_of_blocks(programs, interpreted, monkeypatch):
    """Of three and of six: one after the other, evenly or not."""
    for name in ("_PROJECT", "_PROJECT_GRADIENT", "_FINISH", "_FINISH_GRADIENT"):
        tile = getattr(fused, name)._replace(programs=programs)
        monkeypatch.setattr(fused, name, tile)
    found = results(build(dtype=jnp.float32), inputs(jnp.float32), KEY, GPU)
    expected = plain_results()
    largest = max(np.abs(y).max() for y in expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-20 * largest)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("standard", "kept"),
        ("standard", "each"),
        # Queries that are keys too, which are projected the same whatever is dropped.
        ("reformer", "each"),
        pytest.param("standard", "one", marks=pytest.mark.slow),
        *(pytest.param("reformer", key, marks=pytest.mark.slow) for key in ("kept", "one")),
    ],
)
def test_equals_the_plain_block(name, key, interpreted):
    """Masks are the same, and sums are those of several programs."""
    found = results(build(name, jnp.float32), inputs(jnp.float32), KEYS[key], GPU)
    expected = plain_results(name, key)
    assert [x.dtype for x in found] == [x.dtype for x in expected]
    largest = max(np.abs(y).max() for y in expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2**-20 * largest)


def test_attention_gets_the_packing(interpreted):
    graph, params, rest = build("nystrom", jnp.float32)
    x, *_ = inputs(jnp.float32)
    holes = jnp.arange(2 * LENGTH)[None] % jnp.array([[2], [3], [5], [96]]) == 0
    packing = make_packing(holes, LENGTH)

    def outputs(packing):
        def of_packing(packing):  # of each machine another one: JAX keeps what it traces
            block, real = nnx.merge(graph, params, rest), packing.packed_mask
            return jnp.where(real[..., None], block(x, real, KEY, packing), 0)

        return jax.jit(of_packing)(packing)

    with assumed(GPU):
        found = outputs(packing)
    with assumed(Machine("gpu")):
        expected, cut = outputs(packing), outputs(make_packing(holes[:, :LENGTH], LENGTH))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2**-20 * np.abs(expected).max())
    assert np.abs(expected - cut).max() > 1e-3  # positions count


def test_bfloat16_is_rounded_no_more_than_in_the_plain_block(interpreted):
    found = results(build(), inputs(), KEY, GPU)
    plain = plain_results(dtype=jnp.bfloat16)
    x, g, mask = inputs()
    wide = x.astype(jnp.float32), g.astype(jnp.float32), mask
    expected = results(build(dtype=jnp.float32), wide, KEY, Machine("gpu"))
    assert [x.dtype for x in found] == [x.dtype for x in plain]
    largest = max(np.linalg.norm(z) for z in expected[2:])

    def error(x, z):
        return np.linalg.norm(np.asarray(x, np.float32) - z)

    for x, y, z in zip(found, plain, expected, strict=True):
        assert error(x, z) < 1.2 * error(y, z) + 2**-12 * largest


def test_seeds_are_mapped(interpreted):
    graph, params, rest = build(dtype=jnp.float32)
    two = jax.tree.map(lambda x: jnp.stack([x, 1.5 * x]), params)
    keys, (x, g, mask) = jax.random.split(KEY), inputs(jnp.float32)
    with assumed(GPU):
        of_seed = functools.partial(run, graph)
        axes = (0, None, None, None, None, 0)
        found = jax.jit(jax.vmap(of_seed, axes))(two, rest, x, g, mask, keys)
        of_seed = jax.jit(of_seed)
        for seed in range(2):
            alone = of_seed(jax.tree.map(lambda x, s=seed: x[s], two), rest, x, g, mask, keys[seed])
            largest = max(np.abs(b).max() for b in alone)
            for a, b in zip(found, alone, strict=True):
                np.testing.assert_allclose(a[seed], b, rtol=0, atol=2**-20 * largest)


@pytest.mark.slow
def test_the_block_may_be_recomputed(interpreted):
    graph, params, rest = build(dtype=jnp.float32)
    x, g, mask = inputs(jnp.float32)

    def gradient(wrapped):
        def loss(params, x):
            out = wrapped(lambda x: nnx.merge(graph, params, rest)(x, mask, KEY))(x)
            return jnp.sum(out * g)

        return jax.tree.leaves(jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x))

    with assumed(GPU):
        found, expected = gradient(jax.checkpoint), gradient(lambda function: function)
    largest = max(np.abs(y).max() for y in expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2**-20 * largest)


def test_rows_that_do_not_fit_are_refused():
    norm = fused.Norm(jnp.ones(16), jnp.zeros(16))
    dense = fused.Dense(jnp.ones((16, 16)), jnp.zeros(16))
    with pytest.raises(ValueError, match="100 rows, which are no multiple of 64"):
        fused.project(jnp.ones((100, 16)), norm, [dense], epsilon=1e-5, interpret=True)


def test_the_error_function_is_within_its_bound():
    x = np.linspace(-12, 12, 10_001, dtype=np.float32)
    value, slope = fused_programs.gelu(jnp.asarray(x))
    x = x.astype(np.float64)
    phi = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in x])
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    # 1.5e-7 of the error function are half of it of Phi; and some roundings of float32.
    assert np.all(np.abs(value - x * phi) < 4e-7 * np.abs(x) + 1e-30)
    assert np.all(np.abs(slope - (phi + x * density)) < 4e-7)


@TRITON_IS_LEAVING
@pytest.mark.parametrize("key", [None, KEY], ids=["kept", "dropped"])
def test_four_kernels_whatever_the_number_of_seeds(key, monkeypatch):
    graph, params, rest = build(dim=64, mlp_dim=128)
    seeds = jax.tree.map(lambda x: jnp.stack([x] * 3), params)
    of_seed = jax.vmap(functools.partial(run, graph), (0, None, None, None, None, None))
    with on_an_h100(monkeypatch), assumed(GPU):
        traced = jax.jit(of_seed).trace(seeds, rest, *inputs(dim=64), key)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall(r"custom_call @__gpu\$xla.gpu.triton", text)) == 4


def test_which_rows_it_takes():
    def takes(rows=(32, 1024), widths=(64, 64, 128), dtype=jnp.bfloat16, machine=GPU):
        return kernel_choice.preferred_for_rows(rows, widths, dtype, machine)

    assert takes()
    assert takes(rows=(3, 64), widths=(16, 32, 16), dtype=jnp.float16)
    assert not takes(rows=(3, 65))
    assert not takes(dtype=jnp.float32)
    assert not takes(widths=(64, 64, 256))
    assert not takes(widths=(64, 128, 128))
    assert not takes(widths=(64, 64, 96))
    assert not takes(widths=(8, 64, 128))
    assert not takes(machine=Machine("gpu", has_cudnn=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [pytest.param(None, id="kept"), pytest.param(KEY, id="dropped")],
)
def test_a_nystrom_block_is_rounded_little_more_than_in_the_plain_form(
    key, interpreted, monkeypatch
):
    calls = []

    def counted(module, name, **options):
        function = getattr(module, name)

        def call(*args, **kwargs):
            calls.append(name)
            return function(*args, **kwargs, **options)

        monkeypatch.setattr(module, name, call)

    counted(fused, "project")
    counted(flash, "flash_attention", interpret=True)
    counted(fused, "finish")
    with assumed(GPU):
        assert_rounded_little_more("nystrom", key)
    assert calls == ["project", "flash_attention", "flash_attention", "finish"]


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the kernels need a GPU")
@TRITON_IS_LEAVING
@pytest.mark.parametrize("key", [None, KEY], ids=["kept", "dropped"])
@pytest.mark.parametrize("name", OPTIONS)
def test_on_a_gpu(name, key):
    assert this_machine().runs_kernels
    assert_rounded_little_more(name, key)


def assert_rounded_little_more(name, key):
    """Errors against float32 are little larger on this machine than without kernels."""
    graph, params, rest = build(name, dim=64, mlp_dim=128)
    x, g, mask = inputs(dim=64)
    real = mask[..., None]
    g = jnp.where(real, g, 0)  # what masked positions get is arbitrary

    def real_of(parts, x, g):
        out, *gradients = compiled(parts[0])(*parts[1:], x, g, mask, key)
        return [jnp.where(real, out, 0), *gradients]

    found = real_of((graph, params, rest), x, g)
    with assumed(Machine("gpu")), jax.default_matmul_precision("float32"):
        plain = real_of((graph, params, rest), x, g)
        wide = (array.astype(jnp.float32) for array in (x, g))
        expected = real_of(build(name, jnp.float32, 64, 128), *wide)
    for arrays in (found, plain, expected):
        assert not [i for i, x in enumerate(arrays) if not jnp.isfinite(x).all()]
    largest = max(np.linalg.norm(z) for z in expected[2:])

    def error(x, z):
        return np.linalg.norm(np.asarray(x, np.float32) - np.asarray(z))

    for x, y, z in zip(found, plain, expected, strict=True):
        assert error(x, z) < 1.5 * error(y, z) + 2**-10 * largest
