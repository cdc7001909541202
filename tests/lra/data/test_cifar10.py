import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lra.data import cifar10
from lra.errors import UserError
from tests.lra.data.cifar_pickles import python2_pickle

GENERATOR = np.random.default_rng(0)
RGB = GENERATOR.integers(0, 256, (4, 3, 1024), np.uint8)
LABELS = [0, 9, 3, 7]


def records(labels=LABELS, rgb=RGB) -> bytes:
    return b"".join(
        bytes([label]) + image.tobytes() for label, image in zip(labels, rgb, strict=True)
    )


def exact_grey(red: int, green: int, blue: int) -> int:
    """trunc(255.5 * (0.2989 R + 0.5870 G + 0.1140 B) / 255) in integers."""
    return (2989 * red + 5870 * green + 1140 * blue) * 511 // 5_100_000


def test_a_binary_batch_is_labels_and_grey_pixels_row_by_row():
    images = cifar10.parse_records(records(), "batch")
    assert images.labels.tolist() == LABELS
    assert images.pixels.shape == (4, 1024)
    for image, pixel in ((0, 0), (0, 1), (1, 31), (2, 32), (3, 1023)):
        red, green, blue = (int(RGB[image, channel, pixel]) for channel in range(3))
        assert images.pixels[image, pixel] == exact_grey(red, green, blue)


def test_both_versions_give_the_same_images():
    binary = cifar10.parse_records(records(), "batch")
    python = cifar10.parse_pickle(python2_pickle(RGB.reshape(4, 3072), LABELS), "batch")
    np.testing.assert_array_equal(python.labels, binary.labels)
    np.testing.assert_array_equal(python.pixels, binary.pixels)


def test_grey_of_all_colours_differs_from_exact_arithmetic_in_237():
    levels = np.arange(256, dtype=np.int64)
    differing = 0
    for red in range(0, 256, 16):
        reds = np.arange(red, red + 16)
        rgb = np.stack([c.ravel() for c in np.meshgrid(reds, levels, levels, indexing="ij")])
        difference = cifar10.grey(rgb[None].astype(np.uint8))[0] - exact_grey(*rgb)
        assert set(np.unique(difference)) <= {0, 1}
        differing += np.count_nonzero(difference)
    assert differing == 237


# Printed by tf.image.rgb_to_grayscale of TensorFlow 2.21. In the first five exact arithmetic is
# one lower; in the others arithmetic with fused multiplications and additions is one off.
TENSORFLOW_GREY = {
    (0, 122, 186): 93,
    (70, 105, 90): 93,
    (126, 42, 145): 79,
    (199, 146, 171): 165,
    (242, 119, 136): 158,
    (16, 218, 140): 148,
    (81, 152, 3): 114,
    (188, 232, 186): 213,
    (252, 95, 32): 134,
    (0, 0, 0): 0,
    (255, 255, 255): 255,
}


def test_grey_is_tensorflows_where_rounding_matters():
    colours = np.array(list(TENSORFLOW_GREY), np.uint8).T[None]
    assert cifar10.grey(colours)[0].tolist() == list(TENSORFLOW_GREY.values())


def test_grey_of_many_images_is_that_of_each():
    rgb = GENERATOR.integers(0, 256, (2001, 3, 4), np.uint8)
    side_by_side = rgb.swapaxes(0, 1).reshape(1, 3, -1)
    np.testing.assert_array_equal(cifar10.grey(rgb).ravel(), cifar10.grey(side_by_side)[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "batch, image 0: 0 bytes"),
        (records()[:-1], "batch, image 3: 3072 bytes instead of 3073"),
        (records() + b"12", "batch, image 4: 2 bytes"),
        (records([0, 10, 0, 0]), "batch, image 1: label 10 is not in 0 to 9"),
    ],
)
def test_a_bad_binary_batch_is_named_with_its_place(content, message):
    with pytest.raises(UserError, match=message):
        cifar10.parse_records(content, "batch")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "no list of numbers 'labels'"),
        ({b"data": RGB.reshape(4, -1)}, "no list of numbers 'labels'"),
        ({b"labels": [0, "1"], b"data": RGB.reshape(4, -1)}, "no list of numbers 'labels'"),
        ({b"labels": LABELS}, "no array 'data'"),
        ({b"labels": LABELS, b"data": b"pixels"}, "no array 'data'"),
        ({b"labels": LABELS, b"data": RGB[:3].reshape(3, -1)}, r"shape \(3, 3072\) instead of"),
        ({b"labels": LABELS, b"data": RGB[:, :, :784].reshape(4, -1)}, r"shape \(4, 2352\)"),
        ({b"labels": [], b"data": RGB[:0].reshape(0, 3072)}, "shape"),
        ({b"labels": [0, -1, 2**70, 0], b"data": RGB.reshape(4, -1)}, "image 1: label -1"),
    ],
)
def test_a_bad_python_batch_is_named(batch, message):
    with pytest.raises(UserError, match=f"batch.*{message}"):
        cifar10.parse_pickle(pickle.dumps(batch, protocol=4), "batch")


@given(st.lists(st.integers(0, 255), max_size=3), st.integers(-3, 3), st.integers(0, 255))
def test_any_records_give_their_images_or_a_user_error(labels, extra, level):
    rgb = np.full((len(labels), 3, 1024), level, np.uint8)
    content = records(labels, rgb)
    content = content[:extra] if extra < 0 else content + bytes(extra)
    if labels and max(labels) < 10 and len(content) == 3073 * len(labels):
        images = cifar10.parse_records(content, "batch")
        assert images.labels.tolist() == labels
        assert np.all(images.pixels == exact_grey(level, level, level))
    else:
        with pytest.raises(UserError, match=r"^batch, image \d+: "):
            cifar10.parse_records(content, "batch")


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), max_size=8))
def test_any_pickle_gives_images_or_a_user_error(changes):
    content = bytearray(python2_pickle(RGB.reshape(4, -1), list(LABELS)))
    start = content.index(b"labels")  # what comes before and the ends matter more than pixels
    for place, value in changes:
        content[place % len(content) if place % 2 else start - 50 + place % 300] = value
    try:
        images = cifar10.parse_pickle(bytes(content), "batch")
    except UserError as error:
        assert str(error).startswith("batch")  # noqa: PT017
        return
    assert images.pixels.shape == (len(images.labels), 1024)
    assert images.labels.max() < 10


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_order_of_tfds_is_its_own(split):
    hashing = pytest.importorskip("tensorflow_datasets.core.hashing")
    hasher = hashing.Hasher(split)
    order = sorted(range(500), key=hasher.hash_key)
    assert cifar10.tfds_order(split, 500).tolist() == order


def test_the_order_of_tfds_starts_as_in_its_prepared_data():
    # The features 'id' of the first examples of cifar10 3.0.2, prepared by TFDS 4.9.10.
    assert cifar10.tfds_order("train", 50_000)[:4].tolist() == [16399, 1680, 47917, 17307]
    assert cifar10.tfds_order("test", 10_000)[:4].tolist() == [9933, 5669, 163, 6686]
