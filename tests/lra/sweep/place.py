"""A sweep of runs that are trained by a stand-in, and what it leaves behind."""

import json
import pathlib
import re
import subprocess
import sys

from lra import records
from lra.data.task_writer import TaskWriter
from lra.row import latest
from lra.sweep.__main__ import main

FAKE = str(pathlib.Path(__file__).parent / "fake_train.py")

SWEEP = """
RUNS = [
    {"config": "configs/listops.py:standard", "seeds": (0, 1)},
    {"config": "configs/listops.py:nystrom", "seeds": (0, 1), "model.attention.num_landmarks": 32},
    {"config": "configs/listops.py:linformer", "seeds": (0, 1), "train.steps": 6000},
]
"""


ONE_RUN = """
RUNS = [{"config": "configs/listops.py:standard", "seeds": (0, 1)}]
"""


class Place:
    """A sweep file with prepared data, and what its sweep leaves behind."""

    def __init__(self, root: pathlib.Path):
        root.mkdir(exist_ok=True)
        self.root = root
        self.file = root / "sweep.py"
        self.file.write_text(SWEEP)
        self.results = root / "results.jsonl"
        self.workdir = root / "runs"
        write_data(root / "data", "listops")

    def argv(self, *more: str) -> list[str]:
        return [
            str(self.file),
            f"--results={self.results}",
            f"--workdir={self.workdir}",
            f"--data_dir={self.root / 'data'}",
            *more,
        ]

    def run(self, *more: str, **behaviour: str) -> int:
        train = fake(**behaviour)
        return main(self.argv(*more), train, _command(train))

    def start(
        self, *more: str, train: tuple[str, ...] | None = None, **behaviour: str
    ) -> subprocess.Popen:
        """The same in a process of its own; `train` instead of the stand-in."""
        command = _command(train or fake(**behaviour))
        return subprocess.Popen([*command, *self.argv(*more)], stderr=subprocess.DEVNULL)

    def rows(self) -> list:
        return latest(records.read(self.results))

    def starts(self) -> list[dict]:
        path = self.workdir / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def without_folders(listing: str) -> list[str]:
    """Lines of a dry run without the name of the folder at the end of each run's."""
    return [re.sub(r" in [\w.=-]+-[0-9a-f]{8}$", "", line) for line in listing.splitlines()]


def _command(train: tuple[str, ...]) -> tuple[str, ...]:
    """Command of a sweep that trains by `train`, without its flags."""
    code = (
        "import sys; from lra.command_line import run; from lra.sweep.__main__ import main; "
        f"again = sys.executable, '-c', sys.orig_argv[2]; run(lambda a: main(a, {train}, again))"
    )
    return sys.executable, "-c", code


def fake(**behaviour: str) -> tuple[str, ...]:
    return (sys.executable, FAKE, json.dumps(behaviour))


def write_data(
    data_dir: pathlib.Path, task: str, mark: str = "generated", example: bytes = b"\x01\x02"
) -> None:
    with TaskWriter(data_dir, task) as writer:
        for split in ("train", "validation", "test"):
            writer.examples(split, [(example, 0)])
        counts = dict.fromkeys(("train", "validation", "test"), 1)
        writer.finish(data=mark, source="a test", counts=counts, max_length=2)
