"""A folder with a small one of everything the commands read, and ways to damage it.

configs/     the project's
data/        prepared ListOps and Image
raw/         raw files of every task
run/         a run of `TRAIN` that has everything but its rows
results/     rows
sweep.py, mine.py    a sweep file and a config file
"""

import gzip
import io
import json
import pathlib
import pickle
import shutil
import tarfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from lra import records
from tests.lra.conftest import TINY, write_listops, write_pixels
from tests.lra.data.pathfinder_images import write_folder
from tests.lra.row_factory import failed_row, make_row

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRAIN = " ".join(
    [
        "train.py --config=configs/listops.py:standard --data_dir=data --workdir=run",
        "--config.mesh.seed=1 --config.mesh.data=1",
        *(f"--config.{override}" for override in TINY),
    ]
)
TSV = "Source\tTarget\n( ( [MAX 4 ) ] )\t4\n"

Damage = Callable[[pathlib.Path], None]


class Case(NamedTuple):
    """A command, words of the one line it must end with, and what is done to its files before.

    With `notes`, lines about checkpoints that are skipped may stand before that one.
    """

    command: str
    cause: str
    before: Damage | None = None
    notes: bool = False


def build(world: pathlib.Path, train: Callable[[str], None]) -> None:
    """Fill `world`; `train` executes a command there."""
    (world / "configs").symlink_to(ROOT / "configs")
    write_listops(world / "data")
    write_pixels(world / "data", "image", 10)
    _write_raw(world / "raw")
    (world / "results").mkdir()
    rows = [make_row(), make_row(seed=1), failed_row(seed=2)]
    records.append(world / "results" / "accuracy.jsonl", rows)
    (world / "sweep.py").write_text("RUNS = [{'config': 'configs/listops.py:standard'}]\n")
    (world / "mine.py").write_text(
        "from configs import listops\n\n\n"
        "def get_config(attention='standard'):\n    return listops.get_config(attention)\n"
    )
    train(TRAIN)
    (world / "run" / "rows.jsonl").unlink()


def _write_raw(raw: pathlib.Path) -> None:
    (raw / "listops").mkdir(parents=True)
    for split in ("train", "val", "test"):
        (raw / "listops" / f"basic_{split}.tsv").write_text(TSV)
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (raw / "aclImdb" / split / label).mkdir(parents=True)
            (raw / "aclImdb" / split / label / "0_5.txt").write_text("a review")
    (raw / "cifar").mkdir()
    records_of_two = (bytes([3]) + bytes(3072)) * 2
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (raw / "cifar" / f"{name}.bin").write_bytes(records_of_two)
    (raw / "aan" / "docs").mkdir(parents=True)
    for name in "ab":
        (raw / "aan" / "docs" / f"{name}.txt").write_text(f"document {name}")
    for split in ("train", "eval", "test"):
        (raw / "aan" / f"pairs.{split}.tsv").write_text("1.0\ta\tb\n")
    write_folder(raw)


def both(*damages: Damage) -> Damage:
    """One after the other."""

    def do(world: pathlib.Path) -> None:
        for damage in damages:
            damage(world)

    return do


def write(name: str, content: str | bytes) -> Damage:
    """A file with other content."""

    def do(world: pathlib.Path) -> None:
        path = world / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return do


def link(name: str, target: str) -> Damage:
    """A symbolic link in place of a file, if there is one."""

    def do(world: pathlib.Path) -> None:
        (world / name).unlink(missing_ok=True)
        (world / name).symlink_to(target)

    return do


def remove(name: str) -> Damage:
    """Without a file or folder."""

    def do(world: pathlib.Path) -> None:
        path = world / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def cut(name: str, length: int = 100) -> Damage:
    """Only the first bytes of a file."""
    return lambda world: (world / name).write_bytes((world / name).read_bytes()[:length])


def flip(name: str) -> Damage:
    """One bit in the middle of a file."""

    def do(world: pathlib.Path) -> None:
        content = bytearray((world / name).read_bytes())
        content[len(content) // 2] ^= 1
        (world / name).write_bytes(content)

    return do


def edit_json(name: str, **changes: object) -> Damage:
    """Other values in a file of JSON (of rows: in the first); None removes one.

    Rows and the files of a run look as if written by hand: without the sha256 of themselves.
    """

    def do(world: pathlib.Path) -> None:
        path = world / name
        first, *rest = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
        values = json.loads(first) | changes
        if name.endswith("l") or name.startswith("run/"):
            del values["sha256"]
        values = {key: value for key, value in values.items() if value is not None}
        path.write_text("\n".join([json.dumps(values), *rest]) + "\n")

    return do


def each_checkpoint(damage: Callable[[str], Damage], pattern: str) -> Damage:
    """Damage the largest file that matches `pattern` in every checkpoint."""

    def do(world: pathlib.Path) -> None:
        for folder in sorted((world / "run" / "checkpoints").iterdir()):
            files = [path for path in folder.glob(pattern) if path.is_file()]
            if files:
                victim = max(files, key=lambda path: path.stat().st_size)
                damage(str(victim.relative_to(world)))(world)

    return do


def config(body: str) -> Damage:
    """`mine.py`, whose `get_config` does `body` with `c`, the configuration of ListOps."""
    return write(
        "mine.py",
        "from configs import default, listops\n\n\ndef get_config(attention='standard'):\n"
        f"    c = listops.get_config(attention)\n    {body}\n",
    )


def archive(path: str, **member: object) -> Damage:
    """A `.tar.gz` whose second member has these attributes."""

    def do(world: pathlib.Path) -> None:
        with tarfile.open(world / path, "w:gz") as file:
            for attributes in ({"name": "aclImdb/train/neg/0_1.txt"}, member):
                info = tarfile.TarInfo()
                info.size = 3
                for key, value in attributes.items():
                    setattr(info, key, value)
                file.addfile(info, io.BytesIO(b"bad"))

    return do


def damaged_archive(name: str) -> Damage:
    """A `.tar.gz` with a wrong checksum at its end."""

    def do(world: pathlib.Path) -> None:
        archive(name, name="aclImdb/test/pos/0_9.txt")(world)
        content = bytearray(gzip.decompress((world / name).read_bytes()))
        packed = bytearray(gzip.compress(bytes(content)))
        packed[-8] ^= 1
        (world / name).write_bytes(packed)

    return do


class _Foreign:
    """Unpickled, it would write a file."""

    def __reduce__(self):
        return open, ("results/owned", "w")


def pickled(value: object = None) -> Damage:
    """Batches of CIFAR-10's Python version that hold `value`; None: code to execute."""

    def do(world: pathlib.Path) -> None:
        for path in (world / "raw" / "cifar").iterdir():
            path.unlink()
        content = pickle.dumps(_Foreign() if value is None else value)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            (world / "raw" / "cifar" / name).write_bytes(content)

    return do


def picture(size: int, mode: str = "L", name: str = "imgs/0/sample_0.png") -> Damage:
    """Another picture among Pathfinder's."""
    path = f"raw/pathfinder32/curv_contour_length_14/{name}"
    return lambda world: (
        Image.fromarray(np.zeros((size, size), np.uint8)).convert(mode).save(world / path)
    )
