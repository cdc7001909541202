"""Show prepared data: counts, lengths, labels and trivial baselines of every split, and examples.

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
from lra.data.request import MODULES
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
_MIN_PICTURE_PIXELS = 96  # per side
_GAP = 4  # pixels between pictures


def main(argv: list[str]) -> int:
    """Parse the flags and print; return the exit status."""
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
    if options.out and not options.examples:
        raise UserError("--out is the picture of the examples: --examples=0 leaves none")


def describe(data: prepared.Prepared) -> list[str]:
    """Return lines that describe the data set: its origin, and statistics of each split."""
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
    """Return the accuracy of guesses that see only the root operator of an expression."""
    train_roots, split_roots = (
        part.sequences.tokens[part.sequences.offsets[:-1]] for part in (train, split)
    )
    majority = _guess_accuracy(train, split, np.zeros_like(train_roots), np.zeros_like(split_roots))
    root = _guess_accuracy(train, split, train_roots, split_roots)
    return [f"  guessing    train's most frequent label {majority:.2%}, by the root {root:.2%}"]


def _guesses_by_document(train: prepared.Split, split: prepared.Split) -> list[str]:
    """Return the accuracy of guesses that see only the identity of one document of each pair."""
    shares = [
        _guess_accuracy(train, split, train.pairs[:, column], split.pairs[:, column])
        for column in (0, 1)
    ]
    return [f"  guessing    by the first document {shares[0]:.2%}, by the second {shares[1]:.2%}"]


def _guess_accuracy(
    train: prepared.Split,
    split: prepared.Split,
    train_features: np.ndarray,
    split_features: np.ndarray,
) -> float:
    """Return the accuracy of guessing labels from one feature of the examples.

    The guess is train's most frequent label for the value of the feature. For values that do not
    occur in train, and for ties, it is the one of these labels most frequent in all of train.

    Args:
        train: The training split.
        split: The split to guess the labels of.
        train_features: Integers from 0, one per example of `train`.
        split_features: Integers from 0, one per example of `split`.
    """
    values = max(train_features.max(), split_features.max()) + 1
    votes = np.zeros((values, train.labels.max() + 1), np.int64)
    np.add.at(votes, (train_features, train.labels), 1)
    guesses = (votes + votes.sum(axis=0) / (len(train.labels) + 1)).argmax(axis=1)
    return float(np.mean(split.labels == guesses[split_features]))


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
    """Return the beginning of a text, with control characters replaced by spaces."""
    text = tokens.tobytes().decode(errors="replace")
    return "".join(c if c.isprintable() else " " for c in _shortened(text))


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + " ..."


def picture_grid(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Arrange square pictures, each uint8 [side * side], in a grid, uint8 [height, width].

    Small pictures are enlarged by an integer factor; the gaps are mid-grey.
    """
    side = math.isqrt(len(pictures[0]))
    scale = max(1, _MIN_PICTURE_PIXELS // side)
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
