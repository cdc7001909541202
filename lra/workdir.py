"""The folder of one run: its configuration, what it ran on, metrics, checkpoints and rows.

config.json     the resolved configuration
run.json        data folder and hash; versions, commit and device, all of them where they changed;
                whether all starts were deterministic
metrics.jsonl   one line a training call and an evaluation
checkpoints/    the two latest
evaluations/    what is done of an evaluation that was stopped
rows.jsonl      one row a seed, once the run is complete
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import filelock
from ml_collections import config_dict

from lra.errors import UserError
from lra.files import write_atomically
from lra.protocol import changed_keys
from lra.row import SEPARATOR
from lra.seals import seal, unseal
from lra.settings import check, flatten, from_json, to_json

_TEXTS = ("data_dir", "data_sha256", "commit", "device")
_NOT_NOTED = {"device": "unknown device", "deterministic": None}  # by older versions
# The largest number that a step can have, and the largest float32, which each metric is.
_MOST_STEPS, _LARGEST = 2**63 - 1, 3.4028234663852886e38


class Workdir:
    """Paths and files of a run in `root`."""

    def __init__(self, root: str | os.PathLike):
        self.root = pathlib.Path(root)
        self.config = self.root / "config.json"
        self.run = self.root / "run.json"
        self.metrics = self.root / "metrics.jsonl"
        self.checkpoints = self.root / "checkpoints"
        self.evaluations = self.root / "evaluations"
        self.rows = self.root / "rows.jsonl"
        self.lock = self.root / ".lock"
        self._start: dict[str, Any] = {}

    @contextlib.contextmanager
    def open_for(self, config: config_dict.ConfigDict, run: dict[str, Any]) -> Iterator[None]:
        """Claims the folder for a run of `config`, for as long as the block lasts.

        Args:
            config: of the run.
            run: what this start runs on.

        Raises:
            UserError: it cannot be written, something else is in place of a folder in it, another
                process is training in it, or it holds a run with another configuration (the
                differing keys are named) or other data.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            claim = filelock.FileLock(self.lock, blocking=False).acquire()
        except filelock.Timeout:
            raise UserError(f"{self.root}: another process is training in this workdir") from None
        except OSError as error:
            raise UserError(f"cannot write to workdir {self.root}: {error.strerror}") from None
        for folder in (self.checkpoints, self.evaluations):
            if folder.exists() and not folder.is_dir():
                raise UserError(f"{folder} is no folder, which a run needs there: move it away")
        self._start = run
        with claim:
            if self.config.exists():
                self._compare(config, run)
            elif not self.rows.exists():
                write_atomically(self.run, seal(json.dumps(run, indent=1)))
                write_atomically(self.config, seal(to_json(config)))
            yield

    def note_start(self, *, first: bool) -> None:
        """Adds what this start runs on to what those before ran on; `first`: none saved anything.

        To be called before anything of this start is saved: one that ends without has no part in
        the results.
        """
        facts = self._start if first else self._start | self._history(self._start)
        write_atomically(self.run, seal(json.dumps(facts, indent=1)))

    def load_config(self) -> config_dict.ConfigDict:
        """The configuration of the run.

        Raises:
            UserError: no run, or a file that is damaged or was edited.
        """
        try:
            config = from_json(unseal(self.config.read_bytes()))
            check(config)
        except FileNotFoundError:
            raise UserError(f"{self.root} holds no run: no {self.config.name} in it") from None
        except (ValueError, TypeError, AttributeError, KeyError, UserError):
            raise UserError(f"{self.config} is damaged or was edited") from None
        return config

    def load_run(self) -> dict[str, Any]:
        """What `run.json` says; of runs begun before it said so, what they began on is unknown.

        Raises:
            UserError: no run, or a file that is damaged or was edited.
        """
        try:
            run = _NOT_NOTED | json.loads(unseal(self.run.read_bytes()))
            facts = {key: run[key] for key in (*_TEXTS, "versions", "deterministic")}
            texts = [*(run[key] for key in _TEXTS), *run["versions"].values()]
            known = run["deterministic"] is None or isinstance(run["deterministic"], bool)
            if not known or not all(isinstance(text, str) for text in texts):
                raise ValueError
        except FileNotFoundError:
            raise UserError(f"{self.root} holds no run: no {self.run.name} in it") from None
        except (ValueError, TypeError, AttributeError, KeyError, UserError):
            raise UserError(f"{self.run} is damaged or was edited") from None
        return facts

    def _history(self, run: dict[str, Any]) -> dict[str, Any]:
        """What this start runs on, behind what the starts before have run on."""
        before = self.load_run()
        names = before["versions"] | run["versions"]
        return {
            "commit": _followed(before["commit"], run["commit"]),
            "device": _followed(before["device"], run["device"]),
            "deterministic": run["deterministic"] and before["deterministic"],
            "versions": {
                name: _followed(*(r["versions"].get(name, "none") for r in (before, run)))
                for name in names
            },
        }

    def _compare(self, config: config_dict.ConfigDict, run: dict[str, Any]) -> None:
        there, here = flatten(self.load_config()), flatten(config)
        changed = changed_keys(there, here)
        if changed:
            differences = ", ".join(
                f"{key} ({there.get(key)} there, {here.get(key)} now)" for key in changed
            )
            raise UserError(
                f"{self.root} holds a run with another configuration: {differences}; "
                "choose another --workdir"
            )
        before = self.load_run()
        if before["data_sha256"] != run["data_sha256"]:
            raise UserError(
                f"{self.root} holds a run on other data ({before['data_sha256'][:12]} there, "
                f"{run['data_sha256'][:12]} now); choose another --workdir"
            )
        changes = list(_changed(before, run))
        if changes and not self.rows.exists():
            print(
                f"note: {self.root} was begun with {', '.join(changes)}: it goes on, but not to "
                "the same bits"
            )


def _changed(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Describes in words what has changed in code, libraries and devices since the last start."""
    for name in ("commit", "device"):
        if _followed(before[name], now[name]) != before[name]:
            yield f"{name} {before[name]} (now {now[name]})"
    for name in sorted(before["versions"] | now["versions"]):
        there, here = (run["versions"].get(name, "none") for run in (before, now))
        if _followed(there, here) != there:
            yield f"{name} {there} (now {here})"


def _followed(before: str, now: str) -> str:
    """`before`, with `now` appended if it is something else: `A, B`."""
    return before if before.split(SEPARATOR)[-1] == now else f"{before}{SEPARATOR}{now}"


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; what is none (a kill cuts lines short) is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(line)
            if _is_metric(values):
                found.append(values)
    return found


def _is_metric(values: Any) -> bool:
    """Whether a line of JSON is one that a run writes; damage may make any number of another."""
    if not isinstance(values, dict) or values.get("kind") not in ("train", "eval"):
        return False
    series = [values.get(name) for name in ("loss", "accuracy")]
    step, speed = values.get("step"), values.get("examples_per_second", 0)
    return (
        type(step) is int
        and 0 <= step <= _MOST_STEPS
        and _is_number(speed)
        and speed >= 0
        and all(map(_is_series, series))
        and len(series[0]) == len(series[1])
    )


def _is_series(values: Any) -> bool:
    """Whether it has a number a seed, None for one that has diverged."""
    return isinstance(values, list) and all(value is None or _is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    """Whether it is one that float32 holds; NaN is none."""
    return isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST


class Metrics:
    """`metrics.jsonl`: appended line by line, flushed each time."""

    def __init__(self, path: pathlib.Path, step: int, evaluated: int):
        """Opens for appending, without the lines behind step `step` and evaluation `evaluated`.

        Those were written by a process that was killed before its next checkpoint.
        """
        kept = [
            values
            for values in (read_metrics(path) if path.exists() else [])
            if values["step"] <= (evaluated if values["kind"] == "eval" else step)
        ]
        write_atomically(path, "".join(f"{json.dumps(values)}\n" for values in kept))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115, closed by `close`

    def write(self, **values: Any) -> None:
        """Appends one line."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
