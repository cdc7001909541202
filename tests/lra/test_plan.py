"""How batches are divided, and to which lengths they are cut."""

import jax
import numpy as np
import pytest

from lra import plan
from lra.plan import (
    Buckets,
    bucket_ends,
    choose_buckets,
    evaluation_order,
    number_of_parts,
    plan_batches,
)
from lra.settings import load_config

SPREAD = np.arange(500, 2001)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(plan, "cores", lambda: 2)


@pytest.mark.parametrize(
    ("batch", "example_numbers", "at_least", "expected"),
    [
        (32, 64 * 64, 1, 1),  # small: whole
        (32, 2048 * 64, 1, 8),  # ListOps
        (32, 4096 * 64, 1, 16),  # Text
        (256, 1024 * 64, 1, 32),  # Image
        (12, 2048 * 64, 1, 3),  # divisors only
        (12, 2048 * 64, 2, 4),  # multiples of what was asked for
        (8, 16384 * 64, 1, 8),  # one example is too much already
        (32, 64 * 64, 4, 4),
    ],
)
def test_a_part_fits_the_caches(batch, example_numbers, at_least, expected):
    assert number_of_parts(batch, example_numbers, at_least=at_least) == expected


def test_the_parts_of_a_large_batch_are_found_at_once():
    prime = 2**31 - 1
    assert number_of_parts(prime, 64) == prime


def test_an_accelerator_takes_what_was_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert number_of_parts(32, 2**20) == 1
    assert number_of_parts(32, 2**20, at_least=4) == 4


def test_several_devices_take_what_was_asked_for():
    assert number_of_parts(32, 2**20, devices=8) == 1


def test_buckets_hold_about_equally_many_examples():
    ends = choose_buckets(SPREAD, 2048)[0].ends
    assert ends == (1024, 1280, 1792, 2048)
    counts = np.unique(bucket_ends(SPREAD, ends), return_counts=True)[1]
    assert counts.max() <= 0.35 * len(SPREAD)
    assert (bucket_ends(SPREAD, ends) >= SPREAD).all()


@pytest.mark.parametrize(("batch", "parts", "number_of_lengths"), [(4, 1, 1), (8, 2, 4)])
def test_a_batch_in_one_part_is_not_cut_but_its_evaluations_are(batch, parts, number_of_lengths):
    config = load_config("configs/listops.py:standard", [f"train.batch_size={batch}"])
    chosen = plan_batches(config, SPREAD, 2048, pairs=False, devices=1)
    assert (chosen.parts, len(chosen.buckets.ends)) == (parts, number_of_lengths)
    assert chosen.buckets.ends[-1] == 2048
    assert len(chosen.eval_buckets.ends) > 4


def test_evaluations_have_finer_buckets():
    training, evaluation = choose_buckets(SPREAD, 2048)
    assert evaluation == Buckets((768, 1024, 1280, 1536, 1792, 2048))
    assert set(training.ends) < set(evaluation.ends)


def test_empty_sequences_have_a_bucket_of_some_length():
    training, _ = choose_buckets(np.repeat([0, 1000], [40, 60]), 2048)
    assert training == Buckets((256, 1024, 2048))


@pytest.mark.parametrize(
    ("lengths", "padded"),
    [
        (np.arange(10, 64), 64),  # short: compilation would take longer
        (np.full(100, 1024), 1024),  # no padding
        (np.repeat([1000, 2000], [5, 95]), 2048),  # hardly any
        (np.repeat([1700, 2000], [30, 70]), 2048),  # a part of them could be cut, by an eighth
    ],
)
def test_data_without_much_padding_are_not_cut(lengths, padded):
    training, _ = choose_buckets(lengths, padded)
    assert training == Buckets((padded,))


def test_only_a_single_cpu_device_cuts(monkeypatch):
    uncut = Buckets((2048,))
    assert choose_buckets(SPREAD, 2048, devices=8) == (uncut, uncut)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_buckets(SPREAD, 2048) == (uncut, uncut)


def test_an_evaluation_goes_through_batches_of_like_length_in_any_order():
    lengths = np.random.default_rng(0).integers(1, 100, 43)
    order = evaluation_order(lengths, 8)
    assert sorted(order) == list(range(43))
    *full, rest = np.split(lengths[order], [8, 16, 24, 32, 40])
    first = [batch[0] for batch in full]
    assert sorted(first) != first != sorted(first, reverse=True)
    descending = sorted([*full, rest], key=lambda batch: -batch[0])
    np.testing.assert_array_equal(np.concatenate(descending), np.sort(lengths)[::-1])


PIXELS = np.arange(250, 500)  # real ones of images


def packed_to(length):
    return (Buckets((length,), packed=True),) * 2


def test_packed_lengths_hold_the_longest_of_any_split():
    training, evaluation = choose_buckets(PIXELS, 1024, longest=530)
    assert training == Buckets((320, 384, 448, 576), packed=True)
    assert evaluation == Buckets((320, 384, 448, 512, 576), packed=True)
    assert choose_buckets(PIXELS, 1024, longest=1020)[0].ends == (320, 384, 448, 1024)
    assert choose_buckets(PIXELS, 1500, longest=1490)[0].ends[-1] == 1500
    assert choose_buckets(PIXELS * 0, 1024, longest=0) == packed_to(64)


def test_other_devices_pack_the_same_data_to_one_length(monkeypatch):
    assert choose_buckets(PIXELS, 1024, longest=530, devices=8) == packed_to(576)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_buckets(PIXELS, 1024, longest=530) == packed_to(576)
    # All of them, or a run would drop other entries elsewhere.
    assert choose_buckets(PIXELS, 1024, longest=1024) == packed_to(1024)


def test_whether_images_are_packed_is_up_to_the_training_examples():
    for longest in (960, 1024):
        packed, _ = choose_buckets(np.arange(850, 910), 1024, longest=longest)
        assert packed.ends[-1] == longest
        whole = (Buckets((1024,)),) * 2
        assert choose_buckets(np.arange(930, 960), 1024, longest=longest) == whole


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize(
    ("lengths", "padded"),
    [
        (np.arange(10, 64), 512),  # short: compilation would take longer
        (np.full(100, 1024), 1024),  # no padding
        (np.full(100, 1000), 1024),  # hardly any
    ],
)
def test_images_without_many_zeros_are_not_packed(lengths, padded, devices):
    whole = (Buckets((padded,)),) * 2
    assert choose_buckets(lengths, padded, longest=padded, devices=devices) == whole


def test_both_texts_of_a_pair_count(monkeypatch):
    monkeypatch.setattr("lra.plan.cores", lambda: 2)
    config = load_config("configs/listops.py:standard")
    parts = [
        plan_batches(config, np.arange(500, 2001), 2048, pairs=pairs, devices=1).parts
        for pairs in (False, True)
    ]
    assert parts == [8, 16]
