"""The one format of prepared data: flat arrays on disk, a manifest with their hashes.

    <data_dir>/<task>/manifest.json
    <data_dir>/<task>/<split>/tokens.npy     uint8, all sequences one after another
    <data_dir>/<task>/<split>/offsets.npy    int64, n + 1; sequence i ends where i + 1 starts
    <data_dir>/<task>/<split>/labels.npy     int32, n

Retrieval keeps each document once, in `docs/{tokens,offsets}.npy`, and `<split>/{pairs,labels}.npy`
(pairs: int32, n x 2, indices into docs). A task folder appears under its name only when it is
complete; what stood there before stays until then. A file that differs from its manifest by a
single bit is refused.
"""

import hashlib
import json
import os
import pathlib
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

_NOT_DATA = ("sha256", "request", "flags", "seal")  # entries of a manifest


class Sequences(NamedTuple):
    """Sequences of bytes: `tokens` uint8 [total], `offsets` int64 [n + 1]."""

    tokens: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


class Split(NamedTuple):
    """One split: `labels` int32 [n]; `pairs` int32 [n, 2] into the documents, or None."""

    sequences: Sequences
    labels: np.ndarray
    pairs: np.ndarray | None


class Estimate(NamedTuple):
    """What preparing a task takes: `bytes` on disk, `seconds` on a machine like the README's."""

    bytes: int
    seconds: float


class Prepared(NamedTuple):
    """A prepared task: its manifest, its folder, and its arrays, memory-mapped, by name of file.

    They stay what they are when another process replaces the folder.
    """

    manifest: dict[str, Any]
    root: pathlib.Path
    arrays: dict[str, np.ndarray]

    def split(self, name: str) -> Split:
        """One of `train`, `validation`, `test`."""
        folder = self.manifest["aliases"].get(name, name)
        pairs = self.arrays.get(f"{folder}/pairs.npy")
        texts = folder if pairs is None else "docs"
        tokens, offsets = self.arrays[f"{texts}/tokens.npy"], self.arrays[f"{texts}/offsets.npy"]
        return Split(Sequences(tokens, offsets), self.arrays[f"{folder}/labels.npy"], pairs)

    @property
    def sha256(self) -> str:
        """One hash for the whole data set: the manifest's, which holds those of all files."""
        return self.manifest["sha256"]


def data_sha256(manifest: dict[str, Any]) -> str:
    """A hash of the data and their mark; the flags they were prepared with do not count."""
    return _hash_without(manifest, _NOT_DATA)


def seal(manifest: dict[str, Any]) -> str:
    """A hash of all else in the manifest."""
    return _hash_without(manifest, ("seal",))


def load(data_dir: str | os.PathLike, task: str, *, check_hashes: bool = True) -> Prepared:
    """Opens a prepared task after comparing its files with the manifest.

    Args:
        data_dir: the folder that holds the tasks' folders.
        task: the task's name.
        check_hashes: read every file and compare its sha256 (about a second per GB); sizes are
            always compared.

    Raises:
        UserError: not prepared, of another format version, or a file that is missing, truncated
            or edited.
    """
    root = pathlib.Path(data_dir) / task
    while True:
        manifest, problem, arrays = _read_manifest(root, task), None, {}
        try:
            _check_files(root, task, manifest, check_hashes=check_hashes)
            arrays = _arrays(root, task, manifest)
        except (UserError, OSError) as error:
            problem = error
        # Another process may have replaced the whole folder meanwhile; then it is read again.
        if _read_manifest(root, task) == manifest:
            if problem:
                raise problem
            return Prepared(manifest, root, arrays)


def _check_files(
    root: pathlib.Path, task: str, manifest: dict[str, Any], *, check_hashes: bool
) -> None:
    again = _command(root, task, manifest.get("flags", ()))
    for name, facts in manifest["files"].items():
        path = root / name
        if not path.is_file():
            raise UserError(f"{path} is missing; prepare it again: {again}")
        if path.stat().st_size != facts["bytes"]:
            raise UserError(
                f"{path} has {path.stat().st_size} bytes, its manifest says {facts['bytes']}; "
                f"prepare it again: {again}"
            )
        if check_hashes and file_sha256(path) != facts["sha256"]:
            raise UserError(f"{path} differs from its manifest (sha256); prepare it again: {again}")


def _arrays(root: pathlib.Path, task: str, manifest: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, facts in manifest["files"].items():
        mode = "r" if facts["bytes"] > 128 else None  # an empty array cannot be mapped
        try:
            arrays[name] = np.load(root / name, mmap_mode=mode, allow_pickle=False)
        except (ValueError, EOFError):
            again = _command(root, task, manifest.get("flags", ()))
            raise UserError(f"{root / name} is no array; prepare it again: {again}") from None
    return arrays


def _command(root: pathlib.Path, task: str, flags: Iterable[str] = ()) -> str:
    words = (f"python -m lra.data.prepare {task}", f"--data_dir={root.parent}", *flags)
    return " ".join(words)


def _first_command(root: pathlib.Path, task: str) -> str:
    """How to prepare what nothing is known of; what is not generated needs its source named."""
    source = TASKS[task].source if task in TASKS else ""
    return _command(root, task, [f"--source={source}"] if source else [])


def _read_manifest(root: pathlib.Path, task: str) -> dict[str, Any]:
    path, again = root / MANIFEST, _first_command(root, task)
    target = root.resolve()
    if atomic_folder.interrupted(target):
        with atomic_folder.locked(target):
            atomic_folder.put_back(target)
    if not path.is_file():
        raise UserError(f"no prepared {task} in {root.parent}; prepare it: {again}")
    try:
        manifest = json.loads(path.read_bytes())
        version, sha256 = manifest["format"], manifest["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path} is not a manifest; prepare it again: {again}") from None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {version!r}, this version reads {FORMAT_VERSION}; "
            f"prepare it again: {again}"
        )
    sealed = "seal" not in manifest or manifest["seal"] == seal(manifest)
    if not sealed or sha256 != data_sha256(manifest):
        raise UserError(f"{path} was edited or damaged; prepare it again: {again}")
    return manifest


def _hash_without(manifest: dict[str, Any], names: tuple[str, ...]) -> str:
    rest = {key: value for key, value in manifest.items() if key not in names}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
