"""Image: greyscale CIFAR-10 as sequences of 1,024 pixels (LRA, arXiv 2011.04006).

45,000 / 5,000 / 10,000 images, 10 classes. The last tenth of the 50,000 training images is the
validation set, so the split depends on their order, which `source` in the manifest names:

- `--order=file` (default): the order of data_batch_1 to data_batch_5.
- `--order=tfds`: the order of TensorFlow Datasets (cifar10 3.0.2), which LRA splits: `train[:90%]`
  and `train[90%:]`. The order is computed; `--source=tfds` reads TFDS's own copy instead, with the
  same result.

Both contain the official images, so `data` is `official` for both.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from lra.data import cifar10, official, prepared, raw, tfds_source
from lra.data.cifar10 import PIXELS, Images
from lra.data.download import Remote, bytes_to_download, download
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.tasks import TASKS

SOURCES = (tfds_source.SOURCE, "download")
# Size and sha256 from TFDS, url_checksums/cifar10.txt.
ARCHIVE = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
RAW_NAMES = (
    "cifar-10-batches-bin",
    ARCHIVE.name,
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
)
TFDS_NAME = "cifar10"
OFFICIAL_COUNTS = TASKS["image"].counts
# official.Fingerprint of the greyscale images; train and validation together.
OFFICIAL_CONTENT = {
    "train": "94904e4f5121b4fa0a28d3a0fd925ba796ee517469d9e0fc01304feedc433c98",
    "test": "0053179c78595a738d336d32a4b0449eb690a8d8b85d25df252b7c4904396644",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this task."""
    tfds_source.add_arguments(parser)
    parser.add_argument(
        "--order",
        choices=("file", "tfds"),
        help="image: order of the training images, the last tenth of which is the validation set: "
        "that of the files (default) or that of TFDS, which gives LRA's own split",
    )


def estimate(options: argparse.Namespace) -> prepared.Estimate:
    """Estimate disk space, including any download, and time, excluding it (networks differ).

    Raises:
        UserError: There are no raw data.
    """
    if options.source not in SOURCES:
        raw.locate(options, RAW_NAMES, SOURCES)
    downloaded = 0
    if options.source == "download":
        downloaded = bytes_to_download(ARCHIVE, raw.folder(options))
    return prepared.Estimate(63_000_000 + downloaded, 10.0)


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Write the task's folder and return its manifest.

    Args:
        options: Options of the command. `source` is None (one of `RAW_NAMES` in the raw folder),
            the path of one of them, `tfds`, or `download`; `order` is as in the module docstring.
        writer: Writer of the task's folder.

    Raises:
        UserError: Nothing is found, there is no network, the archive is damaged, a batch is missing
            or truncated, a pickle has foreign classes, a label is invalid, or an image has another
            size.
    """
    order, images = _open(options)
    content = {split: _fingerprint(members) for split, members in images.items()}
    train = images["train"]
    cut = len(train.labels) - len(train.labels) // 10
    splits = {
        "train": train.take(slice(cut)),
        "validation": train.take(slice(cut, None)),
        "test": images["test"],
    }
    counts = {split: len(members.labels) for split, members in splits.items()}
    for split, members in splits.items():
        writer.examples(split, zip(members.pixels, members.labels, strict=True))
    same_content = content == OFFICIAL_CONTENT
    mark = official.compare(counts, OFFICIAL_COUNTS, "images", same_content=same_content)
    return writer.finish(
        data=mark,
        source=f"CIFAR-10, {order} order",
        counts=counts,
        max_length=PIXELS,
    )


def _open(options: argparse.Namespace) -> tuple[str, dict[str, Images]]:
    """Return the name of the order, and the images of `train` and `test` in this order."""
    if options.source == tfds_source.SOURCE:
        if options.order == "file":
            raise UserError("--order=file does not go with --source=tfds, which has TFDS's order")
        dataset = tfds_source.Dataset(TFDS_NAME, options.tfds_dir, ARCHIVE)
        return "TFDS", {split: _from_tfds(dataset, split) for split in ("train", "test")}
    if options.source == "download":
        path = download(ARCHIVE, raw.folder(options))
    else:
        path = raw.locate(options, RAW_NAMES, SOURCES)
    images = cifar10.read(path)
    if options.order != "tfds":
        return "file", images
    return "TFDS", {
        split: members.take(cifar10.tfds_order(split, len(members.labels)))
        for split, members in images.items()
    }


def _from_tfds(dataset: tfds_source.Dataset, split: str) -> Images:
    def parts() -> Iterator[Images]:
        for index, example in enumerate(
            tqdm(dataset.examples(split), f"image {split}", unit=" images", disable=None)
        ):
            place = f"{dataset.folder}, {split}, example {index}"
            rgb = np.asarray(example["image"])
            if rgb.shape != (32, 32, 3):
                raise UserError(f"{place}: an image of shape {rgb.shape} instead of (32, 32, 3)")
            labels = np.array([example["label"]], np.int64)
            yield cifar10.make_images(labels, rgb.reshape(1, PIXELS, 3).swapaxes(1, 2), place)

    return cifar10.join(parts())


def _fingerprint(images: Images) -> str:
    fingerprint = official.Fingerprint()
    for label, pixels in zip(images.labels, images.pixels, strict=True):
        fingerprint.add(int(label), pixels.tobytes())
    return str(fingerprint)
