"""In how many parts a batch is taken."""

import jax
import pytest

from lra import parts
from lra.parts import number_of_parts


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(parts, "cores", lambda: 2)


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
