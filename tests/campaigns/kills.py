"""Kills a training again and again, and compares what comes of it with an unbroken run.

    python -m tests.campaigns.kills --kills=50

Each run is killed several times, at random moments of chosen phases (start, training, evaluation,
checkpoint, writing of the rows), by SIGKILL or SIGTERM, and started again until it is complete.
After each kill the latest finished checkpoint must have the bytes it was saved with. At the end of
each run its rows (times aside), its final state, to the bit, and its evaluations must be those of
the unbroken run, and many kills must have hit each phase. Prints the figures of
docs/RELIABILITY.md; exit status 1 if anything was wrong. Rows name the commit and whether files
were changed: leave the sources alone meanwhile.
"""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from lra import records
from lra.command_line import ArgumentParser, run
from lra.files import file_sha256
from tests.attention_cases import overrides_of
from tests.lra.conftest import TINY, write_listops
from tests.quick_compilation import XLA_FLAGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = "configs/listops.py:nystrom"
OVERRIDES = (
    *TINY,
    *overrides_of("nystrom"),
    "seeds=(0, 1)",
    "train.steps=20",
    "train.steps_per_call=1",
    "train.checkpoint_seconds=0",
)
PHASES = ("training", "evaluation", "checkpoint", "starting", "rows")
TIMES = ("wall_seconds", "examples_per_second", "peak_memory_mb", "finished")
MANY = 50  # kills, of which some must have hit each phase
_SECONDS = 300  # longer than any start takes


class Place(NamedTuple):
    """Folders of a campaign: prepared data, compiled programs, one folder a run."""

    root: pathlib.Path

    def command(self, workdir: pathlib.Path, file: int) -> list[str]:
        """What trains in `workdir` and tells its phases to the descriptor `file`."""
        flags = [f"--config={SPEC}", f"--workdir={workdir}", f"--data_dir={self.root / 'data'}"]
        flags += [f"--config.{override}" for override in OVERRIDES]
        return [sys.executable, "-m", "tests.campaigns.victim", str(file), *flags]

    def environment(self) -> dict[str, str]:
        """One device, quick compilation, and programs shared by all starts."""
        return os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": XLA_FLAGS,
            "JAX_COMPILATION_CACHE_DIR": str(self.root / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }


class Aim(NamedTuple):
    """A kill: `delay` (a share of the phase's usual length) into the n-th of a phase."""

    phase: str
    occurrence: int
    delay: float
    signal: int


class Ended(NamedTuple):
    """A start: status, stderr, the phase in which a kill hit (None: it ended first), durations."""

    status: int
    errors: str
    phase: str | None
    seconds: dict[str, float]


def start(place: Place, workdir: pathlib.Path, aim: Aim | None, usual: dict[str, float]) -> Ended:
    """Run the training, and kill it as `aim` says."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        place.command(workdir, writer),
        cwd=ROOT,
        env=place.environment(),
        pass_fds=[writer],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    phases = _Phases(reader)
    hit = None
    try:
        if aim and _reached(phases, aim):
            time.sleep(aim.delay * usual[aim.phase])
            phases.read(0)
            if process.poll() is None:
                hit = phases.now
                process.send_signal(aim.signal)
        _, errors = process.communicate(timeout=_SECONDS)
        phases.read(0)
    finally:
        process.kill()
        os.close(reader)
    return Ended(process.returncode, errors, hit, phases.durations())


def _reached(phases: "_Phases", aim: Aim) -> bool:
    """Wait for the phase; False if the process ended before."""
    while phases.counts[aim.phase] < aim.occurrence:
        if not phases.read(_SECONDS):
            return False
    return True


class _Phases:
    """Which phases a process has told of, read from a pipe."""

    def __init__(self, reader: int):
        self._reader = reader
        self._begun = [("starting", time.monotonic())]
        self.counts = collections.Counter(["starting"])

    @property
    def now(self) -> str:
        return self._begun[-1][0]

    def read(self, seconds: float) -> bool:
        """Take in what was told, waiting for it at most so long; False when there is no more."""
        if not select.select([self._reader], [], [], seconds)[0]:
            return False
        told = os.read(self._reader, 1 << 16).decode().split()
        now = time.monotonic()
        self._begun += [(phase, now) for phase in told]
        self.counts.update(told)
        return bool(told)

    def durations(self) -> dict[str, float]:
        """The usual one of each phase."""
        found = collections.defaultdict(list)
        for (phase, begun), (_, ended) in itertools.pairwise(self._begun):
            found[phase].append(ended - begun)
        return {phase: statistics.median(seconds) for phase, seconds in found.items()}


class Tally:
    """What a campaign has found.

    Attributes:
        hits: by phase and signal, kills.
        wrong: what was not as it should be, one line each.
        runs: completed runs compared with the unbroken one.
    """

    def __init__(self):
        self.hits: collections.Counter = collections.Counter()
        self.wrong: list[str] = []
        self.runs = 0

    @property
    def kills(self) -> int:
        """All kills."""
        return sum(self.hits.values())

    @property
    def missed(self) -> list[str]:
        """A line for each phase that none of many kills hit."""
        hit = {phase for phase, _ in self.hits}
        missed = [phase for phase in PHASES if phase not in hit] if self.kills >= MANY else []
        return [f"none of {self.kills} kills hit the phase '{phase}'" for phase in missed]

    def report(self) -> str:
        """The figures, in a few lines."""
        lines = [f"{self.kills} kills in {self.runs} runs, {len(self.wrong)} things wrong"]
        for phase in sorted({phase for phase, _ in self.hits}):
            by_signal = {s: n for (p, s), n in self.hits.items() if p == phase}
            shown = ", ".join(f"{n} {signal.Signals(s).name}" for s, n in by_signal.items())
            lines.append(f"  {phase}: {shown}")
        return "\n".join([*lines, *self.wrong])


def campaign(root: pathlib.Path, kills: int, seed: int, per_run: int = 4) -> Tally:
    """Kill `kills` times, `per_run` times a run."""
    rng, place, tally = random.Random(seed), Place(root), Tally()
    write_listops(root / "data")
    whole = root / "whole"
    unbroken = start(place, whole, None, {})
    if unbroken.status:
        raise RuntimeError(unbroken.errors)
    usual = collections.defaultdict(float, unbroken.seconds)
    expected = outcome(whole)
    while tally.kills < kills:
        workdir = root / f"run{tally.runs}"
        number = min(per_run, kills - tally.kills)
        for aim in _aims(rng, number, tally.runs):
            ended = start(place, workdir, aim, usual)
            if ended.phase:
                tally.hits[ended.phase, aim.signal] += 1
                print(f"{tally.kills}: {aim} hit {ended.phase}", file=sys.stderr, flush=True)
            tally.wrong += _wrong_after(workdir, aim, ended)
        ended = start(place, workdir, None, usual)
        tally.runs += 1
        tally.wrong += [f"{workdir}: status {ended.status}: {ended.errors}"] * bool(ended.status)
        tally.wrong += _differences(workdir, expected)
    tally.wrong += tally.missed
    return tally


def _aims(rng: random.Random, number: int, runs: int) -> list[Aim]:
    """The kills of a run: phases in turn, over the runs; that of the rows comes last."""
    first = runs * (number - 1)
    middle = PHASES[:-1]
    phases = [middle[index % len(middle)] for index in range(first, first + number - 1)]
    phases.append(PHASES[-1])
    return [
        Aim(
            phase,
            rng.randint(1, {"training": 5, "checkpoint": 5, "evaluation": 2}.get(phase, 1)),
            0.7 * rng.random(),  # later ones often find the phase over
            rng.choice((signal.SIGKILL, signal.SIGTERM)),
        )
        for phase in phases
    ]


def _wrong_after(workdir: pathlib.Path, aim: Aim, ended: Ended) -> list[str]:
    """Whether status, checkpoints and rows are as they may be after a kill."""
    wrong = []
    allowed = {0, -signal.SIGKILL} if aim.signal == signal.SIGKILL else {0, 75, -signal.SIGTERM}
    if ended.status not in allowed or "damaged" in ended.errors:
        wrong.append(f"{workdir}: {aim}: status {ended.status}: {ended.errors[-500:]}")
    if not latest_is_readable(workdir / "checkpoints"):
        wrong.append(f"{workdir}: {aim}: the latest finished checkpoint is damaged")
    rows = workdir / "rows.jsonl"
    if rows.exists() and len(records.read(rows)) != 2:
        wrong.append(f"{workdir}: {aim}: {rows.read_text()}")
    return wrong


def latest_is_readable(folder: pathlib.Path) -> bool:
    """Whether the files of the latest finished checkpoint have the hashes written beside it."""
    hashes = {int(path.name.partition(".")[0]): path for path in folder.glob("*.sha256.json")}
    finished = [number for number in hashes if (folder / str(number)).is_dir()]
    if not finished:
        return True
    latest = max(finished)
    expected = json.loads(hashes[latest].read_text())
    found = [path for path in (folder / str(latest)).rglob("*") if path.is_file()]
    return expected == {
        str(path.relative_to(folder / str(latest))): file_sha256(path) for path in found
    }


def outcome(workdir: pathlib.Path) -> dict[str, object]:
    """What two runs must have in common: rows without times, evaluations, the final state."""
    rows = []
    for line in (workdir / "rows.jsonl").read_text().splitlines():
        values = json.loads(line)
        rows.append({k: v for k, v in values.items() if k not in (*TIMES, "sha256")})
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return {
        "rows": rows,
        "evaluations": [line for line in lines if line["kind"] == "eval"],
        "state": final_state(workdir),
    }


def final_state(workdir: pathlib.Path) -> list[bytes]:
    """The bytes of every array of the last checkpoint."""
    import jax
    import numpy as np

    from lra.restored import restore_workdir

    with contextlib.redirect_stdout(None):
        restored = restore_workdir(workdir, splits=("test",))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(restored.state)]


def _differences(workdir: pathlib.Path, expected: dict[str, object]) -> list[str]:
    if not (workdir / "rows.jsonl").exists():
        return [f"{workdir}: no rows"]
    found = outcome(workdir)
    return [f"{workdir}: other {name}" for name in expected if found[name] != expected[name]]


def main(argv: list[str]) -> int:
    """Parse the flags and kill; return the exit status."""
    parser = ArgumentParser(prog="python -m tests.campaigns.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(pathlib.Path(folder), options.kills, options.seed)
    print(tally.report())
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    run(main)
