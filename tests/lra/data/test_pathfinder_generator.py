import hashlib

import numpy as np
import pytest

from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import DASHES, SIZES, parameters
from tests.lra.data import pathfinder_reference as reference

# Of images and labels of seed 0, hard: (size, images).
SHA256 = {
    (32, 600): "09d82807e3e1e47af0ca058bdb15796d3082b8e4c4ffdde2a3d041f90cb43c8b",
    (64, 8): "dbc461b0aa8995ba45fa7fd581fcdf52fda2e47cd1bb2eebca9224e55a4aea59",
    (128, 40): "729c07e67d42c60c31d84d3a6a8ee85cacc6bf7e5c58518e6d713439e7c04560",
    (256, 16): "e9161f20278a934f085ab5294f6788746c6af15954f2e4e2952112dc5d4bbd2b",
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


def test_an_image_depends_on_seed_and_number_alone():
    (few,) = make(32, "hard", seed=2**63, count=3)
    (many,) = make(32, "hard", seed=2**63, count=20)
    (others,) = make(32, "hard", seed=2**63 + 1, count=20)
    np.testing.assert_array_equal(few.images, many.images[:3])
    assert len(np.unique(np.concatenate([many.images, others.images]), axis=0)) == 40


@pytest.mark.parametrize("size", SIZES)
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
