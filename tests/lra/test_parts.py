"""Parts cut to the length of their longest sequence: the same results, less work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import plan
from lra.arrays import Batch
from lra.data.task_writer import TaskWriter
from lra.evaluation import evaluate
from lra.pace import Pace
from lra.parts import by_length, in_bucket, mean_over_parts
from lra.plan import Buckets
from lra.stopping import Stopped
from tests.attention_cases import SMALL
from tests.lra.conftest import ALL_DEVICES
from tests.lra.test_trainer import assert_close
from tests.lra.trainings import make_trainer
from tests.programs import equations
from tests.suites import slow_but

pytestmark = pytest.mark.usefixtures("shared_programs")


def batch_of(lengths, padded=16):
    """Examples (or pairs) of these lengths."""
    lengths = np.asarray(lengths)
    mask = jnp.asarray(np.arange(padded) < lengths[..., None])
    return Batch(mask.astype(jnp.int32), mask, jnp.zeros(len(lengths), jnp.int32))


@pytest.mark.parametrize(("longest", "cut_to"), [(1, 4), (4, 4), (5, 8), (9, 16), (16, 16), (0, 4)])
def test_a_batch_is_cut_behind_its_longest_sequence(longest, cut_to):
    batch = batch_of([0, longest])
    found = jax.jit(lambda batch: in_bucket(length_of, Buckets((4, 8, 16)), batch))(batch)
    np.testing.assert_array_equal(found, [cut_to, longest])


def length_of(batch, _):
    """The length it was cut to, and the tokens of its last example."""
    return jnp.array([batch.mask.shape[-1], jnp.sum(batch.ids[-1])])


def test_a_mask_with_holes_is_cut_behind_its_last_token():
    mask = jnp.zeros((1, 16), bool).at[0, 6].set(True)
    batch = Batch(mask.astype(jnp.int32), mask, jnp.zeros(1, jnp.int32))
    np.testing.assert_array_equal(in_bucket(length_of, Buckets((4, 8, 16)), batch), [8, 1])


def test_the_longest_come_first_and_pairs_count_as_their_longer_text():
    np.testing.assert_array_equal(by_length(batch_of([3, 9, 5, 9])), [1, 3, 2, 0])
    np.testing.assert_array_equal(by_length(batch_of([[3, 4], [9, 1], [5, 5]])), [1, 2, 0])


def test_mapped_batches_are_cut_alike():
    mapped = jax.vmap(
        lambda batch: in_bucket(length_of, Buckets((4, 8, 16)), batch, axis_name="seeds"),
        axis_name="seeds",
    )
    batch = jax.tree.map(lambda *x: jnp.stack(x), batch_of([3]), batch_of([7]))
    np.testing.assert_array_equal(mapped(batch), [[8, 3], [8, 7]])
    # One branch is carried out, not all of them and then one result chosen.
    assert "cond[" in str(jax.make_jaxpr(mapped)(batch))


def test_a_mask_with_holes_may_be_packed_into_its_number_of_tokens():
    mask = jnp.zeros((2, 16), bool).at[0, 6:11].set(True).at[1, 15].set(True)
    batch = Batch(mask.astype(jnp.int32), mask, jnp.zeros(2, jnp.int32))

    def seen(batch, packed_length):
        return jnp.array([batch.mask.shape[-1], packed_length])

    for ends, expected in (((4, 8, 12), 8), ((12,), 12)):
        buckets = Buckets(ends, packed=True)
        np.testing.assert_array_equal(in_bucket(seen, buckets, batch), [16, expected])
    np.testing.assert_array_equal(by_length(batch, packed=True), [0, 1])
    np.testing.assert_array_equal(by_length(batch), [1, 0])


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_model_gets_one_part_at_a_time(parts):
    batch, sizes = batch_of([3, 9, 5, 9]), []

    def gradients(params, part, keys, _):
        sizes.append(part.labels.size)
        loss = jnp.sum(part.mask, dtype=jnp.float32) * params / part.labels.size
        return (loss, loss), loss

    keys = jax.random.split(jax.random.key(0), 4)
    (loss, _), _ = mean_over_parts(
        gradients, jnp.float32(2), batch, keys, parts=parts, buckets=Buckets((16,))
    )
    assert loss == 2 * 26 / 4
    assert set(sizes) == {4 // parts}


@pytest.fixture
def cut_short_sequences(monkeypatch):
    """The data of these tests have sequences of 3 to 14 positions."""
    monkeypatch.setattr(plan, "_MIN_PADDED", 1)
    monkeypatch.setattr(plan, "_STEP", 2)
    monkeypatch.setattr(plan, "_PACKED_STEP", 2)
    # The program has a branch of each length, which takes seconds to compile.
    monkeypatch.setattr(plan, "_MAX_BUCKETS", 2)
    monkeypatch.setattr(plan, "_MAX_EVAL_BUCKETS", 2)


@pytest.fixture
def both(tiny_trainer, cut_short_sequences):
    """Make trainers of whole batches and of cut parts of two examples."""

    def make_both(task, attention, *overrides):
        own = (task, attention, "seeds=(0, 1)", "train.microbatches=4", *overrides)
        # Both may begin with the same state, so neither uses it up.
        whole, cut = (tiny_trainer(*own, cut_padding=cut, donate=False) for cut in (False, True))
        assert len(whole.plan.eval_buckets.ends) == 1 < len(cut.plan.eval_buckets.ends)
        return whole, cut

    return make_both


@pytest.mark.parametrize(
    ("task", "attention"),
    slow_but(
        [("listops", "linear")],
        [("retrieval", "standard"), *(("listops", name) for name in SMALL)],
    ),
)
def test_training_on_cut_parts_is_that_on_whole_ones(both, task, attention):
    whole, cut = both(task, attention)
    state = whole.init()
    assert_close(whole.train(state, 0, 3), cut.train(state, 0, 3))


def test_a_step_carries_out_one_branch(both, monkeypatch):
    # Of a condition that differs between seeds all branches would be carried out.
    monkeypatch.setattr(plan, "_MAX_BUCKETS", 3)
    whole, cut = both("listops", "linear")
    assert len(cut.plan.buckets.ends) > 2  # other conditions have two branches
    assert len(cut.plan.buckets.ends) not in conditions(whole)
    assert conditions(cut).count(len(cut.plan.buckets.ends)) == 1


def conditions(trainer):
    """Of a training call: of how many branches each condition is."""

    arguments = trainer.train_arguments(trainer.abstract_state(), 0, 1)
    program = jax.make_jaxpr(trainer.programs.train)(*arguments)
    return [
        len(equation.params["branches"])
        for equation in equations(program.jaxpr)
        if equation.primitive.name == "cond"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["linear", "standard"])
def test_seeds_together_equal_seeds_alone(tiny_trainer, cut_short_sequences, attention):
    # Their parts differ in length; dropped attention weights do not tell.
    together, alone = (
        tiny_trainer("listops", attention, f"seeds={seeds}", "train.microbatches=4")
        for seeds in ("(0, 1)", "(1,)")
    )
    state, _ = together.train(together.init(), 0, 3)
    expected, _ = alone.train(alone.init(), 0, 3)
    assert_close(jax.tree.map(lambda x: x[1:], state), expected)


@pytest.mark.parametrize(
    ("task", "attention"),
    slow_but(
        [("listops", "linear")],
        [("listops", "linear"), ("listops", "nystrom"), ("retrieval", "nystrom")],
    ),
)
def test_an_evaluation_by_length_is_that_in_order(both, task, attention):
    whole, cut = both(task, attention)
    state = whole.init()
    one, other = (evaluate(t, state.params, state.rest, "test") for t in (whole, cut))
    np.testing.assert_allclose(other.logits, one.logits, atol=1e-5)
    np.testing.assert_allclose(other.accuracy, one.accuracy, atol=1e-6)
    np.testing.assert_allclose(other.loss, one.loss, atol=1e-5)


def test_a_resumed_evaluation_goes_on_in_the_same_order(both):
    _, cut = both("listops", "linear")
    state = cut.init()
    broken, resumed = (cut.new_evaluation(state.params, state.rest, "test") for _ in range(2))

    def stop(_):
        if broken.done:
            raise Stopped

    with pytest.raises(Stopped):
        broken.to_the_end(Pace(), stop)
    resumed.resume(np.asarray(broken.logits), broken.done)
    expected = evaluate(cut, state.params, state.rest, "test")
    np.testing.assert_array_equal(resumed.to_the_end(Pace()).logits, expected.logits)


@pytest.mark.slow
def test_parts_without_microbatches_are_cut_too(tiny_trainer, monkeypatch, cut_short_sequences):
    one_part = tiny_trainer("listops", "linear")
    monkeypatch.setattr(plan, "_ELEMENTS_PER_CORE", 1)
    single = tiny_trainer("listops", "linear")
    assert len(one_part.plan.buckets.ends) == 1 < len(single.plan.buckets.ends)
    assert_close(one_part.train(one_part.init(), 0, 3), single.train(single.init(), 0, 3))


def test_several_devices_take_whole_batches(tiny_trainer, cut_short_sequences):
    trainer = tiny_trainer("listops", "linear", *ALL_DEVICES)
    assert trainer.plan.eval_buckets.ends == (trainer.length,)


@pytest.mark.parametrize("attention", slow_but(("linear",), SMALL))
def test_training_on_packed_images_is_that_on_whole_ones(
    both, attention, monkeypatch, own_programs
):
    # AdamW divides a gradient by its own size, so one that is rounding alone would make a step of
    # any size; with this epsilon it makes none.
    monkeypatch.setattr("lra.optimizer._EPSILON", 1e-3)
    # What is dropped differs, so nothing is.
    drops = ["model.dropout=0.0"]
    drops += ["model.attention.dropout=0.0"] if attention == "standard" else []
    whole, packed = both("pathfinder", attention, *drops)
    assert packed.plan.buckets.packed
    assert not whole.plan.buckets.packed
    state = whole.init()
    assert_close(whole.train(state, 0, 3), packed.train(state, 0, 3))


@pytest.mark.parametrize("attention", slow_but(("linear",), ("linear", "nystrom")))
def test_packed_images_are_evaluated_as_whole_ones(both, attention):
    whole, packed = both("pathfinder", attention)
    state = whole.init()
    one, other = (evaluate(t, state.params, state.rest, "test") for t in (whole, packed))
    np.testing.assert_allclose(other.logits, one.logits, atol=1e-5)


@pytest.mark.slow
def test_dropout_does_not_depend_on_the_length_that_images_are_packed_to(
    tiny_trainer, cut_short_sequences
):
    together = tiny_trainer("pathfinder", "standard")
    parts_of_two = tiny_trainer("pathfinder", "standard", "train.microbatches=4")
    assert together.plan.buckets.packed
    assert parts_of_two.plan.buckets.packed
    assert len(together.plan.buckets.ends) == 1 < len(parts_of_two.plan.buckets.ends)
    assert_close(
        together.train(together.init(), 0, 3), parts_of_two.train(parts_of_two.init(), 0, 3)
    )


def test_without_zeros_as_padding_nothing_is_packed(tiny_trainer, cut_short_sequences):
    trainer = tiny_trainer("pathfinder", "linear", "data.zero_is_padding=False")
    assert not trainer.plan.buckets.packed
    assert trainer.plan.buckets.ends == (trainer.length,)


def test_the_plan_is_that_of_all_stored_splits_whichever_are_loaded(
    tiny_trainer, cut_short_sequences
):
    plans = [tiny_trainer("pathfinder", "linear", splits=x).plan for x in ((), ("test",))]
    assert plans == [tiny_trainer("pathfinder", "linear").plan] * 2
    assert plans[0].buckets.packed


@pytest.mark.slow
def test_images_of_other_splits_may_have_more_pixels(tiny_config, cut_short_sequences, tmp_path):
    write_growing_images(tmp_path)
    config = tiny_config("pathfinder", "standard")
    whole, packed = (make_trainer(config, tmp_path, cut_padding=cut) for cut in (False, True))
    assert packed.training_lengths.max() == 8
    assert packed.plan.buckets.ends[-1] == packed.plan.eval_buckets.ends[-1] == 14
    state = whole.init()
    for split in ("validation", "test"):
        one, other = (evaluate(t, state.params, state.rest, split) for t in (whole, packed))
        np.testing.assert_allclose(other.logits, one.logits, atol=1e-5)


def write_growing_images(folder):
    """Of 16 pixels, up to 8 are real in training, up to 11 in validation and 14 in test."""
    rng = np.random.default_rng(0)
    counts = {"train": 24, "validation": 10, "test": 10}
    with TaskWriter(folder, "pathfinder") as writer:
        for split, real in zip(counts, (8, 11, 14), strict=True):
            images = np.zeros((counts[split], 16), np.uint8)
            for number, image in enumerate(images):
                places = rng.permutation(16)[: real - number % 4]
                image[places] = rng.integers(1, 256, len(places))
            writer.examples(split, [(image, i % 2) for i, image in enumerate(images)])
        writer.finish(data="tiny", source="a test", counts=counts, max_length=16)
