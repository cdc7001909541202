"""Seeds as an axis, the step, evaluation: what a run may rely on."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from lra import arrays, state
from lra.data import prepared
from lra.errors import UserError
from lra.evaluation import evaluate
from lra.state import forward
from lra.tasks import get_task
from models.attention.performer import orthogonal_features
from models.attention.standard import StandardAttention
from tests.attention_cases import SMALL
from tests.lra.conftest import ALL_DEVICES, write_pixels
from tests.lra.trainings import make_trainer
from tests.suites import slow_but

pytestmark = pytest.mark.usefixtures("shared_programs")


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_close(one, other, atol=1e-5):
    chex.assert_trees_all_close(one, other, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("attention", slow_but(("linear",), SMALL))
def test_seeds_together_equal_seeds_alone(tiny_trainer, attention):
    together = tiny_trainer("listops", attention, "seeds=(7, 3)")
    state, metrics = together.train(together.init(), 0, 4)
    for row, seed in enumerate((7, 3)):
        alone = tiny_trainer("listops", attention, f"seeds=({seed},)")
        expected, expected_metrics = alone.train(alone.init(), 0, 4)
        assert_close(jax.tree.map(lambda x, row=row: x[row : row + 1], state), expected)
        np.testing.assert_allclose(metrics.loss[row], expected_metrics.loss[0], atol=1e-5)


def test_the_length_of_calls_leaves_no_trace(tiny_trainer):
    trainer = tiny_trainer()
    one, _ = trainer.train(trainer.init(), 0, 6)
    other = trainer.init()
    for start, count in ((0, 1), (1, 3), (4, 2)):
        other, _ = trainer.train(other, start, count)
    chex.assert_trees_all_equal(one, other)


def test_evaluation_counts_every_example_once(tiny_trainer):
    # 13 validation examples in batches of 8: the last batch is half empty.
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1)")
    state = trainer.init()
    result = evaluate(trainer, state.params, state.rest, "validation")
    assert result.logits.shape == (2, 13, 10)
    labels = trainer.labels("validation")
    expected = (result.logits.argmax(-1) == labels).mean(-1)
    np.testing.assert_allclose(result.accuracy, expected, atol=1e-6)
    shifted = result.logits - result.logits.max(-1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    loss = -log_probability[:, np.arange(13), labels].mean(-1)
    np.testing.assert_allclose(result.loss, loss, atol=1e-5)


@pytest.mark.parametrize("attention", slow_but(("linear",), ("linear", "nystrom")))
def test_evaluation_does_not_depend_on_its_batches(tiny_trainer, attention):
    results = []
    for batch in (1, 8, 32):  # one by one, with a half-empty batch, all at once
        trainer = tiny_trainer("listops", attention, f"train.eval_batch_size={batch}")
        state = trainer.init()
        results.append(evaluate(trainer, state.params, state.rest, "validation").logits)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], atol=1e-5)


@pytest.mark.slow
def test_black_pixels_are_padding_where_the_configuration_says_so(tiny_trainer, data_dir):
    trainer = tiny_trainer("image", "standard", "data.zero_is_padding=True")
    train_state = trainer.init()
    found = evaluate(trainer, train_state.params, train_state.rest, "validation").logits[0]
    data = prepared.load(data_dir, "image")
    examples = arrays.load_examples(data, ("validation",), 0)["validation"]
    batch = arrays.gather(examples, np.arange(13), trainer.task, zero_is_padding=True)
    params, rest = jax.tree.map(lambda x: x[0], (train_state.params, train_state.rest))
    assert_close(found, forward(trainer.graphdef, params, rest, batch))


def test_the_best_parameters_are_kept_per_seed(tiny_trainer):
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1)")
    start = leaves(trainer.init().params)
    state = trainer.update_best(trainer.init(), np.array([0.5, 0.1], np.float32), 3)
    state, _ = trainer.train(state, 0, 2)
    state = trainer.update_best(state, np.array([0.4, 0.2], np.float32), 5)
    np.testing.assert_array_equal(state.best.step, [3, 5])
    np.testing.assert_allclose(state.best.val_accuracy, [0.5, 0.2])
    for best, before, now in zip(
        leaves(state.best.params), start, leaves(state.params), strict=True
    ):
        np.testing.assert_array_equal(best[0], before[0])
        np.testing.assert_array_equal(best[1], now[1])


def test_no_program_changes_the_types_of_the_state(tiny_trainer):
    # If only weakly: the next call of every program would compile it again.
    trainer = tiny_trainer("listops", "performer")
    programs, abstract = trainer.programs, trainer.abstract_state()
    arguments = trainer.train_arguments(abstract, 0, 1)
    accuracy = np.zeros(1, np.float32)
    results = [
        jax.eval_shape(programs.init, arguments[1]),
        jax.eval_shape(programs.train, *arguments)[0],
        jax.eval_shape(programs.redraw, abstract, np.int32(1), arguments[1]),
        jax.eval_shape(programs.update_best, abstract, accuracy, np.int32(1)),
        jax.eval_shape(programs.check_end, abstract, accuracy, np.int32(1)),
    ]
    types = [[(x.dtype, x.weak_type) for x in jax.tree.leaves(result)] for result in results]
    for other in types:
        assert other == [(dtype, False) for dtype, _ in types[0]]


@pytest.mark.parametrize(
    ("task", "attention"),
    [
        ("listops", "linear"),
        pytest.param("listops", "reformer", marks=pytest.mark.slow),
        pytest.param("retrieval", "standard", marks=pytest.mark.slow),
        pytest.param("listops", "standard", marks=pytest.mark.slow),
    ],
)
def test_microbatches_equal_the_plain_step_dropout_included(tiny_trainer, task, attention):
    plain = tiny_trainer(task, attention)
    four = tiny_trainer(task, attention, "train.microbatches=4")
    assert_close(plain.train(plain.init(), 0, 3), four.train(four.init(), 0, 3))


def test_a_seed_that_diverges_is_frozen_and_the_others_go_on(tiny_trainer):
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1)")
    state, _ = trainer.train(trainer.init(), 0, 1)
    broken = jax.tree.map(lambda x: x, state)
    scale = broken.params["encoder"]["norm"]["scale"]
    scale[...] = scale[...].at[0].set(jnp.inf)
    before = jax.tree.map(jnp.copy, broken)
    after, metrics = trainer.train(broken, 1, 3)
    np.testing.assert_array_equal(metrics.diverged_step, [1, -1])
    for old, new in zip(leaves(before.params), leaves(after.params), strict=True):
        np.testing.assert_array_equal(old[0], new[0])
    assert np.isfinite(metrics.loss[1])
    kernel = ("encoder", "blocks", 0, "mlp_in", "kernel")
    changed = [_at(tree.params, kernel)[1] for tree in (before, after)]
    assert np.abs(changed[0] - changed[1]).max() > 0
    # A frozen seed is never the best, whatever its accuracy.
    after = trainer.update_best(after, np.array([1.0, 0.5], np.float32), 4)
    np.testing.assert_array_equal(after.best.step, [0, 4])


def test_what_there_is_no_memory_for_is_told_and_not_waited_for(tiny_trainer):
    """On a CPU `jax.device_get` alone would never return."""
    trainer = tiny_trainer()
    square, widen = jax.jit(lambda x: x @ x), jax.jit(lambda x: jnp.zeros(2**50) + x[0, 0])
    waits = square(square(jnp.ones((1000, 1000))))  # so that what needs it is only dispatched
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
        trainer.fetch(widen(waits))


def test_what_the_last_step_destroyed_has_diverged(tiny_trainer):
    """By a parameter or by the loss; a seed that had diverged before keeps its step."""
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1, 2, 3)", *ALL_DEVICES)
    state = trainer.init()
    state = state._replace(diverged_step=state.diverged_step.at[3].set(7))
    kernel = state.params["encoder"]["blocks"][0]["mlp_in"]["kernel"]
    kernel[...] = kernel[...].at[1, 0, 0].set(jnp.nan)
    state = trainer.check_end(state, np.array([0.5, 0.5, jnp.inf, jnp.nan], np.float32))
    np.testing.assert_array_equal(state.alive, [True, False, False, False])
    np.testing.assert_array_equal(state.diverged_step, [-1, 12, 12, 7])


def _at(tree, path):
    for name in path:
        tree = tree[name]
    return np.asarray(tree[...])


def test_performer_redraws_its_features(tiny_trainer):
    trainer = tiny_trainer("listops", "performer", "seeds=(0, 1)")
    before = leaves(trainer.init().rest)
    drawn = leaves(trainer.redraw(trainer.init(), 10).rest)
    again = leaves(trainer.redraw(trainer.redraw(trainer.init(), 5), 10).rest)
    later = leaves(trainer.redraw(trainer.init(), 20).rest)
    chex.assert_trees_all_equal(drawn, again)  # a function of seed and step alone
    for a, b, c in zip(before, drawn, later, strict=True):
        assert np.abs(a - b).max() > 0.1
        assert np.abs(b - c).max() > 0.1
        assert np.abs(b[0] - b[1]).max() > 0.1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("mesh.seed=3",), r"1 seeds do not divide among mesh.seed=3; fitting: 1"),
        (("mesh.data=3",), r"a batch of 8 does not divide among mesh.data=3; fitting: 1, 2, 4, 8"),
        (
            ("mesh.data=8", "train.microbatches=2"),
            r"a batch of 4 does not divide among mesh.data=8",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tiny_trainer, overrides, message):
    with pytest.raises(UserError, match=message):
        tiny_trainer("listops", "standard", *overrides)


def test_data_of_another_task_are_refused(tiny_config, tmp_path):
    write_pixels(tmp_path, "listops", 10)
    with pytest.raises(UserError, match="listops: ids go up to 25"):
        make_trainer(tiny_config(), tmp_path)


def test_a_gpu_has_no_products_in_bfloat16(tiny_trainer, monkeypatch):
    tiny_trainer("listops", "standard", "matmul_precision=bfloat16")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(UserError, match="matmul_precision=bfloat16: on a GPU"):
        tiny_trainer("listops", "standard", "matmul_precision=bfloat16")


@pytest.mark.parametrize(
    ("attention", "override", "message"),
    [
        ("linformer", "model.attention.proj_dim=17", "proj_dim"),
        ("reformer", "model.attention.chunk_length=17", "chunk_length"),
        ("performer", "model.attention.kernel=cosine", "cosine"),
        ("standard", "model.attention.implementation=fast", "fast"),
        (
            "standard",
            "model.attention.implementation=cudnn",
            "'cudnn' cannot drop attention weights",
        ),
        ("standard", "model.attention.implementation=flash", "a head_dim that is a power of two"),
    ],
)
def test_options_that_do_not_fit_the_length_are_refused(tiny_trainer, attention, override, message):
    with pytest.raises(UserError, match=message):
        tiny_trainer("listops", attention, override)


def test_each_step_draws_its_own_dropout(tiny_trainer):
    trainer = tiny_trainer(donate=False)
    *arguments, _, count = trainer.train_arguments(trainer.init(), 0, 1)
    # The same parameters and examples.
    one, again, next_step = (
        float(trainer.programs.train(*arguments, step, count)[1].loss[0]) for step in (0, 0, 1)
    )
    assert one == again
    assert abs(one - next_step) > 1e-4


def test_each_seed_has_its_own_order_of_examples(tiny_trainer):
    trainer = tiny_trainer("listops", "standard", "seeds=(7, 3)")
    _, _, _, indices, start, count = trainer.train_arguments(trainer.abstract_state(), 3, 2)
    assert (start, count) == (3, 2)
    for row, seed in enumerate((7, 3)):
        stream = arrays.training_indices(50, seed, 3 * 8, 2 * 8)
        np.testing.assert_array_equal(np.ravel(indices[row, :2]), stream)


def test_layers_redraw_features_of_their_own(tiny_trainer):
    trainer = tiny_trainer("listops", "performer", "model.num_layers=2")
    one, other = leaves(trainer.redraw(trainer.init(), 10).rest)
    assert np.abs(one - other).max() > 0.1


def test_a_seed_has_different_keys_for_its_purposes(tiny_config, monkeypatch):
    """For initialisation and training, and in initialisation for trained and untrained arrays."""
    streams = []

    def make_model(_config, _task, _length, rngs):
        streams.extend(stream.key[...] for stream in (rngs.params, rngs.attention))
        return nnx.Linear(1, 1, rngs=rngs)

    monkeypatch.setattr(state, "make_model", make_model)
    keys = state.seed_keys(3)
    state.init_state(keys[0], tiny_config(), get_task("listops"), 16)
    numbers = {tuple(jax.random.key_data(key).tolist()) for key in (*keys, *streams)}
    assert len(numbers) == 4


def test_a_gradient_that_is_not_finite_changes_nothing_though_the_loss_is(tiny_trainer):
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1)")
    state = trainer.init()
    kernel = state.params["logits"]["kernel"]
    kernel[...] = kernel[...].at[0].multiply(1e30)  # the norm of the gradient is beyond float32
    before = leaves(state.params)
    state, metrics = trainer.train(state, 0, 1)
    assert np.isfinite(metrics.loss).all()
    np.testing.assert_array_equal(metrics.diverged_step, [0, -1])
    for old, new in zip(before, leaves(state.params), strict=True):
        np.testing.assert_array_equal(old[0], new[0])


def test_of_parameters_as_good_the_first_are_kept(tiny_trainer):
    trainer = tiny_trainer()
    state = trainer.init()
    for accuracy, step in ((0.5, 3), (0.5, 5), (0.25, 7)):
        state = trainer.update_best(state, np.array([accuracy], np.float32), step)
    np.testing.assert_array_equal(state.best.step, [3])


def test_a_redraw_has_no_key_of_a_step(tiny_trainer):
    trainer = tiny_trainer("listops", "performer")
    (drawn,) = leaves(trainer.redraw(trainer.init(), 10).rest)
    of_step = jax.random.fold_in(state.seed_keys(0)[1], 10)
    of_example = jax.random.fold_in(of_step, 0)
    for key in (of_step, of_example):
        assert np.abs(drawn[0] - orthogonal_features(key, *drawn.shape[1:])).max() > 0.1


def test_a_seed_that_has_diverged_draws_nothing_anew(tiny_trainer):
    trainer = tiny_trainer("listops", "performer", "seeds=(0, 1)")
    state = trainer.init()
    (before,) = leaves(state.rest)
    (after,) = leaves(trainer.redraw(state._replace(diverged_step=jnp.array([-1, 7])), 10).rest)
    assert np.abs(before[0] - after[0]).max() > 0.1
    np.testing.assert_array_equal(before[1], after[1])


def test_a_mistake_in_a_model_is_told_with_its_line(tiny_trainer, monkeypatch, own_programs):
    def broken(self, q, k, v, mask, *, key=None):
        return jnp.einsum("blhd,blhd->blhd", q, v[:, 1:])

    monkeypatch.setattr(StandardAttention, "__call__", broken)
    with pytest.raises(UserError, match=r"Size of label .* \(models/\w+\.py, line \d+, in "):
        tiny_trainer("listops", "standard")
    with pytest.raises(UserError, match="proj_dim") as caught:
        tiny_trainer("listops", "linformer", "model.attention.proj_dim=17")
    assert ", line " not in str(caught.value)


def test_a_seed_that_has_diverged_is_frozen_though_its_loss_is_finite_again(tiny_trainer):
    trainer = tiny_trainer("listops", "standard", "seeds=(0, 1)")
    state = trainer.init()
    before = leaves((state.params, state.opt_state))
    state = state._replace(diverged_step=jnp.array([7, -1], jnp.int32))
    state, metrics = trainer.train(state, 8, 1)
    assert np.isfinite(metrics.loss).all()
    np.testing.assert_array_equal(metrics.diverged_step, [7, -1])
    for old, new in zip(before, leaves((state.params, state.opt_state)), strict=True):
        np.testing.assert_array_equal(old[0], new[0])


def test_each_example_of_each_step_has_a_key_of_its_own():
    found, params, optimizer = [], {"weight": jnp.zeros(1)}, optax.identity()

    def mean(function, params, batch, keys):
        found.append(jax.random.key_data(keys))
        return (jnp.zeros(()), jnp.zeros(())), params

    start = state.TrainState(params, {}, optimizer.init(params), jnp.array(-1), None)
    batch = arrays.Batch(jnp.zeros((5, 3), int), jnp.ones((5, 3), bool), jnp.zeros(5, int))
    for step, seed in ((0, 0), (1, 0), (0, 1)):
        key = state.seed_keys(seed)[1]
        state.train_step(
            start, step, batch, key, graphdef=None, optimizer=optimizer, mean_over_parts=mean
        )
    assert len(np.unique(np.concatenate(found), axis=0)) == 3 * 5


def test_the_parameters_of_a_model_are_counted_once_however_many_seeds(tiny_trainer):
    trainers = [tiny_trainer("listops", "linear", f"seeds={seeds}") for seeds in ((0,), (0, 1))]
    one, two = (trainer.num_params(trainer.abstract_state()) for trainer in trainers)
    assert one == two
