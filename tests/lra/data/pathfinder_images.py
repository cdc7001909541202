"""Tiny folders of noise in the layout in which LRA released Pathfinder."""

import numpy as np
from PIL import Image

from lra.data.pathfinder_folder import FOLDERS


def picture(number, size=32):
    """Image `number` of every folder."""
    return np.random.default_rng(number).integers(0, 256, (size, size), np.uint8)


def write_folder(parent, *, batches=3, per_batch=4, size=32, difficulty="hard"):
    """The official layout; image n has `picture(n)` and label n % 2."""
    root = parent / f"pathfinder{size}" / FOLDERS[difficulty]
    (root / "metadata").mkdir(parents=True)
    for batch in range(batches):
        (root / "imgs" / str(batch)).mkdir(parents=True)
        lines = []
        for place in range(per_batch):
            number = batch * per_batch + place
            name = f"sample_{place}.png"
            Image.fromarray(picture(number, size)).save(root / "imgs" / str(batch) / name)
            lines.append(f"imgs/{batch} {name} {place} {number % 2} 1.0 14 4 2 0.5 1 1\n")
        (root / "metadata" / f"{batch}.npy").write_text("".join(lines))
    return root
