"""Read LRA's Pathfinder release: folders of PNG images and plain-text metadata.

    pathfinder32/curv_contour_length_14/imgs/<batch>/sample_<number>.png
    pathfinder32/curv_contour_length_14/metadata/<batch>.npy

Despite their suffix, the metadata are text with one line per image: folder, file, number in the
batch, label, and seven parameters. Images of zero bytes are skipped, as in LRA (one is known:
pathfinder32/curv_baseline/imgs/0/sample_172.png).

LRA derives the splits from an order of TFDS that cannot be recovered from the files. This module
uses the reproducible split common since S4 (github.com/state-spaces/s4): the files in numeric
order, split by `torch.utils.data.random_split` with seed 42; the last two tenths of the permutation
are validation and test. Within each split the order of the files is kept.
"""

import codecs
import io
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from lra.errors import UserError
from lra.stderr import say

FOLDERS = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}
SPLIT_SEED = 42

_FOLDER, _FILE, _LABEL = 0, 1, 3
_NUMPY_MAGIC = b"\x93NUMPY"


class Listing(NamedTuple):
    """Images of a folder in numeric order.

    Attributes:
        root: The folder.
        files: Paths of the images relative to `root`.
        labels: int32 [n].
        empty: Paths of the images skipped because they have zero bytes.
    """

    root: pathlib.Path
    files: list[str]
    labels: np.ndarray
    empty: list[str]


def find(source: str, size: int, difficulty: str) -> pathlib.Path:
    """Find the folder of one size and difficulty at or below `source`.

    LRA's archive holds two folders `pathfinder128`, one of which trains no model (issue 38 of
    google-research/long-range-arena). Of several the innermost is read, as by S5's loader, and a
    line on stderr says so.

    Args:
        source: That folder, its parent folder for the size, or a folder of the release
            (`lra_release`, however nested).
        size: Size of the images in pixels.
        difficulty: `easy`, `intermediate` or `hard`.

    Raises:
        UserError: There is no such folder, or `source` is the folder of another difficulty.
    """
    root = pathlib.Path(source).expanduser()
    if not root.is_dir():
        raise UserError(f"--source={source}: no such folder (or 'generate')")
    for other, name in FOLDERS.items():
        if root.resolve().name == name and other != difficulty:
            raise UserError(f"--source={source} is '{other}'; name it: --difficulty={other}")
    below = pathlib.Path(f"pathfinder{size}", FOLDERS[difficulty])
    release = pathlib.Path("lra_release")
    places = ["", FOLDERS[difficulty], release / release / below, release / below, below]
    found = [root / place for place in places if (root / place / "metadata").is_dir()]
    if not found:
        raise UserError(f"--source={source} holds no {below} with a metadata folder in it")
    for other in found[1:]:
        say(f"{found[0]} is read, not {other}")
    return found[0]


def listing(root: pathlib.Path) -> Listing:
    """List the images of a folder from its metadata, without opening them.

    Raises:
        UserError: There are no metadata, a line is too short, a label is not 0 or 1, or an image is
            missing or listed before. The message names file and line.
    """
    seen: set[str] = set()
    files: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    for path in _metadata(root):
        for number, line in enumerate(_lines(path), start=1):
            file, label = _parse(line, f"{path}, line {number}")
            try:
                is_empty = (root / file).stat().st_size == 0
            except (OSError, ValueError):  # ValueError: a null byte in the name
                raise UserError(f"{path}, line {number}: no image {root / file}") from None
            if file in seen:
                raise UserError(f"{path}, line {number}: {file} is listed a second time")
            seen.add(file)
            if is_empty:
                empty.append(file)
            else:
                files.append(file)
                labels.append(label)
    return Listing(root, files, np.array(labels, np.int32), empty)


def count_lines(root: pathlib.Path) -> int:
    """Return the number of images that the metadata of a folder list."""
    return sum(path.read_bytes().count(b"\n") for path in _metadata(root))


def examples(listing: Listing, indices: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the images at `indices`, uint8 [size * size] row by row, with their labels.

    Raises:
        UserError: An image has another size or mode or cannot be decoded. The message names it.
    """
    for index in indices:
        image = read_image(listing.root / listing.files[index], size)
        yield image.ravel(), listing.labels[index]


def read_image(path: pathlib.Path, size: int) -> np.ndarray:
    """Read a square greyscale PNG: uint8 [size, size].

    Raises:
        UserError: The image has another size or mode, is truncated, or is not a PNG.
    """
    try:
        content = io.BytesIO(path.read_bytes())
        Image.open(content, formats=["PNG"]).verify()  # checksums, which decoding ignores
        with Image.open(content, formats=["PNG"]) as image:
            properties = (image.width, image.height, image.mode)
            if properties == (size, size, "L"):
                return np.asarray(image)
    # IndexError: without image data.
    except (OSError, SyntaxError, ValueError, IndexError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is damaged or no PNG ({error})") from None
    raise UserError(
        f"{path} is {properties[0]} x {properties[1]} pixels of mode {properties[2]}, "
        f"not {size} x {size} of mode L (grey)"
    )


def split(count: int) -> dict[str, np.ndarray]:
    """Return S4's random split of `count` examples: ascending indices of each split, int64."""
    order = torch_permutation(count, SPLIT_SEED)
    held_out = count // 10
    cuts = [count - 2 * held_out, count - held_out]
    parts = np.split(order, cuts)
    return dict(zip(("train", "validation", "test"), map(np.sort, parts), strict=True))


def torch_permutation(count: int, seed: int) -> np.ndarray:
    """Return `torch.randperm(count)` on a CPU after `manual_seed(seed)`, int64 [count].

    It is a Fisher-Yates shuffle with raw 32-bit words of the Mersenne Twister, which NumPy also
    has. Valid for up to 2^32 / 20 elements (checked against torch 2.13.0).
    """
    words = np.frombuffer(np.random.RandomState(seed).bytes(4 * count), "<u4").tolist()
    order = list(range(count))
    for index in range(count - 1):
        other = index + words[index] % (count - index)
        order[index], order[other] = order[other], order[index]
    return np.array(order, np.int64)


def _metadata(root: pathlib.Path) -> list[pathlib.Path]:
    paths = list((root / "metadata").glob("*.npy"))
    for path in paths:
        if not path.stem.isdecimal():
            raise UserError(f"{path} is not named by a number, as the metadata of the release are")
    if not paths:
        raise UserError(f"{root / 'metadata'} holds no metadata (0.npy, 1.npy, ...)")
    return sorted(paths, key=lambda path: int(path.stem))


def _lines(path: pathlib.Path) -> list[str]:
    content = path.read_bytes()
    if content.startswith(_NUMPY_MAGIC):
        raise UserError(f"{path} is a NumPy array; the metadata of LRA's release are plain text")
    return content.removeprefix(codecs.BOM_UTF8).decode(errors="replace").splitlines()


def _parse(line: str, place: str) -> tuple[str, int]:
    """Parse a line of metadata into the path of the image and its label."""
    fields = line.split()
    if len(fields) <= _LABEL:
        raise UserError(f"{place}: {len(fields)} fields, at least {_LABEL + 1} expected")
    image = pathlib.PurePosixPath(fields[_FOLDER], fields[_FILE])
    if image.is_absolute() or ".." in image.parts:
        raise UserError(f"{place}: the image lies outside the folder")
    if fields[_LABEL] not in ("0", "1"):
        raise UserError(f"{place}: the label is {fields[_LABEL]!r}, not 0 or 1")
    return str(image), int(fields[_LABEL])
