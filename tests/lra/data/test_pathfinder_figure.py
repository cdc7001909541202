import numpy as np
import pytest
from PIL import Image

from lra.data import pathfinder_figure
from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import parameters
from lra.errors import UserError


def test_writes_a_picture(tmp_path):
    path = tmp_path / "figures" / "examples.png"
    assert pathfinder_figure.main([f"--out={path}"]) == 0
    with Image.open(path) as image:
        grey = np.asarray(image.convert("L"))
    assert grey.shape == (520, 1120)
    # Mostly black images on white.
    assert 0.4 < np.mean(grey < 20) < 0.9


def test_rows_hold_images_of_one_label():
    (batch,) = batches(parameters(32, "hard"), seed=0, count=64)
    for label in (0, 1):
        expected = batch.images[batch.labels == label][: pathfinder_figure.COLUMNS]
        np.testing.assert_array_equal(pathfinder_figure.examples(32, label), expected)


def test_other_formats_are_refused():
    with pytest.raises(UserError, match=r"--out=examples\.pdf does not end in \.png"):
        pathfinder_figure.main(["--out=examples.pdf"])
