"""Padding, batches, the order of examples, held-out examples."""

import dataclasses
import hashlib

import jax.numpy as jnp
import numpy as np
import pytest

from lra import arrays
from lra.data import prepared
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.tasks import TASKS

SPLITS = ("train", "validation", "test")


def load(data_dir, task, names=SPLITS, holdout=0.0):
    return arrays.load_examples(prepared.load(data_dir, task), names, holdout)


def test_padded_rows_hold_the_sequences(data_dir):
    split = prepared.load(data_dir, "listops").split("train")
    examples = load(data_dir, "listops")["train"]
    assert examples.tokens.shape == (50, 16)
    for i in range(50):
        length = examples.lengths[i]
        np.testing.assert_array_equal(examples.tokens[i, :length], split.sequences[i])
        assert not examples.tokens[i, length:].any()


def test_a_batch_of_bytes_counts_zero_as_a_byte():
    tokens = np.array([[0, 255, 0, 0]], np.uint8)
    examples = arrays.Examples(tokens, np.array([3]), np.array([1]), None)
    batch = arrays.gather(examples, jnp.array([0, 0]), TASKS["text"], False)
    np.testing.assert_array_equal(batch.ids, [[1, 256, 1, 0]] * 2)
    np.testing.assert_array_equal(batch.mask, [[True, True, True, False]] * 2)
    np.testing.assert_array_equal(batch.labels, [1, 1])


@pytest.mark.parametrize("zero_is_padding", [True, False])
def test_a_batch_of_pixels_masks_black_where_asked(zero_is_padding):
    tokens = np.array([[0, 200, 0, 7]], np.uint8)
    examples = arrays.Examples(tokens, np.array([4]), np.array([1]), None)
    batch = arrays.gather(examples, jnp.array([0]), TASKS["image"], zero_is_padding)
    np.testing.assert_array_equal(batch.ids, [[0, 200, 0, 7]])
    expected = [not zero_is_padding, True, not zero_is_padding, True]
    np.testing.assert_array_equal(batch.mask, [expected])


def test_a_batch_of_pairs_holds_both_documents(data_dir):
    split = prepared.load(data_dir, "retrieval").split("test")
    examples = load(data_dir, "retrieval")["test"]
    batch = arrays.gather(examples, jnp.array([4, 2]), TASKS["retrieval"], False)
    assert batch.ids.shape == (2, 2, 16)
    first = split.sequences[split.pairs[4, 1]]
    np.testing.assert_array_equal(batch.ids[0, 1, : len(first)], first.astype(int) + 1)


def test_a_pair_is_as_long_as_its_longer_text(data_dir):
    data = prepared.load(data_dir, "retrieval")
    sequences, pairs = data.split("train").sequences, data.split("train").pairs
    expected = [max(len(sequences[one]), len(sequences[other])) for one, other in pairs]
    np.testing.assert_array_equal(arrays.stored_lengths(data, "train"), expected)


def test_real_positions_are_those_that_are_not_0(tmp_path):
    items = [[3, 0, 5, 0], [], [0, 0], [0], [7], [1, 2, 0, 4, 5]]
    with TaskWriter(tmp_path, "image") as writer:
        for split in SPLITS:
            writer.examples(split, [(np.array(item, np.uint8), 0) for item in items])
        counts = dict.fromkeys(SPLITS, len(items))
        writer.finish(data="tiny", source="a test", counts=counts, max_length=5)
    data = prepared.load(tmp_path, "image")
    np.testing.assert_array_equal(
        arrays.stored_lengths(data, "train", real=True), [2, 0, 0, 0, 1, 4]
    )


@pytest.mark.parametrize(
    ("token", "label", "message"),
    [(15, 9, None), (16, 9, "ids go up to 16"), (1, 10, "one of 0 to 9"), (1, -1, "one of 0 to 9")],
)
def test_ids_and_labels_that_the_task_has_not_are_refused(token, label, message):
    examples = arrays.Examples(np.uint8([[1, token]]), np.int32([2]), np.int32([label]), None)
    if message is None:
        arrays.check_fits([examples], TASKS["listops"])
        return
    with pytest.raises(UserError, match=message):
        arrays.check_fits([examples], TASKS["listops"])


def test_every_epoch_shows_every_example_once():
    stream = arrays.training_indices(10, seed=3, start=0, count=40).reshape(4, 10)
    assert (np.sort(stream, axis=1) == np.arange(10)).all()
    assert len({tuple(epoch) for epoch in stream}) == 4


def test_the_stream_does_not_depend_on_how_it_is_cut():
    whole = arrays.training_indices(10, seed=3, start=0, count=40)
    parts = [arrays.training_indices(10, 3, start, 7) for start in range(0, 35, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[:35])


def test_the_order_of_examples_is_fixed_for_ever():
    stream = arrays.training_indices(1000, seed=1, start=0, count=3000)
    assert hashlib.sha256(stream.astype("<i4")).hexdigest()[:16] == "1c8037fd7fde6825"


def test_holdout_splits_the_training_set(data_dir):
    whole = load(data_dir, "listops")
    split = load(data_dir, "listops", holdout=0.2)
    assert len(split["train"].labels) == 40
    assert len(split["validation"].labels) == 10
    rows = np.concatenate([split["train"].tokens, split["validation"].tokens])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, whole["train"].tokens))
    np.testing.assert_array_equal(split["test"].tokens, whole["test"].tokens)
    again = load(data_dir, "listops", holdout=0.2)
    np.testing.assert_array_equal(again["validation"].tokens, split["validation"].tokens)


@pytest.mark.parametrize("holdout", [0.0, 0.2])
def test_every_split_has_its_own_sequences(data_dir, holdout):
    expected = arrays.pad(prepared.load(data_dir, "listops").split("test").sequences, 16)
    for _ in range(20):  # objects that are gone lend their address to later ones
        splits = load(data_dir, "listops", holdout=holdout)
        np.testing.assert_array_equal(splits["test"].tokens, expected[0])
        for split in splits.values():
            assert len(split.tokens) == len(split.lengths) == len(split.labels)


@pytest.mark.parametrize("holdout", [0.0, 0.2])
@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize("task", ["listops", "text", "retrieval"])
def test_every_example_is_found_where_it_is_stored(task, name, holdout, data_dir):
    examples = load(data_dir, task, (name,), holdout)[name]
    data = prepared.load(data_dir, task)
    stored, positions = arrays.stored_index(data, name, holdout)
    split = data.split(stored)
    np.testing.assert_array_equal(split.labels[positions], examples.labels)
    if split.pairs is None:
        tokens, _ = arrays.pad(split.sequences, 16)
        np.testing.assert_array_equal(tokens[positions], examples.tokens)
    else:
        np.testing.assert_array_equal(split.pairs[positions], examples.pairs)
    if not holdout or name == "test":
        np.testing.assert_array_equal(positions, np.arange(len(split.labels)))


def test_the_stored_split_is_named():
    data = prepared.Prepared(
        {"aliases": {"validation": "test"}},
        None,
        {
            f"{split}/{name}.npy": np.zeros(10, np.int32)
            for split in ("train", "test")
            for name in ("tokens", "offsets", "labels")
        },
    )
    for name, holdout, expected in (
        ("train", 0.0, "train"),
        ("validation", 0.0, "test"),
        ("validation", 0.2, "train"),
        ("train", 0.2, "train"),
        ("test", 0.2, "test"),
    ):
        assert arrays.stored_index(data, name, holdout)[0] == expected


def test_holdout_of_pairs_keeps_the_documents(data_dir):
    split = load(data_dir, "retrieval", holdout=0.5)
    assert len(split["train"].pairs) == len(split["validation"].pairs) == 25
    assert split["train"].tokens.shape == (20, 16)


def test_a_holdout_that_leaves_nothing_is_refused(data_dir):
    with pytest.raises(UserError, match="leaves a split empty"):
        load(data_dir, "listops", holdout=0.001)


def test_a_validation_set_that_is_the_test_set_is_held_once(tmp_path):
    with TaskWriter(tmp_path, "text") as writer:
        for split in ("train", "test"):
            writer.examples(split, [(b"ab", 0), (b"c", 1)])
        writer.finish(
            data="tiny",
            source="a test",
            counts={"train": 2, "validation": 2, "test": 2},
            max_length=2,
            aliases={"validation": "test"},
        )
    splits = load(tmp_path, "text")
    assert splits["validation"] is splits["test"]


@pytest.mark.parametrize(
    ("longest", "padded"), [(1, 1), (1024, 1024), (1999, 2048), (4096, 4096), (4097, 8192)]
)
def test_sequences_are_padded_to_the_power_of_two_that_holds_them(longest, padded):
    assert arrays.padded_length(prepared.Prepared({"max_length": longest}, None, {})) == padded


def test_the_examples_held_out_are_the_same_for_ever(data_dir):
    """The first in an order of the training examples that no epoch of a training has."""
    whole = load(data_dir, "listops")["train"].tokens
    order = arrays.permutation(50, 0, 2**63)
    split = load(data_dir, "listops", holdout=0.2)
    np.testing.assert_array_equal(split["validation"].tokens, whole[np.sort(order[:10])])


def test_ids_are_refused_by_what_they_become():
    task = dataclasses.replace(TASKS["text"], vocab_size=256)
    fits, exceeds = (
        arrays.Examples(np.uint8([[token]]), np.int32([1]), np.int32([0]), None)
        for token in (254, 255)
    )
    arrays.check_fits([fits], task)
    with pytest.raises(UserError, match="ids go up to 256"):
        arrays.check_fits([exceeds], task)
