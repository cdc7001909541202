"""Packed sequences: the same results without the padding between tokens."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.attention import ATTENTIONS
from models.attention.contract import Attention
from models.attention.packing import make_packing, pack, spread
from models.encoder import Encoder
from tests.attention_cases import CASES, attention_of
from tests.suites import slow_but

TABLE3_ATTENTIONS = ("standard", "nystrom", "linformer", "performer", "reformer")
LENGTH, PACKED = 30, 20  # a number that no chunk, segment or block divides, and one for all masks


@pytest.fixture(scope="module")
def mask():
    """With holes everywhere, then only from the fourth position on; all real tokens; none."""
    holes = np.random.default_rng(0).random((4, LENGTH)) < 0.4
    holes[1] = np.arange(LENGTH) >= LENGTH - PACKED
    holes[2] = np.arange(LENGTH) < PACKED
    holes[3] = False
    return jnp.asarray(holes)


def test_a_packing_by_hand():
    packing = make_packing(jnp.array([[False, True, False, True, True]]), 4)
    np.testing.assert_array_equal(packing.packed_mask, [[True, True, True, False]])
    np.testing.assert_array_equal(packing.sources[0, :3], [1, 3, 4])
    np.testing.assert_array_equal(packing.slots[0, jnp.array([1, 3, 4])], [0, 1, 2])
    x = jnp.arange(1.0, 6)[None, :, None]
    packed = pack(x, packing)
    np.testing.assert_array_equal(packed[0, :, 0], [2, 4, 5, 0])
    np.testing.assert_array_equal(spread(packed, packing)[0, :, 0], [0, 2, 0, 4, 5])


@pytest.mark.parametrize("packed", [0, 6])
def test_sequences_cannot_be_packed_into_no_positions_or_more_than_they_have(packed):
    with pytest.raises(ValueError, match=f"cannot pack 5 positions into {packed}"):
        make_packing(jnp.ones((1, 5), bool), packed)


def test_packing_and_spreading_are_each_others_gradient(float64, mask):
    packing = make_packing(mask, PACKED)
    x, y = (jax.random.normal(jax.random.key(0), (4, n, 2, 3)) for n in (LENGTH, PACKED))
    real = mask[..., None, None]
    np.testing.assert_array_equal(spread(pack(x, packing), packing), jnp.where(real, x, 0))
    for function, argument, gradient in ((pack, x, y), (spread, y, x)):
        out, backward = jax.vjp(lambda each, of=function: of(each, packing), argument)
        # Of a linear function: <f(x), g> = <x, gradient>, for every x.
        np.testing.assert_allclose(
            jnp.vdot(out, gradient), jnp.vdot(argument, backward(gradient)[0]), rtol=1e-12
        )


# Landmarks that do not divide the length, heads that differ; without the convolution.
ENCODERS = {name: (attention_of(name), case.options) for name, case in CASES.items()} | {
    "nystrom uneven": ("nystrom", {"num_landmarks": 7, "conv_kernel": 0}),
    "linformer uneven": ("linformer", {"proj_dim": ((8, 5), (4, 6)), "share": ("kv",)}),
}


LAYERS = {"linformer": 2, "linformer uneven": 2}  # with two, every block must be packed


@functools.cache
def build(case, length=LENGTH, remat=False):
    """An encoder in float64 that drops nothing, in its parts."""
    name, options = ENCODERS[case]
    options = options | ({"dropout": 0.0} if name == "standard" else {})
    settings = {
        "vocab_size": 11,
        "length": length,
        "num_layers": LAYERS.get(case, 1),
        "dim": 8,
        "mlp_dim": 12,
        "num_heads": 2,
        "head_dim": 4,
        "dropout": 0.0,
        "positions": "learned",
        "remat": remat,
        "attention": {"name": name, **options},
        "dtype": jnp.float64,
    }
    encoder = Encoder(**settings, rngs=nnx.Rngs(0))
    graphdef, params, rest = nnx.split(encoder, nnx.Param, ...)
    return graphdef, jax.tree.map(lambda x: x.astype(jnp.float64), params), rest


def slow_if(alike, case):
    return pytest.param(case, marks=pytest.mark.slow if alike else ())


def check_encoder(mask, case, keys=None, **changes):
    """That outputs and gradients of whole and of packed sequences agree."""
    graphdef, params, rest = build(case, **changes)
    ids = jax.random.randint(jax.random.key(1), mask.shape, 0, 11, jnp.int32)
    weights = jax.random.normal(jax.random.key(2), (*mask.shape, 8))

    def loss(params, packed_length):
        out = nnx.merge(graphdef, params, rest)(ids, mask, keys, packed_length)
        return jnp.sum(out * weights), out

    of_length = jax.value_and_grad(loss, has_aux=True)
    (_, expected), gradients = jax.jit(lambda p: of_length(p, None))(params)
    (_, found), of_packed = jax.jit(lambda p: of_length(p, PACKED))(params)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), of_packed, gradients)


@pytest.mark.parametrize("case", slow_but(TABLE3_ATTENTIONS, ENCODERS))
def test_outputs_and_gradients_are_those_of_whole_sequences(case, float64, mask):
    check_encoder(mask, case)


@pytest.mark.parametrize(
    "case",
    [
        # Of standard attention, which drops nothing here, one is enough.
        slow_if(name.startswith("standard "), name)
        for name, case in CASES.items()
        if case.draws
    ],
)
def test_training_is_that_on_whole_sequences(case, float64, mask):
    check_encoder(mask, case, jax.random.split(jax.random.key(3), len(mask)))


@pytest.mark.parametrize(
    "case",
    [slow_if("linformer" in name, name) for name in ("nystrom uneven", "linformer", "reformer")]
    + [slow_if(True, "nystrom")],
)
def test_an_input_may_be_shorter_than_the_module_is_made_for(case, float64, mask):
    check_encoder(mask, case, length=40)


@pytest.mark.slow
def test_blocks_may_be_recomputed(float64, mask):
    check_encoder(mask, "linformer", remat=True)


class Positions(Attention):
    """Multiplies values by their positions; it knows of no packing."""

    def __call__(self, q, k, v, mask, *, key=None):
        return v * jnp.arange(q.shape[1], dtype=v.dtype)[None, :, None, None]


class Ranks(Positions):
    """The same, taking real tokens for all there is."""

    reads_positions = False


def test_an_attention_that_knows_of_no_packing_gets_whole_sequences(mask):
    packing, x = make_packing(mask, PACKED), jnp.ones((4, PACKED, 1, 1))
    expected = jnp.where(packing.packed_mask, packing.sources, 0)
    np.testing.assert_array_equal(Positions().attend_packed(x, x, x, packing)[..., 0, 0], expected)


def test_one_that_reads_no_positions_gets_packed_ones(mask):
    packing, x = make_packing(mask, PACKED), jnp.ones((4, PACKED, 1, 1))
    out = Ranks().attend_packed(x, x, x, packing)[..., 0, 0]
    np.testing.assert_array_equal(out, jnp.broadcast_to(jnp.arange(PACKED)[None], out.shape))


@pytest.mark.parametrize("name", TABLE3_ATTENTIONS)
def test_those_of_the_table_leave_out_padding(name):
    module = ATTENTIONS[name]
    assert not module.reads_positions or module.attend_packed is not Attention.attend_packed
