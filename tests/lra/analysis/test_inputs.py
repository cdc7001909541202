"""Recorded queries, keys and values are those the model computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lra.analysis.inputs import _validation_batch, record, trained_inputs
from lra.data import prepared
from lra.errors import UserError
from lra.restored import Restored
from lra.state import make_model
from lra.tasks import TASKS
from lra.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_programs")


def restored(config, data_dir):
    """A run before its first step, its parameters the best ones of a validation."""
    data = prepared.load(data_dir, config.task)
    trainer = Trainer(config, data, splits=())
    state = trainer.init()
    best = state.best._replace(val_accuracy=jnp.zeros_like(state.best.val_accuracy))
    return Restored(data, trainer, state._replace(best=best), 0, 0)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("reformer", ()),
        pytest.param("nystrom", (), marks=pytest.mark.slow),
        pytest.param("standard", ("model.remat=True",), marks=pytest.mark.slow),
    ],
)
def test_recorded_arrays_are_what_each_layer_computes(name, overrides, tiny_config):
    config = tiny_config("listops", name, "model.num_layers=2", *overrides)
    model = make_model(config, TASKS["listops"], 16, nnx.Rngs(0))
    ids = jax.random.randint(jax.random.key(0), (3, 12), 1, 16)
    mask = jnp.ones((3, 12), bool).at[0, 9:].set(False)

    graphdef, state = nnx.split(model.encoder)

    @jax.jit
    def compute(state):
        """Inputs of each layer, and the attention's output from them and by the block itself."""
        encoder, inputs, outputs = nnx.merge(graphdef, state), [], []
        x = encoder._embed(ids, None)
        for block in encoder.blocks:
            normed, module = block.attention_norm(x), block.attention
            q, v = module.query(normed), module.value(normed)
            inputs.append((q, q if module.key is None else module.key(normed), v))
            outputs.append(module(normed, mask))
            x = block(x, mask)
        return inputs, outputs

    @jax.jit
    def attend(state, recorded):
        encoder = nnx.merge(graphdef, state)
        modules = [block.attention for block in encoder.blocks]
        return [
            module.output(module.attention(*inputs, mask).reshape(3, 12, -1))
            for module, inputs in zip(modules, recorded, strict=True)
        ]

    @jax.jit
    def recorded_arrays(state):
        return [layer[1:] for layer in record(nnx.merge(graphdef, state), ids, mask)]

    recorded = recorded_arrays(state)
    inputs, outputs = compute(state)
    assert len(recorded) == 2
    for layer, expected in zip(recorded, inputs, strict=True):
        for array, other in zip(layer, expected, strict=True):
            np.testing.assert_allclose(array.reshape(other.shape), other, atol=1e-5)
    for found, expected in zip(attend(state, recorded), outputs, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_recording_leaves_the_model_as_it_is(tiny_config):
    config = tiny_config("listops", "linformer", "model.num_layers=2")
    encoder = make_model(config, TASKS["listops"], 16, nnx.Rngs(0)).encoder
    ids, mask = jnp.ones((2, 16), jnp.int32), jnp.ones((2, 16), bool)
    before, attentions = encoder(ids, mask), encoder.attentions
    first = record(encoder, ids, mask)
    np.testing.assert_array_equal(encoder(ids, mask), before)
    assert len(first) == 2
    assert encoder.attentions == attentions
    for layer, block in zip(first, encoder.blocks, strict=True):
        out = layer.attention(layer.q, layer.k, layer.v, mask)
        np.testing.assert_array_equal(
            out, block.attention.attention(layer.q, layer.k, layer.v, mask)
        )


def test_the_longest_examples_are_cut_to_one_length(tiny_config, data_dir):
    run = restored(tiny_config("listops", "standard", "seeds=(3, 7)"), data_dir)
    lengths = np.diff(run.prepared.split("validation").sequences.offsets)
    found = trained_inputs(run, seed=7, examples=3, length=512)
    shortest = sorted(lengths)[-3]
    assert found.inputs.q.shape == (1, 3, shortest, 2, 8)
    assert found.inputs.q.dtype == np.float64
    assert found.inputs.mask.all()
    assert found.step == 0
    cut = trained_inputs(run, seed=7, examples=2, length=5)
    assert cut.inputs.length == 5
    other = trained_inputs(run, seed=3, examples=2, length=5)
    assert not np.allclose(other.inputs.q, cut.inputs.q)


def test_of_long_enough_examples_the_first_are_taken(tiny_config, data_dir):
    run = restored(tiny_config("listops", "standard"), data_dir)
    sequences = run.prepared.split("validation").sequences
    enough = int(np.median(np.diff(sequences.offsets)))
    first = np.flatnonzero(np.diff(sequences.offsets) >= enough)[:2]
    ids, mask = _validation_batch(run, count=2, length=enough)
    expected = [sequences[int(index)][:enough] for index in first]
    np.testing.assert_array_equal(ids, expected)
    assert mask.all()


def test_dark_images_are_taken_last(tiny_config, data_dir):
    run = restored(tiny_config("image", "standard", "data.zero_is_padding=True"), data_dir)
    split = run.prepared.split("validation")
    images = np.full((len(split.labels), 16), 7, np.uint8)
    images[[0, 2], 1:] = 0  # one pixel of each is lit
    tokens = next(
        name for name, array in run.prepared.arrays.items() if array is split.sequences.tokens
    )
    run.prepared.arrays[tokens] = images.reshape(-1)
    _, mask = _validation_batch(run, count=2, length=16)
    assert mask.all()
    _, mask = _validation_batch(run, count=4, length=16)
    assert mask.sum(axis=1).tolist() == [16] * 4
    _, mask = _validation_batch(run, count=len(images), length=16)
    assert mask.sum(axis=1).tolist()[-2:] == [1, 1]


def test_the_last_parameters_on_demand(tiny_config, data_dir):
    run = restored(tiny_config("listops", "standard"), data_dir)
    doubled = jax.tree.map(lambda x: 2 * x, run.state.params)
    run = run._replace(state=run.state._replace(params=doubled), step=4)
    best, last = (
        trained_inputs(run, seed=0, examples=2, length=8, last=last) for last in (False, True)
    )
    assert (best.step, last.step) == (0, 4)
    assert not np.allclose(best.inputs.q, last.inputs.q)


def test_pairs_pixels_and_tied_keys(tiny_config, data_dir):
    pairs = trained_inputs(
        restored(tiny_config("retrieval", "reformer"), data_dir), seed=0, examples=2, length=8
    )
    assert pairs.inputs.q.shape == (1, 2, 8, 2, 8)
    np.testing.assert_array_equal(pairs.inputs.q, pairs.inputs.k)
    assert pairs.attentions[0].shares_qk
    config = tiny_config("image", "standard", "data.zero_is_padding=True")
    pixels = trained_inputs(restored(config, data_dir), seed=0, examples=4, length=16)
    assert 0 < np.mean(~pixels.inputs.mask) < 0.5


def test_a_seed_of_another_run_is_refused(tiny_config, data_dir):
    run = restored(tiny_config("listops", "standard", "seeds=(3, 7)"), data_dir)
    with pytest.raises(UserError, match="no seed 1, only 3, 7"):
        trained_inputs(run, seed=1, examples=2, length=8)
