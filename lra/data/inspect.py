"""Shows what is prepared: counts, lengths, labels and simple guesses of every split, and examples.

python -m lra.data.inspect listops --data_dir=data
python -m lra.data.inspect text --split=test --examples=5
python -m lra.data.inspect pathfinder --examples=36 --out=pathfinder.png
"""

import argparse
import io
import math
import pathlib
import textwrap
from collections.abc import Sequence

import numpy as np
from PIL import Image

from lra.command_line import ArgumentParser, file_to_write, folder, run
from lra.data import prepared
from lra.data.listops_language import decode, evaluate
from lra.data.prepare import MODULES
from lra.errors import UserError
from lra.files import write_atomically
from lra.tasks import TASKS

PICTURES = tuple(name for name, task in TASKS.items() if task.pixels)
TEXTS = ("text", "retrieval")

_TEXT_CHARACTERS = 600
_LAYOUT = {
    "width": 96,
    "initial_indent": "    ",
    "subsequent_indent": "    ",
    "break_on_hyphens": False,
}
_PICTURE_PIXELS = 96  # at least, each side
_GAP = 4


def main(argv: list[str]) -> int:
    """Parses the flags and prints; returns the exit status."""
    parser = ArgumentParser(prog="python -m lra.data.inspect", description=__doc__)
    parser.add_argument("task", metavar="TASK", choices=tuple(MODULES), help=", ".join(MODULES))
    parser.add_argument(
        "--data_dir", type=folder, default="data", metavar="DIR", help="(%(default)s)"
    )
    parser.add_argument("--split", default="train", choices=prepared.SPLITS, help="of the examples")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--out",
        type=file_to_write,
        metavar="FILE.png",
        help="picture of the examples, of images only",
    )
    options = parser.parse_args(argv)
    _check(options)
    data = prepared.load(options.data_dir, options.task)
    print("\n".join(describe(data)))
    split = data.split(options.split)
    indices = range(min(options.examples, len(split.labels)))
    if indices:
        print(f"\nfirst {len(indices)} of {options.split}")
        show = _show_pictures if options.task in PICTURES else _show_texts
        show(options, split, indices)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.examples < 0:
        raise UserError(f"--examples={options.examples} is negative")
    if options.out and options.task not in PICTURES:
        raise UserError(f"--out: {options.task} has no pictures ({', '.join(PICTURES)} have)")
    if options.out and pathlib.Path(options.out).suffix.lower() != ".png":
        raise UserError(f"--out={options.out} does not end in .png")


def describe(data: prepared.Prepared) -> list[str]:
    """Lines on the whole data set: where it is from, and each split in numbers."""
    manifest = data.manifest
    lines = [
        f"{manifest['task']} in {data.root}",
        f"  data        {manifest['data']}",
        f"  source      {manifest['source']}",
        f"  seed        {manifest['seed']}",
        f"  parameters  {', '.join(f'{k}={v}' for k, v in manifest['parameters'].items()) or '-'}",
        f"  max_length  {manifest['max_length']:,}",
        f"  sha256      {manifest['sha256']}",
    ]
    for name in prepared.SPLITS:
        if name in manifest["aliases"]:
            lines.append(f"{name}: the same as {manifest['aliases'][name]}")
            continue
        train, split = data.split("train"), data.split(name)
        lines += _describe_split(name, split)
        if manifest["task"] == "listops":
            lines += _guesses_by_root(train, split)
        if split.pairs is not None:
            lines += _guesses_by_document(train, split)
    return lines


def _describe_split(name: str, split: prepared.Split) -> list[str]:
    noun = "examples" if split.pairs is None else "pairs"
    lengths = np.diff(split.sequences.offsets)
    if split.pairs is not None:
        lengths = lengths[split.pairs.ravel()]
    labels, counts = np.unique(split.labels, return_counts=True)
    shares = zip(labels, counts / len(split.labels), strict=True)
    return [
        f"{name}: {len(split.labels):,} {noun}",
        f"  lengths     {lengths.min():,} to {lengths.max():,}, mean {lengths.mean():,.1f}, "
        f"median {np.median(lengths):,.0f}",
        "  labels      " + "  ".join(f"{label}: {share:.2%}" for label, share in shares),
    ]


def _guesses_by_root(train: prepared.Split, split: prepared.Split) -> list[str]:
    """How often answers are right that look at no more than the root operator of an expression."""
    of_train, of_split = (
        each.sequences.tokens[each.sequences.offsets[:-1]] for each in (train, split)
    )
    majority = _share_right(train, split, np.zeros_like(of_train), np.zeros_like(of_split))
    root = _share_right(train, split, of_train, of_split)
    return [f"  guessing    train's most frequent label {majority:.2%}, by the root {root:.2%}"]


def _guesses_by_document(train: prepared.Split, split: prepared.Split) -> list[str]:
    """How often answers are right that know of one document how often train says yes to it."""
    shares = [
        _share_right(train, split, train.pairs[:, which], split.pairs[:, which]) for which in (0, 1)
    ]
    return [f"  guessing    by the first document {shares[0]:.2%}, by the second {shares[1]:.2%}"]


def _share_right(
    train: prepared.Split, split: prepared.Split, of_train: np.ndarray, of_split: np.ndarray
) -> float:
    """Of answers by one feature, an integer from 0: train's most frequent label with this value.

    Where train does not have the value, or several labels as often, the most frequent of these in
    all of train.
    """
    values = max(of_train.max(), of_split.max()) + 1
    votes = np.zeros((values, train.labels.max() + 1), np.int64)
    np.add.at(votes, (of_train, train.labels), 1)
    answers = (votes + votes.sum(axis=0) / (len(train.labels) + 1)).argmax(axis=1)
    return float(np.mean(split.labels == answers[of_split]))


def _show_pictures(options: argparse.Namespace, split: prepared.Split, indices: range) -> None:
    print("labels, row by row:", *(split.labels[index] for index in indices))
    if not options.out:
        print("--out=FILE.png writes them as a picture")
        return
    grid = picture_grid([split.sequences[index] for index in indices])
    content = io.BytesIO()
    Image.fromarray(grid).save(content, "png")
    write_atomically(options.out, content.getvalue())
    print(f"picture in {options.out}")


def _show_texts(options: argparse.Namespace, split: prepared.Split, indices: range) -> None:
    for index in indices:
        print(f"[{index}] label {split.labels[index]}")
        members = [index] if split.pairs is None else split.pairs[index]
        for member in members:
            tokens = split.sequences[member]
            name = "" if split.pairs is None else f"document {member}, "
            print(f"  {name}{len(tokens):,} tokens")
            print(textwrap.fill(_content(options.task, tokens), **_LAYOUT))


def _content(task: str, tokens: np.ndarray) -> str:
    if task == "listops":
        return f"{_shortened(decode(tokens))} = {evaluate(tokens)}"
    if task in TEXTS:
        return _readable(tokens)
    return _shortened(" ".join(map(str, tokens)))


def _readable(tokens: np.ndarray) -> str:
    """The first characters of a text; what a terminal would obey is replaced."""
    text = tokens.tobytes().decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in _shortened(text))


def _shortened(text: str) -> str:
    return text[:_TEXT_CHARACTERS] + " ..." * (len(text) > _TEXT_CHARACTERS)


def picture_grid(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Square pictures, each uint8 [side * side], as one, uint8 [height, width], row by row.

    Small pictures are enlarged by whole factors; the gaps are mid-grey.
    """
    side = math.isqrt(len(pictures[0]))
    scale = max(1, _PICTURE_PIXELS // side)
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    step = side * scale + _GAP
    grid = np.full((rows * step + _GAP, columns * step + _GAP), 128, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = (_GAP + step * place for place in divmod(index, columns))
        enlarged = np.kron(picture.reshape(side, side), np.ones((scale, scale), np.uint8))
        grid[top : top + side * scale, left : left + side * scale] = enlarged
    return grid


if __name__ == "__main__":
    run(main)
