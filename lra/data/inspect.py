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
from lra.data import guesses, prepared
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
        split = data.split(name)
        lines += _describe_split(name, split)
        if manifest["task"] == "listops":
            lines.append(_guesses_by_root(data.split("train"), split))
        if split.pairs is not None:
            lines.append(_guesses_by_document(data, split))
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


def _guesses_by_root(train: prepared.Split, split: prepared.Split) -> str:
    majority, root = guesses.most_frequent_label(train, split), guesses.by_root(train, split)
    more = guesses.by_root(train, split, arguments=True)
    return (
        f"  guessing    train's most frequent label {majority:.2%}, by the root {root:.2%}, "
        f"by it and its number of arguments {more:.2%}"
    )


def _guesses_by_document(data: prepared.Prepared, split: prepared.Split) -> str:
    train, validation = data.split("train"), data.split("validation")
    first, second = (guesses.by_document(train, split, column) for column in (0, 1))
    both = guesses.by_both_documents(train, validation, split)
    return (
        f"  guessing    by the first document {first:.2%}, by the second {second:.2%}, "
        f"by both {both:.2%}"
    )


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
        try:
            value = evaluate(tokens)
        except ValueError as error:
            value = f"no expression ({error})"
        return f"{_shortened(decode(tokens))} = {value}"
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
