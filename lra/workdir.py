"""Folder of one run: its configuration, environment, metrics, checkpoints and rows.

config.json     the resolved configuration
run.json        folder, mark (as in rows) and hash of the data, length of padded sequences;
                versions, commit and device, with their history if they changed; whether all
                processes of the run were deterministic
metrics.jsonl   one line per training call and per evaluation
checkpoints/    the two latest
evaluations/    partial results of an interrupted evaluation
rows.jsonl      one row per seed, once the run is complete
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
from lra.stderr import say

_MANIFEST = "manifest.json"  # as in `lra.data.prepared`, which imports NumPy
_TEXT_FIELDS = ("data_dir", "data_sha256", "commit", "device")
_MISSING_IN_OLD = {
    "device": "unknown device",
    "deterministic": None,
    "length": None,
    "data": None,
}
_TYPES = {"deterministic": bool, "length": int, "data": str}  # if known
# What loading a file raises that is damaged or was edited.
_DAMAGED = (ValueError, TypeError, AttributeError, KeyError, RecursionError, UserError)


def check_path(folder: pathlib.Path) -> None:
    """Raise UserError for a path where Orbax loses arrays: a backslash is a slash to it."""
    path = folder.resolve().as_posix()
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"workdir {path!r} is no text in UTF-8, as checkpoints need; rename it, or choose "
            "another"
        ) from None
    if "\\" in path:
        raise UserError(
            f"workdir {path} has a backslash, which checkpoints do not keep; rename it, or choose "
            "another"
        )


class Workdir:
    """Paths and files of a run in `root`."""

    def __init__(self, root: str | os.PathLike):
        self.root = pathlib.Path(root)
        self.config = self.root / "config.json"
        self.facts = self.root / "run.json"
        self.metrics = self.root / "metrics.jsonl"
        self.checkpoints = self.root / "checkpoints"
        self.evaluations = self.root / "evaluations"
        self.rows = self.root / "rows.jsonl"
        self.lock = self.root / ".lock"
        self._start: dict[str, Any] = {}

    @contextlib.contextmanager
    def open_for(self, config: config_dict.ConfigDict, facts: dict[str, Any]) -> Iterator[None]:
        """Lock the folder for a run of `config` until the block is left.

        Args:
            config: Config of the run.
            facts: Data and environment of this process, for run.json.

        Raises:
            UserError: If the folder cannot be written, a file is in place of one of its folders,
                another process is training in it, or it holds a run with another configuration (the
                message names the keys) or other data, or checkpoints without a configuration.
        """
        self._start = facts
        with self._acquire():
            for folder in (self.checkpoints, self.evaluations):
                if folder.exists() and not folder.is_dir():
                    raise UserError(f"{folder} is not a folder, as a run needs there: move it away")
            if self.config.exists():
                self._compare(config, facts)
            elif self._has_saved():
                raise UserError(
                    f"{self.checkpoints} is of a run whose {self.config.name} is not there: "
                    "restore that file, or move the checkpoints away"
                )
            elif not self.rows.exists():
                write_atomically(self.facts, seal(json.dumps(facts, indent=1)))
                write_atomically(self.config, seal(to_json(config)))
            yield

    def check_free(self) -> None:
        """Raise UserError if another process is training in this folder, or it can hold no run.

        It cannot if it holds prepared data or `check_path` refuses its path. Nothing is made here.
        `open_for` comes only after the data and the model are on the devices, where there may be no
        room beside those of the other process.
        """
        check_path(self.root)
        if (self.root / _MANIFEST).exists() and not self.config.exists():
            raise UserError(f"{self.root} holds prepared data; choose another --workdir")
        if self.lock.exists():
            with self._acquire():
                pass

    def _acquire(self) -> filelock.AcquireReturnProxy:
        """Lock the folder, or raise UserError."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            return filelock.FileLock(self.lock, blocking=False).acquire()
        except filelock.Timeout:
            raise UserError(f"{self.root}: another process is training in this workdir") from None
        except OSError as error:
            raise UserError(f"cannot write to workdir {self.root}: {error.strerror}") from None

    def note_start(self, *, first: bool) -> None:
        """Add the environment of this process to run.json, or replace it if `first`.

        Call this just before the process first saves something: one that saves nothing has no part
        in the results. `first` is for a run of which nothing was saved before.
        """
        facts = self._start if first else self._start | self._history(self._start)
        write_atomically(self.facts, seal(json.dumps(facts, indent=1)))

    def load_config(self) -> config_dict.ConfigDict:
        """Load the configuration of the run.

        Raises:
            UserError: If there is no run, the file is damaged or was edited, or this code has no
                such configuration, for example not its attention.
        """
        try:
            config = from_json(unseal(self.config.read_bytes()))
        except FileNotFoundError:
            raise self._no_run(self.config) from None
        except _DAMAGED:
            raise UserError(f"{self.config} is damaged or was edited") from None
        try:
            check(config)
        except UserError as error:
            raise UserError(f"{self.config} is of other code, or was edited: {error}") from None
        return config

    def load_facts(self) -> dict[str, Any]:
        """Load run.json; fields that older versions did not write are unknown.

        Raises:
            UserError: If there is no run, or the file is damaged or was edited.
        """
        try:
            stored = _MISSING_IN_OLD | json.loads(unseal(self.facts.read_bytes()))
            facts = {key: stored[key] for key in (*_TEXT_FIELDS, "versions", *_MISSING_IN_OLD)}
            texts = [*(stored[key] for key in _TEXT_FIELDS), *stored["versions"].values()]
            typed = all(type(stored[key]) in (kind, type(None)) for key, kind in _TYPES.items())
            if not typed or not all(isinstance(text, str) for text in texts):
                raise ValueError
        except FileNotFoundError:
            raise self._no_run(self.facts) from None
        except _DAMAGED:
            raise UserError(f"{self.facts} is damaged or was edited") from None
        return facts

    def _has_saved(self) -> bool:
        return self.checkpoints.is_dir() and any(self.checkpoints.iterdir())

    def _no_run(self, missing: pathlib.Path) -> UserError:
        """Error for a folder without a file of runs; it may be one of a sweep, with runs in it."""
        runs = sorted(path.parent for path in self.root.glob(f"*/{missing.name}"))
        line = f"{self.root} holds no run: no {missing.name} in it"
        if runs:
            line += f"; name a folder in it that holds one, such as {runs[0]} (1 of {len(runs)})"
        return UserError(line)

    def _history(self, now: dict[str, Any]) -> dict[str, Any]:
        """Environments of all earlier processes, followed by that of this one."""
        before = self.load_facts()
        names = before["versions"] | now["versions"]
        return {
            "commit": _append_if_new(before["commit"], now["commit"]),
            "device": _append_if_new(before["device"], now["device"]),
            "deterministic": now["deterministic"] and before["deterministic"],
            "versions": {
                name: _append_if_new(
                    *(facts["versions"].get(name, "none") for facts in (before, now))
                )
                for name in names
            },
        }

    def _compare(self, config: config_dict.ConfigDict, now: dict[str, Any]) -> None:
        old, new = flatten(self.load_config()), flatten(config)
        changed = changed_keys(old, new)
        if changed:
            differences = ", ".join(
                f"{key} ({old.get(key)} there, {new.get(key)} now)" for key in changed
            )
            raise UserError(
                f"{self.root} holds a run with another configuration: {differences}; "
                "choose another --workdir"
            )
        before = self.load_facts()
        if before["data_sha256"] != now["data_sha256"]:
            raise UserError(
                f"{self.root} holds a run on other data ({before['data_sha256'][:12]} there, "
                f"{now['data_sha256'][:12]} now); choose another --workdir"
            )
        changes = list(_describe_changes(before, now))
        if changes and self._has_saved() and not self.rows.exists():
            say(
                f"note: {self.root} was begun with {', '.join(changes)}: it goes on, but not to "
                "the same bits"
            )


def _describe_changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Describe each change of code, devices and libraries since the previous process."""
    for name in ("commit", "device"):
        if _append_if_new(before[name], now[name]) != before[name]:
            yield f"{name} {before[name]} (now {now[name]})"
    for name in sorted(before["versions"] | now["versions"]):
        old, new = (facts["versions"].get(name, "none") for facts in (before, now))
        if _append_if_new(old, new) != old:
            yield f"{name} {old} (now {new})"


def _append_if_new(before: str, now: str) -> str:
    """Append `now` to the history `before` unless it is its last entry: `A, B`."""
    return before if before.split(SEPARATOR)[-1] == now else f"{before}{SEPARATOR}{now}"
