"""Flips bits and cuts files of checkpoints, prepared data and rows, and looks who notices.

    python -m tests.campaigns.damage --flips=30 --cuts=10

Each damage is one random bit, or one random length, of one random file of a fresh copy. Noticed
means: a checkpoint is skipped for the one before, prepared data are refused, a row is refused, or
set aside where it could be a line cut short; each with a line that names the file. Prints the
figures of docs/RELIABILITY.md; exit status 1 if anything passed.
"""

import contextlib
import io
import pathlib
import random
import shutil
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from lra import records
from lra.command_line import ArgumentParser, run
from lra.data import prepared
from lra.errors import UserError
from tests.lra.conftest import ONE_DEVICE, TINY, write_listops
from tests.lra.row_factory import failed_row, make_row


class Kind(NamedTuple):
    """A kind of file: a folder with a sound one, and `noticed(copy, damaged file)`."""

    sound: pathlib.Path
    victims: Callable[[pathlib.Path], list[pathlib.Path]]
    noticed: Callable[[pathlib.Path, pathlib.Path], bool]


def campaign(root: pathlib.Path, flips: int, cuts: int, seed: int) -> dict[str, tuple[int, int]]:
    """By kind and damage, how many were done and how many noticed."""
    rng = random.Random(seed)
    found = {}
    for name, kind in kinds(root).items():
        assert not kind.noticed(kind.sound, kind.victims(kind.sound)[0]), f"{name}: not sound"
        for damage, number in ((flip, flips), (cut, cuts)):
            noticed = 0
            for index in range(number):
                copy = shutil.copytree(kind.sound, root / f"{name}-{damage.__name__}-{index}")
                victim = rng.choice(kind.victims(copy))
                damage(victim, rng)
                noticed += kind.noticed(copy, victim)
                shutil.rmtree(copy)
            found[f"{name}, {_WORDS[damage.__name__]}"] = (number, noticed)
    return found


def kinds(root: pathlib.Path) -> dict[str, Kind]:
    """A small run, its prepared data and a file of rows."""
    write_listops(root / "data")
    (root / "rows").mkdir()
    rows = [make_row(), make_row(0.4, seed=1), failed_row(seed=2), make_row(0.3, seed=3)]
    records.append(root / "rows" / "rows.jsonl", rows)
    return {
        "prepared data": Kind(root / "data", _files, _prepared_noticed),
        "rows": Kind(root / "rows", lambda copy: [copy / "rows.jsonl"], _rows_noticed),
        "checkpoints": Kind(_train(root), _latest_checkpoint, _Restoring(root / "data")),
    }


def flip(path: pathlib.Path, rng: random.Random) -> None:
    """Turn one bit over."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(path: pathlib.Path, rng: random.Random) -> None:
    """Cut the file short, not between two lines."""
    content = path.read_bytes()
    ends = [n for n in range(1, len(content)) if content[n : n + 1] != b"\n" != content[n - 1 : n]]
    path.write_bytes(content[: rng.choice(ends or [0])])


_WORDS = {"flip": "flipped bits", "cut": "truncations"}


def _files(copy: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in copy.rglob("*") if p.is_file() and p.stat().st_size)


def _prepared_noticed(copy: pathlib.Path, victim: pathlib.Path) -> bool:
    try:
        prepared.load(copy, "listops")
    except UserError as error:
        return str(victim) in str(error)
    return False


def _rows_noticed(copy: pathlib.Path, victim: pathlib.Path) -> bool:
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            records.read(victim)
    except UserError as error:
        return str(victim) in str(error)
    return str(victim) in told.getvalue()


def _train(root: pathlib.Path) -> pathlib.Path:
    import train

    overrides = [*TINY, *ONE_DEVICE, "train.steps_per_call=1", "train.checkpoint_seconds=0"]
    flags = [f"--config.{override}" for override in overrides]
    place = [f"--workdir={root / 'run'}", f"--data_dir={root / 'data'}"]
    with contextlib.redirect_stderr(io.StringIO()):
        status = train.main(["--config=configs/listops.py:standard", *place, *flags])
    assert status == 0
    return root / "run"


def _latest_checkpoint(copy: pathlib.Path) -> list[pathlib.Path]:
    """The files of the latest checkpoint, and its list of hashes."""
    folder = copy / "checkpoints"
    latest = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return [folder / f"{latest}.sha256.json", *_files(folder / str(latest))]


class _Restoring:
    """Whether a restore takes the checkpoint before and names the damaged file's."""

    def __init__(self, data: pathlib.Path):
        self._data, self._abstract = data, None

    def __call__(self, copy: pathlib.Path, victim: pathlib.Path) -> bool:
        from lra.checkpoints import Checkpoints

        told = io.StringIO()
        checkpoints = Checkpoints(copy / "checkpoints")
        with contextlib.redirect_stderr(told):
            checkpoints.restore(self._abstract_state(copy))
        checkpoints.close()
        latest = copy / "checkpoints" / victim.relative_to(copy / "checkpoints").parts[0]
        return str(latest).removesuffix(".sha256.json") in told.getvalue()

    def _abstract_state(self, copy: pathlib.Path) -> object:
        from lra.trainer import Trainer
        from lra.workdir import Workdir

        if self._abstract is None:
            data = prepared.load(self._data, "listops")
            trainer = Trainer(Workdir(copy).load_config(), data)
            self._abstract = trainer.abstract_state()
        return self._abstract


def main(argv: list[str]) -> int:
    """Parse the flags and damage; return the exit status."""
    parser = ArgumentParser(prog="python -m tests.campaigns.damage", description=__doc__)
    parser.add_argument("--flips", type=int, default=30, metavar="N", help="(%(default)s)")
    parser.add_argument("--cuts", type=int, default=10, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the places")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(pathlib.Path(folder), options.flips, options.cuts, options.seed)
    for name, (done, noticed) in found.items():
        print(f"{name}: {noticed} of {done} noticed")
    return int(any(noticed < done for done, noticed in found.values()))


if __name__ == "__main__":
    run(main)
