import hashlib
import math

import numpy as np
import pytest

from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import DASHES, SIZES, parameters
from tests.lra.data import pathfinder_reference as reference
from tests.suites import slow_but

# Of images and labels of seed 0, hard: (size, images).
SHA256 = {
    (32, 600): "09d82807e3e1e47af0ca058bdb15796d3082b8e4c4ffdde2a3d041f90cb43c8b",
    (64, 8): "d1e8f822e64227d2c1fd120f7834ed55934916b06cf883f3fc035c272b642f17",
    (128, 40): "4a149a610d2bb66edb88848fbfcbe71b268df45dafd4c30e8856dfc54d74666e",
    (256, 16): "3707e9f9939e186f439f4bf5383e0ba8aed3f91c5591f58f5837fe195fa4c5e6",
}


def make(size, difficulty, *, seed, count, workers=1):
    return list(batches(parameters(size, difficulty), seed=seed, count=count, workers=workers))


def sha256(made):
    digest = hashlib.sha256()
    for batch in made:
        digest.update(batch.images)
        digest.update(batch.labels)
    return digest.hexdigest()


@pytest.mark.parametrize(("size", "count"), SHA256)
def test_bytes_never_change(size, count):
    assert sha256(make(size, "hard", seed=0, count=count)) == SHA256[size, count]


@pytest.mark.parametrize(("size", "count"), [(32, 600), (128, 40)])  # three batches each
def test_workers_change_nothing(size, count):
    made = make(size, "hard", seed=0, count=count, workers=2)
    assert len(made) == 3
    assert sha256(made) == SHA256[size, count]


@pytest.mark.parametrize(("size", "total"), [(64, 22), (128, 35), (256, 30)])
@pytest.mark.parametrize("difficulty", DASHES)
def test_distractors_are_a_quotient_rounded_up(size, total, difficulty):
    third = DASHES[difficulty] / 3
    assert parameters(size, difficulty).distractors == math.ceil(total / third)


@pytest.mark.parametrize("difficulty", DASHES)
def test_distractors_of_size_32_are_a_quotient_of_integers(difficulty):
    settings = parameters(32, difficulty)
    assert settings.distractor_dashes == DASHES[difficulty] // 3
    assert settings.distractors == 20 // settings.distractor_dashes


def test_an_image_depends_on_seed_and_number_alone():
    (few,) = make(32, "hard", seed=2**63, count=3)
    (many,) = make(32, "hard", seed=2**63, count=20)
    (others,) = make(32, "hard", seed=2**63 + 1, count=20)
    np.testing.assert_array_equal(few.images, many.images[:3])
    assert len(np.unique(np.concatenate([many.images, others.images]), axis=0)) == 40


@pytest.mark.parametrize("size", slow_but((32, 64), SIZES))
@pytest.mark.parametrize("difficulty", DASHES)
def test_follows_the_rules(size, difficulty):
    """Each dash may lie where it lies, and the picture shows the dashes and discs."""
    settings = parameters(size, difficulty)
    (batch,) = make(size, difficulty, seed=1, count=10 if size == 32 else 4)
    for index, image in enumerate(batch.images):
        margin = settings.margins[batch.layout.margins[index]]
        book = reference.Book(settings, margin)
        dashes = batch.layout.dashes[index]
        reference.check_placement(book, dashes, batch.layout.distractors[index])
        expected = reference.render(book, dashes, batch.discs[index])
        assert np.abs(image - expected).max() <= 0.51
