"""Read the files of CIFAR-10 (Krizhevsky, 2009) as greyscale images.

Both official versions contain the same images in the same order, in batches of 10,000 named
`data_batch_1` to `data_batch_5` and `test_batch`: binary (`.bin`) or pickled by Python 2.
"""

import hashlib
import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from lra.data.archives import ByteArray, read_members, unpickle_bytes
from lra.errors import UserError

PIXELS = 32 * 32

_NUM_CLASSES = 10
_RECORD_BYTES = 1 + 3 * PIXELS
_BATCHES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
_BATCH = re.compile(r"(?:^|/)(data_batch_[1-5]|test_batch)(\.bin)?$")
_MAX_BATCH_BYTES = 1 << 26  # the official batches have 31 MB


class Images(NamedTuple):
    """Labelled greyscale images.

    Attributes:
        labels: uint8 [n].
        pixels: uint8 [n, 1024], grey levels row by row.
    """

    labels: np.ndarray
    pixels: np.ndarray

    def take(self, index: Any) -> "Images":
        """Return the images at `index`, which may be anything that indexes an array."""
        return Images(self.labels[index], self.pixels[index])


def read(path: pathlib.Path) -> dict[str, Images]:
    """Read the images of `train` and `test` in file order.

    Args:
        path: Official folder or `.tar.gz` of either version.

    Raises:
        UserError: The archive is damaged, a batch is missing, repeated, truncated or refused, or a
            label is invalid.
    """
    batches: dict[str, Images] = {}
    for name, content, place in _from_folder(path) if path.is_dir() else _from_archive(path):
        batch, binary = _BATCH.search(name).groups()
        if batch in batches:
            raise UserError(f"{place}: {batch} of CIFAR-10 is there a second time; remove one")
        batches[batch] = (parse_records if binary else parse_pickle)(content, place)
    for names in _BATCHES.values():
        for name in names:
            if name not in batches:
                raise UserError(f"{path}: {name} of CIFAR-10 is missing")
    return {split: join(batches[name] for name in names) for split, names in _BATCHES.items()}


def join(parts: Iterable[Images]) -> Images:
    """Concatenate several `Images`."""
    labels, pixels = zip(*parts, strict=True)
    return Images(np.concatenate(labels), np.concatenate(pixels))


def parse_records(content: bytes, place: str) -> Images:
    """Parse a batch of the binary version: records of a label and 1,024 bytes each of R, G and B.

    Raises:
        UserError: A record has another size, there is no record, or a label is invalid. The message
            names the image.
    """
    count, rest = divmod(len(content), _RECORD_BYTES)
    if rest or not count:
        raise UserError(
            f"{place}, image {count}: {rest} bytes instead of {_RECORD_BYTES}; truncated, or not "
            "CIFAR-10"
        )
    records = np.frombuffer(content, np.uint8).reshape(count, _RECORD_BYTES)
    return make_images(records[:, 0], records[:, 1:].reshape(count, 3, PIXELS), place)


def parse_pickle(content: bytes, place: str) -> Images:
    """Parse a batch of the Python version: a pickled dictionary of `labels` and `data` [n, 3072].

    Raises:
        UserError: `unpickle_bytes` fails, the contents or image sizes are unexpected, or a label is
            invalid.
    """
    batch = unpickle_bytes(content, place)
    labels, data = (
        (batch.get(b"labels"), batch.get(b"data")) if isinstance(batch, dict) else (None, None)
    )
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise UserError(f"{place}: not a batch of CIFAR-10, it has no list of numbers 'labels'")
    if not isinstance(data, ByteArray):
        raise UserError(f"{place}: not a batch of CIFAR-10, it has no array 'data'")
    shape = (len(labels), 3 * PIXELS)
    if data.values.shape != shape or not labels:
        raise UserError(f"{place}: 'data' has shape {data.values.shape} instead of {shape}")
    return make_images(np.array(labels, object), data.values.reshape(-1, 3, PIXELS), place)


def make_images(labels: np.ndarray, rgb: np.ndarray, place: str) -> Images:
    """Return greyscale images from RGB images.

    Args:
        labels: Integers of any type, [n].
        rgb: uint8 [n, 3, 1024].
        place: Name of the batch in error messages.

    Raises:
        UserError: A label is not in 0 to 9. The message names the image.
    """
    bad = np.flatnonzero((labels < 0) | (labels >= _NUM_CLASSES))
    if len(bad):
        raise UserError(f"{place}, image {bad[0]}: label {labels[bad[0]]} is not in 0 to 9")
    return Images(labels.astype(np.uint8), grey(rgb))


def grey(rgb: np.ndarray) -> np.ndarray:
    """Convert RGB to LRA's grey levels: uint8 [n, 3, pixels] to uint8 [n, pixels].

    trunc(255.5 * (0.2989 R + 0.5870 G + 0.1140 B) / 255), as tf.image.rgb_to_grayscale, which LRA
    calls, computes it (scale to [0, 1], weight, multiply by 255 + 0.5, truncate). It is computed in
    float32 and in TensorFlow's order of operations: equal to TensorFlow 2.21 (x86) for all 2**24
    colours. Exact arithmetic differs for 237 of the colours, by one level.
    """
    levels = np.empty((len(rgb), rgb.shape[-1]), np.uint8)
    for start in range(0, len(rgb), 1000):  # a few MB of float32 at a time
        block = slice(start, start + 1000)
        red, green, blue = np.moveaxis(rgb[block].astype(np.float32) * np.float32(1 / 255), 1, 0)
        weighted = red * np.float32(0.2989) + green * np.float32(0.5870)
        weighted += blue * np.float32(0.1140)
        levels[block] = (weighted * np.float32(255.5)).astype(np.uint8)
    return levels


def tfds_order(split: str, count: int) -> np.ndarray:
    """Return the indices 0 to `count` - 1 of `split`'s images in the files, in TFDS's order, int64.

    TFDS sorts by md5(split name + key) (tensorflow_datasets/core/hashing.py, shuffle.py); the key
    of an image of cifar10 is its index in the files (image_classification/cifar.py).
    """
    keys = [hashlib.md5(f"{split}{index}".encode()).digest() for index in range(count)]
    return np.array(sorted(range(count), key=keys.__getitem__), np.int64)


def _from_folder(root: pathlib.Path) -> Iterable[tuple[str, bytes, str]]:
    paths = (path for path in sorted(root.iterdir()) if _BATCH.search(path.name))
    return ((path.name, path.read_bytes(), str(path)) for path in paths)


def _from_archive(path: pathlib.Path) -> Iterable[tuple[str, bytes, str]]:
    members = read_members(path, lambda name: bool(_BATCH.search(name)), _MAX_BATCH_BYTES)
    return ((name, content, f"{path}, {name}") for name, content in members)
