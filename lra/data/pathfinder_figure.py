"""Draw a figure of generated Pathfinder images, sorted by label.

python -m lra.data.pathfinder_figure --out=results/figures/pathfinder_examples.png
"""

import io
import pathlib

import numpy as np
from matplotlib.figure import Figure

from lra.command_line import ArgumentParser, run
from lra.data.pathfinder_generator import batches
from lra.data.pathfinder_parameters import parameters
from lra.errors import UserError
from lra.files import write_atomically

COLUMNS = 8
_ROWS = (
    (32, 1, "Pathfinder\none line: 1"),
    (32, 0, "Pathfinder\ntwo lines: 0"),
    (128, 1, "Path-X\none line: 1"),
    (128, 0, "Path-X\ntwo lines: 0"),
)


def main(argv: list[str]) -> int:
    """Draw the figure and write it to a file."""
    parser = ArgumentParser(prog="python -m lra.data.pathfinder_figure", description=__doc__)
    parser.add_argument("--out", default="results/figures/pathfinder_examples.png", metavar="FILE")
    options = parser.parse_args(argv)
    if pathlib.Path(options.out).suffix != ".png":
        raise UserError(f"--out={options.out} does not end in .png")
    pathlib.Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    draw().savefig(content, dpi=100)
    write_atomically(options.out, content.getvalue())
    print(f"picture in {options.out}")
    return 0


def draw() -> Figure:
    """Draw the first images of seed 0, one row per size and label."""
    figure = Figure(figsize=(11.2, 5.2), layout="constrained")
    grid = figure.subplots(len(_ROWS), COLUMNS)
    for row, (size, label, title) in zip(grid, _ROWS, strict=True):
        row[0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=9)
        for axes, image in zip(row, examples(size, label), strict=True):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
    return figure


def examples(size: int, label: int) -> np.ndarray:
    """Return the first images of seed 0 with this label, uint8 [COLUMNS, size, size]."""
    images: list[np.ndarray] = []
    for batch in batches(parameters(size, "hard"), seed=0, count=16 * COLUMNS):
        images.extend(batch.images[batch.labels == label])
        if len(images) >= COLUMNS:
            break
    return np.stack(images[:COLUMNS])


if __name__ == "__main__":
    run(main)
