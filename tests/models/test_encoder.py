"""The encoder: masks, positions, keys, formats, and that every attention fits in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models import block as blocks
from models import encoder as encoders
from models.attention.standard import StandardAttention
from models.encoder import Encoder, sinusoidal_positions
from tests.attention_cases import SMALL
from tests.programs import equations
from tests.suites import slow_but


def build(attention="standard", seed=0, length=16, **changes):
    settings = {
        "vocab_size": 11,
        "length": length,
        "num_layers": 2,
        "dim": 8,
        "mlp_dim": 12,
        "num_heads": 2,
        "head_dim": 4,
        "dropout": 0.1,
        "positions": "learned",
        "remat": False,
        "attention": {"name": attention, **SMALL[attention].options},
        "dtype": jnp.float32,
    }
    return Encoder(**(settings | changes), rngs=nnx.Rngs(seed))


@pytest.fixture(scope="module")
def inputs():
    ids = jax.random.randint(jax.random.key(0), (3, 16), 1, 11)
    mask = jnp.arange(16)[None] < jnp.array([[16], [9], [0]])
    return jnp.where(mask, ids, 0), mask


@pytest.mark.parametrize("attention", slow_but(("nystrom", "performer", "reformer"), SMALL))
def test_no_sum_is_accumulated_in_bfloat16(attention, inputs):
    """Neither a gradient of a bias, over all positions, nor of an embedding, over the batch."""
    graphdef, params, rest = nnx.split(build(attention, dtype=jnp.bfloat16), nnx.Param, ...)

    def loss(params):
        out = nnx.merge(graphdef, params, rest)(*inputs, jax.random.key(0))
        return jnp.sum(out.astype(jnp.float32))

    sums = [
        equation.invars[0].aval
        for equation in equations(jax.make_jaxpr(jax.grad(loss))(params).jaxpr)
        if equation.primitive.name in ("reduce_sum", "scatter-add")
    ]
    assert sums
    assert not [x.shape for x in sums if x.dtype == jnp.bfloat16]


# One with parameters of its own.
@pytest.mark.parametrize("attention", slow_but(("nystrom",), SMALL))
def test_no_gradient_is_rounded_to_bfloat16(attention, inputs):
    """On several devices they would be added up in bfloat16 as well."""
    graphdef, params, rest = nnx.split(build(attention, dtype=jnp.bfloat16), nnx.Param, ...)
    weights = jax.random.normal(jax.random.key(1), (*inputs[0].shape, 8))

    def loss(params):
        out = nnx.merge(graphdef, params, rest)(*inputs, jax.random.key(0))
        return jnp.sum(weights * out.astype(jnp.float32))

    for path, gradient in nnx.to_flat_state(jax.jit(jax.grad(loss))(params)):
        values = np.asarray(gradient[...])
        rounded = values.astype(jnp.bfloat16).astype(np.float32)
        # The gradient of a bias of keys is 0 in exact attention.
        assert (values != rounded).any() or path[-2:] == ("key", "bias"), path


@pytest.mark.parametrize("attention", SMALL)
def test_masked_positions_are_zero_and_never_seen(attention, inputs):
    ids, mask = inputs
    model = build(attention, num_layers=1)
    run = jax.jit(lambda ids: model(ids, mask))
    out = run(ids)
    assert out.shape == (3, 16, 8)
    assert not np.asarray(out)[~np.asarray(mask)].any()
    assert np.isfinite(out).all()
    other = run(jnp.where(mask, ids, 7))
    np.testing.assert_allclose(out, other, atol=1e-6)


def test_training_is_a_function_of_the_key(inputs):
    model = build(num_layers=1)
    run = jax.jit(lambda key: model(*inputs, key))
    one, same, other = (run(jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3
    assert np.abs(one - run(None)).max() > 1e-3


QUICK = ("standard", "nystrom")


@pytest.mark.parametrize("attention", slow_but(("standard",), SMALL))
def test_rematerialisation_gives_the_same_gradients(attention, inputs, float64):
    gradients, recomputed = [], []
    for remat in (False, True):
        model = build(attention, remat=remat, num_layers=1, dtype=jnp.float64)
        graphdef, params, rest = nnx.split(model, nnx.Param, ...)

        def loss(params, graphdef=graphdef, rest=rest):
            out = nnx.merge(graphdef, params, rest)(*inputs, jax.random.key(3))
            return jnp.sum(out * jax.random.normal(jax.random.key(4), out.shape))

        program = str(jax.make_jaxpr(loss)(params))
        recomputed.append(program.count("remat2[") + program.count("checkpoint["))
        gradients.append(jax.tree.leaves(jax.jit(jax.grad(loss))(params)))
    for plain, again in zip(*gradients, strict=True):
        np.testing.assert_allclose(plain, again, rtol=1e-5, atol=1e-6)
    assert recomputed[1] == recomputed[0] + len(model.blocks)


def test_rematerialisation_reads_the_present_parameters(inputs):
    """JAX caches the trace of a function, with what it read beside its arguments."""
    model = build(remat=True, num_layers=1)
    before = model(*inputs)
    for block in model.blocks:
        block.mlp_out.kernel[...] *= 2
    assert np.abs(model(*inputs) - before).max() > 1e-3


@pytest.mark.parametrize("attention", SMALL)
def test_parameters_are_float32_whatever_the_activations(attention, float64):
    for dtype in (jnp.float64, jnp.bfloat16):
        params = nnx.state(build(attention, dtype=dtype), nnx.Param)
        assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_bfloat16_stays_near_float32(inputs):
    full, half = (jax.jit(build(dtype=dtype))(*inputs) for dtype in (jnp.float32, jnp.bfloat16))
    assert half.dtype == jnp.bfloat16
    # A relative error of 2**-8 an operation, about a dozen in a row, on values of about 1.
    np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.08)


def test_sinusoidal_positions_are_float32_with_64_bit_types_too(float64):
    assert sinusoidal_positions(5, 6).dtype == jnp.float32


def test_sinusoidal_positions_are_those_of_the_paper():
    table = sinusoidal_positions(5, 6)
    for position in range(5):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            np.testing.assert_allclose(table[position, 2 * pair], np.sin(angle), atol=1e-6)
            np.testing.assert_allclose(table[position, 2 * pair + 1], np.cos(angle), atol=1e-6)


@pytest.mark.parametrize("positions", encoders.POSITIONS)
def test_only_positions_tell_an_order(positions):
    ids = np.array([[1, 2, 3, 4]], np.int32)
    mask = jnp.ones((1, 4), bool)
    run = jax.jit(build(positions=positions, num_layers=1))
    out = run(jnp.asarray(ids), mask)
    turned = np.asarray(run(jnp.asarray(ids[:, ::-1]), mask))[:, ::-1]
    difference = np.abs(out - turned).max()
    assert (difference < 1e-5) == (positions == "none")


def test_linformer_layers_share_one_projection():
    model = build("linformer")
    paths = ["/".join(map(str, path)) for path, _ in nnx.to_flat_state(nnx.state(model, nnx.Param))]
    inside = [path for path in paths if "attention/attention" in path]
    assert len(inside) == 1


def test_reformer_has_no_key_projection():
    tied = build("reformer").blocks[0].attention
    assert tied.key is None
    assert tied.query.bias is None
    assert tied.value.bias is not None


def test_unknown_positions_are_refused():
    with pytest.raises(ValueError, match=r"unknown positions .*known: learned, none, sinusoidal"):
        build(positions="rotary")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_layers": -1}, "num_layers must be 0 or a positive integer, not -1"),
        ({"mlp_dim": -1}, "mlp_dim must be a positive integer, not -1"),
        ({"dropout": 2.0}, "dropout must be a number from 0 to less than 1, not 2.0"),
    ],
)
def test_sizes_and_rates_that_no_encoder_has_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        build(**changed)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_a_sequence_longer_than_the_encoders_is_refused(positions):
    with pytest.raises(ValueError, match="17 positions, but the encoder is made for 16"):
        build(positions=positions)(jnp.ones((1, 17), jnp.int32), jnp.ones((1, 17), bool))


def test_every_draw_has_a_key_of_its_own(inputs, monkeypatch):
    """Each key is used once: split, or given to a dropout or to an attention. One rate for all."""
    keys, rates, split = [], set(), encoders.split

    def split_and_note(key, number):
        keys.append(key)
        return split(key, number)

    def dropout(x, rate, key):
        keys.append(key)
        rates.add(rate)
        return x

    def attend(self, q, k, v, mask, *, key=None):
        keys.append(key)
        return v

    monkeypatch.setattr(StandardAttention, "__call__", attend)
    for module in (encoders, blocks):
        monkeypatch.setattr(module, "dropout", dropout)
        monkeypatch.setattr(module, "split", split_and_note)
    build(dropout=0.25)(*inputs, jax.random.key(0))
    assert rates == {0.25}
    numbers = {tuple(jax.random.key_data(key).tolist()) for key in keys}
    assert len(numbers) == len(keys) == 1 + 1 + 2 * (1 + 4)  # encoder, embeddings, two blocks


def test_embeddings_start_as_those_of_the_reference():
    model = build(vocab_size=300, length=300, dim=64, head_dim=32)
    for values in (model.token[...], model.position[...]):
        np.testing.assert_allclose(np.std(values), 0.02, rtol=0.05)
        assert abs(np.mean(values)) < 5 * 0.02 / values.size**0.5
