"""Format of prepared data: flat arrays on disk and a manifest with their hashes.

    <data_dir>/<task>/manifest.json
    <data_dir>/<task>/<split>/tokens.npy     uint8, all sequences concatenated
    <data_dir>/<task>/<split>/offsets.npy    int64, n + 1; sequence i ends where i + 1 starts
    <data_dir>/<task>/<split>/labels.npy     int32, n

Retrieval stores each document once, in `docs/{tokens,offsets}.npy`, and
`<split>/{pairs,labels}.npy` (pairs: int32, n x 2, indices into docs). A task folder is replaced
atomically once the new one is complete. A file that differs from its manifest by a single bit is
rejected.
"""

import hashlib
import json
import os
import pathlib
import shlex
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from lra.data import atomic_folder
from lra.errors import UserError
from lra.files import file_sha256
from lra.tasks import TASKS

FORMAT_VERSION = 1
SPLITS = ("train", "validation", "test")
MANIFEST = "manifest.json"

# Entries of a manifest that `data_sha256` excludes.
_NOT_DATA = ("sha256", "request", "flags", "seal")


class Sequences(NamedTuple):
    """Sequences of bytes.

    Attributes:
        tokens: uint8 [total], all sequences concatenated.
        offsets: int64 [n + 1], sequence i ends where i + 1 starts.
    """

    tokens: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


class Split(NamedTuple):
    """One split of a task.

    Attributes:
        sequences: Sequences of the examples, or all documents if there are pairs.
        labels: int32 [n].
        pairs: int32 [n, 2], indices into the documents, or None.
    """

    sequences: Sequences
    labels: np.ndarray
    pairs: np.ndarray | None


class Estimate(NamedTuple):
    """Estimated cost of preparing a task.

    Attributes:
        bytes: Disk space in bytes.
        seconds: Time in seconds on a machine like the README's.
    """

    bytes: int
    seconds: float


class Prepared(NamedTuple):
    """A prepared task.

    Attributes:
        manifest: Contents of the manifest.
        root: Folder of the task.
        arrays: Memory-mapped arrays by file name; they remain valid when another process replaces
            the folder.
    """

    manifest: dict[str, Any]
    root: pathlib.Path
    arrays: dict[str, np.ndarray]

    def split(self, name: str) -> Split:
        """Return one of the splits `train`, `validation`, `test`."""
        folder = self.manifest["aliases"].get(name, name)
        pairs = self.arrays.get(f"{folder}/pairs.npy")
        texts = folder if pairs is None else "docs"
        tokens, offsets = self.arrays[f"{texts}/tokens.npy"], self.arrays[f"{texts}/offsets.npy"]
        return Split(Sequences(tokens, offsets), self.arrays[f"{folder}/labels.npy"], pairs)

    @property
    def sha256(self) -> str:
        """Hash of the whole data set: that of the manifest, which contains those of all files."""
        return self.manifest["sha256"]


def data_sha256(manifest: dict[str, Any]) -> str:
    """Hash the data and their mark, but not the flags they were prepared with."""
    return _hash_excluding(manifest, _NOT_DATA)


def manifest_sha256(manifest: dict[str, Any]) -> str:
    """Hash the entire manifest except its `seal`, which is this hash."""
    return _hash_excluding(manifest, ("seal",))


def load(data_dir: str | os.PathLike, task: str, *, check_hashes: bool = True) -> Prepared:
    """Open a prepared task after verifying its files against the manifest.

    Args:
        data_dir: Folder that contains one folder per task.
        task: Name of the task.
        check_hashes: Whether to read every file and compare its sha256 (about a second per GB);
            sizes are always compared.

    Raises:
        UserError: The task is not prepared or has another format version, or a file is missing,
            truncated or edited.
    """
    root = pathlib.Path(data_dir) / task
    while True:
        manifest, problem, arrays = _read_manifest(root, task), None, {}
        try:
            _check_files(root, task, manifest, check_hashes=check_hashes)
            arrays = _arrays(root, task, manifest)
        except (UserError, OSError) as error:
            problem = error
        # Another process may have replaced the folder in the meantime; then read it again.
        if _read_manifest(root, task) == manifest:
            if problem:
                raise problem
            return Prepared(manifest, root, arrays)


def _check_files(
    root: pathlib.Path, task: str, manifest: dict[str, Any], *, check_hashes: bool
) -> None:
    command = _command(root, task, manifest.get("flags", ()))
    for name, facts in manifest["files"].items():
        path = root / name
        if not path.is_file():
            raise UserError(f"{path} is missing; prepare it again: {command}")
        if path.stat().st_size != facts["bytes"]:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes, its manifest says {facts['bytes']}; "
                f"prepare it again: {command}"
            )
        if check_hashes and file_sha256(path) != facts["sha256"]:
            raise UserError(
                f"{path} differs from its manifest (sha256); prepare it again: {command}"
            )


def _arrays(root: pathlib.Path, task: str, manifest: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, facts in manifest["files"].items():
        mode = "r" if facts["bytes"] > 128 else None  # an empty array cannot be memory-mapped
        try:
            arrays[name] = np.load(root / name, mmap_mode=mode, allow_pickle=False)
        except (ValueError, EOFError):
            command = _command(root, task, manifest.get("flags", ()))
            raise UserError(f"{root / name} is no array; prepare it again: {command}") from None
    return arrays


def _command(root: pathlib.Path, task: str, flags: Iterable[str] = ()) -> str:
    place = f"--data_dir={shlex.quote(str(root.parent))}"
    words = (f"python -m lra.data.prepare {task}", place, *flags)
    return " ".join(words)


def _first_command(root: pathlib.Path, task: str) -> str:
    """Return the command that prepares a task for the first time, with --source if needed."""
    source = TASKS[task].source if task in TASKS else ""
    return _command(root, task, [f"--source={source}"] if source else [])


def check_holds_no_data(data_dir: pathlib.Path) -> None:
    """Raise UserError if a folder for prepared data is itself the prepared data of a task."""
    if (data_dir / MANIFEST).is_file():
        raise UserError(
            f"{data_dir} is the prepared data of one task; say --data_dir={data_dir.parent}"
        )


def _read_manifest(root: pathlib.Path, task: str) -> dict[str, Any]:
    path, command = root / MANIFEST, _first_command(root, task)
    target = root.resolve()
    if atomic_folder.interrupted(target):
        with atomic_folder.locked(target):
            atomic_folder.put_back(target)
    if not path.is_file():
        check_holds_no_data(root.parent)
        raise UserError(f"no prepared {task} in {root.parent}; prepare it: {command}")
    try:
        manifest = json.loads(path.read_bytes())
        version, sha256 = manifest["format"], manifest["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path} is not a manifest; prepare it again: {command}") from None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {version!r}, this version reads {FORMAT_VERSION}; "
            f"prepare it again: {command}"
        )
    sealed = "seal" not in manifest or manifest["seal"] == manifest_sha256(manifest)
    if not sealed or sha256 != data_sha256(manifest):
        raise UserError(f"{path} was edited or damaged; prepare it again: {command}")
    if manifest.get("task") != task:
        raise UserError(
            f"{path} is of task {manifest.get('task')!r}, not of {task}; prepare it: {command}"
        )
    return manifest


def _hash_excluding(manifest: dict[str, Any], names: tuple[str, ...]) -> str:
    rest = {key: value for key, value in manifest.items() if key not in names}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
