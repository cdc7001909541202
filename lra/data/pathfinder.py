"""Pathfinder (LRA, arXiv 2011.04006): do two discs mark the ends of one dashed line? 2 classes.

    python -m lra.data.prepare pathfinder                      generated like LRA's hard 32 x 32
    python -m lra.data.prepare pathx                           like its hard 128 x 128 (Path-X)
    python -m lra.data.prepare pathfinder --size=64 --difficulty=easy --num_images=10000
    python -m lra.data.prepare pathfinder --source=lra_release              LRA's own images

Images are stored as grey levels, row by row. Generated images are independent of each other: the
first eight tenths are the training set, the next tenth the validation and the last the test set.
`pathfinder_folder` describes the split of LRA's own images, which are recognised by their counts
alone.
"""

import argparse
import itertools
from typing import Any

from tqdm import tqdm

from lra.data import pathfinder_folder
from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import DASHES, SIZES, parameters
from lra.data.prepared import SPLITS, Estimate
from lra.data.task_writer import TaskWriter
from lra.errors import UserError
from lra.stderr import say
from lra.tasks import TASKS

SOURCES = ("generate",)
OFFICIAL_COUNTS = TASKS["pathfinder"].counts
OFFICIAL_IMAGES = sum(OFFICIAL_COUNTS.values())
DIFFICULTY = "hard"
DEFAULT_SIZES = {"pathfinder": 32, "pathx": 128}

# Measured on one core of a small virtual machine (benchmarks/pathfinder_generation.py).
_IMAGES_PER_SECOND = {
    32: {"easy": 13_000, "intermediate": 11_000, "hard": 3_300},
    64: {"easy": 8_000, "intermediate": 2_200, "hard": 150},
    128: {"easy": 4_000, "intermediate": 2_800, "hard": 210},
    256: {"easy": 1_600, "intermediate": 1_900, "hard": 1_300},
}
_FILES_PER_SECOND = 5_000
_BYTES_PER_SECOND = 2e8
_START_SECONDS = 15  # compilation
_BYTES_PER_IMAGE = 12  # offset and label


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of Pathfinder, with LRA's values as defaults."""
    parser.add_argument(
        "--num_images",
        type=int,
        default=OFFICIAL_IMAGES,
        metavar="N",
        help="to generate, in all splits together (%(default)s)",
    )
    parser.add_argument(
        "--size", type=int, choices=SIZES, help="of the images in pixels (32; pathx 128)"
    )
    parser.add_argument(
        "--difficulty", choices=tuple(DASHES), default=DIFFICULTY, help="(%(default)s)"
    )


def estimate(options: argparse.Namespace) -> Estimate:
    """Estimate size and time.

    Raises:
        UserError: There are too few images, or a folder is missing.
    """
    size, difficulty = _size(options), options.difficulty
    if _from_folder(options):
        root = pathfinder_folder.find(options.source, size, difficulty)
        count = pathfinder_folder.count_lines(root)
        seconds = count / _FILES_PER_SECOND
    else:
        count = sum(_counts(options).values())
        rate = _IMAGES_PER_SECOND[size][difficulty] * options.workers
        seconds = _START_SECONDS + count / rate
    space = count * (size * size + _BYTES_PER_IMAGE)
    return Estimate(space, seconds + space / _BYTES_PER_SECOND)


def prepare(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    """Generate or read all splits and return the manifest.

    Raises:
        UserError: There are too few images, or `pathfinder_folder` rejects the files.
    """
    return _read(options, writer) if _from_folder(options) else _generate(options, writer)


def generated_mark(options: argparse.Namespace) -> str:
    """Return the data mark of the generated images."""
    return _mark(options, _counts(options), "generated")


def generated_parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the generated images, as in their manifest."""
    settings = parameters(_size(options), options.difficulty)
    return {"difficulty": options.difficulty} | settings._asdict()


def _generate(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    size, counts = _size(options), _counts(options)
    settings = parameters(size, options.difficulty)
    generated = batches(
        settings, seed=options.seed, count=options.num_images, workers=options.workers
    )
    examples = (
        (image.ravel(), label)
        for batch in generated
        for image, label in zip(batch.images, batch.labels, strict=True)
    )
    with tqdm(total=options.num_images, unit=" images", disable=None) as bar:
        for split, number in counts.items():
            writer.examples(split, itertools.islice(examples, number), bar)
    return writer.finish(
        data=generated_mark(options),
        source="lra.data.pathfinder_generator",
        counts=counts,
        max_length=size * size,
        seed=options.seed,
        parameters=generated_parameters(options),
    )


def _read(options: argparse.Namespace, writer: TaskWriter) -> dict[str, Any]:
    size, difficulty = _size(options), options.difficulty
    listing = pathfinder_folder.listing(pathfinder_folder.find(options.source, size, difficulty))
    indices = pathfinder_folder.split(len(listing.files))
    counts = {split: len(part) for split, part in indices.items()}
    if not all(counts.values()):
        raise UserError(
            f"{listing.root} holds {len(listing.files)} images, too few for three splits"
        )
    if listing.empty:
        say(
            f"images of 0 bytes left out: {len(listing.empty)}, the first "
            f"{listing.root / listing.empty[0]}"
        )
    with tqdm(total=len(listing.files), unit=" images", disable=None) as bar:
        for split, part in indices.items():
            writer.examples(split, pathfinder_folder.examples(listing, part, size), bar)
    return writer.finish(
        data=_mark(options, counts, "official"),
        source=f"pathfinder{size}/{pathfinder_folder.FOLDERS[difficulty]}, split of S4",
        counts=counts,
        max_length=size * size,
        seed=pathfinder_folder.SPLIT_SEED,
        parameters={"size": size, "difficulty": difficulty, "empty_images": len(listing.empty)},
    )


def _from_folder(options: argparse.Namespace) -> bool:
    """Return whether `source` is a folder; raise UserError for flags that conflict with it."""
    if options.source in (None, *SOURCES):
        return False
    if options.num_images != OFFICIAL_IMAGES:
        raise UserError(f"--num_images does not go with files (--source={options.source})")
    return True


def _size(options: argparse.Namespace) -> int:
    return options.size or DEFAULT_SIZES[options.task]


def _counts(options: argparse.Namespace) -> dict[str, int]:
    """Return the number of images to generate for each split."""
    held_out = options.num_images // 10
    if held_out < 1:
        raise UserError(
            f"--num_images={options.num_images}: at least 10 are needed; validation and test take "
            "a tenth each"
        )
    counts = (options.num_images - 2 * held_out, held_out, held_out)
    return dict(zip(SPLITS, counts, strict=True))


def _mark(options: argparse.Namespace, counts: dict[str, int], name: str) -> str:
    """Return `name`, or how the images differ from those of LRA's table."""
    size, difficulty = _size(options), options.difficulty
    parts = []
    if size != DEFAULT_SIZES[options.task]:
        parts.append(f"{size} x {size}")
    if difficulty != DIFFICULTY:
        parts.append(difficulty)
    if counts != OFFICIAL_COUNTS:
        parts.append(f"{' / '.join(f'{count:,}' for count in counts.values())} images")
    return f"differs ({', '.join(parts)})" if parts else name
