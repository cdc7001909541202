"""Reads Pathfinder as LRA released it: folders of PNG images and metadata in plain text.

    pathfinder32/curv_contour_length_14/imgs/<batch>/sample_<number>.png
    pathfinder32/curv_contour_length_14/metadata/<batch>.npy

Despite their name the metadata are text, a line for each image: folder, file, number in the
batch, label, and seven parameters. Images of zero bytes are left out, as LRA does (one is known:
pathfinder32/curv_baseline/imgs/0/sample_172.png).

LRA cuts the splits from an order of TFDS that cannot be recovered from the files. The split here
is the reproducible one in use since S4 (github.com/state-spaces/s4): the files in numeric order,
`torch.utils.data.random_split` with seed 42, the last two tenths of the permutation being
validation and test. Within each split the files' order is kept.
"""

import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from lra.errors import UserError

FOLDERS = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}
SPLIT_SEED = 42

_FOLDER, _FILE, _LABEL = 0, 1, 3
_NUMPY_MAGIC = b"\x93NUMPY"


class Listing(NamedTuple):
    """The images of a folder in numeric order.

    Attributes:
        root: the folder.
        files: of the images, relative to `root`.
        labels: int32 [n].
        empty: the images left out because they have zero bytes.
    """

    root: pathlib.Path
    files: list[str]
    labels: np.ndarray
    empty: list[str]


def find(source: str, size: int, difficulty: str) -> pathlib.Path:
    """The folder of one size and difficulty at or below `source`.

    Args:
        source: that folder, the one of its size, or the release's (`lra_release`, however nested).
        size: of the images, in pixels.
        difficulty: `easy`, `intermediate` or `hard`.

    Raises:
        UserError: no such folder, or `source` is the folder of another difficulty.
    """
    root = pathlib.Path(source).expanduser()
    if not root.is_dir():
        raise UserError(f"--source={source}: no such folder (or 'generate')")
    for other, name in FOLDERS.items():
        if root.resolve().name == name and other != difficulty:
            raise UserError(f"--source={source} is '{other}'; name it: --difficulty={other}")
    below = pathlib.Path(f"pathfinder{size}", FOLDERS[difficulty])
    release = pathlib.Path("lra_release")
    places = ["", FOLDERS[difficulty], below, release / below, release / release / below]
    for place in places:
        if (root / place / "metadata").is_dir():
            return root / place
    raise UserError(f"--source={source} holds no {below} with a metadata folder in it")


def listing(root: pathlib.Path) -> Listing:
    """Reads the metadata of a folder and looks at the images' sizes, not into them.

    Raises:
        UserError: no metadata, a line that is too short, a label that is not 0 or 1, or an image
            that is missing; names file and line.
    """
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
            if is_empty:
                empty.append(file)
            else:
                files.append(file)
                labels.append(label)
    return Listing(root, files, np.array(labels, np.int32), empty)


def count_lines(root: pathlib.Path) -> int:
    """How many images the metadata of a folder name."""
    return sum(path.read_bytes().count(b"\n") for path in _metadata(root))


def examples(listing: Listing, indices: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yields the images at `indices`, uint8 [size * size] row by row, with their labels.

    Raises:
        UserError: an image of another size or mode, or one that cannot be decoded; names it.
    """
    for index in indices:
        image = read_image(listing.root / listing.files[index], size)
        yield image.ravel(), listing.labels[index]


def read_image(path: pathlib.Path, size: int) -> np.ndarray:
    """A grey PNG of `size` pixels a side: uint8 [size, size].

    Raises:
        UserError: of another size or mode, truncated or not a PNG.
    """
    try:
        with Image.open(path, formats=["PNG"]) as image:
            found = (image.width, image.height, image.mode)
            if found == (size, size, "L"):
                return np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is damaged or no PNG ({error})") from None
    raise UserError(
        f"{path} is {found[0]} x {found[1]} pixels of mode {found[2]}, "
        f"not {size} x {size} of mode L (grey)"
    )


def split(count: int) -> dict[str, np.ndarray]:
    """S4's random split of `count` examples: ascending indices of each split, int64."""
    order = torch_permutation(count, SPLIT_SEED)
    held_out = count // 10
    cuts = [count - 2 * held_out, count - held_out]
    parts = np.split(order, cuts)
    return dict(zip(("train", "validation", "test"), map(np.sort, parts), strict=True))


def torch_permutation(count: int, seed: int) -> np.ndarray:
    """What `torch.randperm(count)` draws on a CPU after `manual_seed(seed)`: int64 [count].

    A Fisher-Yates shuffle on raw 32-bit words of the Mersenne Twister, which NumPy has too; for
    up to 2^32 / 20 elements (checked against torch 2.13.0).
    """
    words = np.frombuffer(np.random.RandomState(seed).bytes(4 * count), "<u4").tolist()
    order = list(range(count))
    for place in range(count - 1):
        other = place + words[place] % (count - place)
        order[place], order[other] = order[other], order[place]
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
    return content.decode(errors="replace").splitlines()


def _parse(line: str, place: str) -> tuple[str, int]:
    """The image and its label."""
    fields = line.split()
    if len(fields) <= _LABEL:
        raise UserError(f"{place}: {len(fields)} fields, at least {_LABEL + 1} expected")
    image = pathlib.PurePosixPath(fields[_FOLDER], fields[_FILE])
    if image.is_absolute() or ".." in image.parts:
        raise UserError(f"{place}: the image lies outside the folder")
    if fields[_LABEL] not in ("0", "1"):
        raise UserError(f"{place}: the label is {fields[_LABEL]!r}, not 0 or 1")
    return f"{fields[_FOLDER]}/{fields[_FILE]}", int(fields[_LABEL])
