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

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lra.data import atomic_folder
from lra.disk_space import is_full
from lra.errors import UserError
from lra.files import file_sha256, sync
from lra.tasks import TASKS

FORMAT_VERSION = 1
SPLITS = ("train", "validation", "test")
MANIFEST = "manifest.json"

# Of a manifest: equal data have equal hashes, whatever flags led to them.
_NOT_DATA = ("sha256", "request", "flags", "seal")


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


class TaskWriter:
    """Writes one task's folder; nothing is visible under its name until `finish`.

    Use it as a context manager: leaving the block without `finish` (an error, Ctrl-C) removes
    what was written and leaves an earlier prepared folder as it was. Of two processes that
    prepare the same task the second waits in `__enter__` for the first.

    Args:
        data_dir: the folder that holds the tasks' folders; made where missing.
        task: the task's name.
        request: what the user asked for; kept in the manifest but not part of its hash.
        flags: to prepare the same again; kept like `request`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike,
        task: str,
        request: dict[str, Any] | None = None,
        flags: Sequence[str] = (),
    ):
        self.task = task
        self.target = (pathlib.Path(data_dir) / task).resolve()  # of a link what it points to
        self._request, self._flags = request, list(flags)
        self._scratch = self.target.with_name(f".{task}.partial")
        self._files: dict[str, dict[str, Any]] = {}
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "TaskWriter":
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as held:
            held.enter_context(atomic_folder.locked(self.target))
            atomic_folder.put_back(self.target)
            atomic_folder.remove_previous(self.target)
            self._refuse_foreign_folder()
            # Only a killed process leaves one behind: a living one would hold the lock.
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            self._held = held.pop_all()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with self._held:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if error is not None and is_full(error):
            raise UserError(
                f"no space left in {self.target.parent} while writing {self.task}; free some "
                "space there or choose another --data_dir"
            ) from error

    def sequences(self, folder: str, items: Iterable[np.ndarray | bytes]) -> int:
        """Streams sequences (uint8 arrays or bytes) to `folder`; returns how many there were."""
        offsets = [0]
        path = self._path(f"{folder}/tokens.npy")
        with open(path, "wb") as file:
            _write_header(file, np.uint8, (0,))
            start = file.tell()
            for item in items:
                data = item if isinstance(item, bytes) else np.ascontiguousarray(item, np.uint8)
                file.write(data)
                offsets.append(offsets[-1] + len(data))
            # The header has a fixed size, so the true length can be written over the 0.
            file.seek(0)
            _write_header(file, np.uint8, (offsets[-1],))
            assert file.tell() == start
            sync(file)
        self._record(f"{folder}/tokens.npy")
        self.array(f"{folder}/offsets.npy", np.asarray(offsets, np.int64))
        return len(offsets) - 1

    def array(self, name: str, values: np.ndarray) -> None:
        """Writes one array, `name` relative to the task folder (`train/labels.npy`)."""
        with open(self._path(name), "wb") as file:
            np.save(file, np.ascontiguousarray(values), allow_pickle=False)
            sync(file)
        self._record(name)

    def finish(
        self,
        *,
        data: str,
        source: str,
        counts: dict[str, int],
        max_length: int,
        seed: int | None = None,
        parameters: dict[str, Any] | None = None,
        aliases: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Writes the manifest and puts the folder in its place; returns the manifest.

        Args:
            data: `official`, `generated`, `differs (...)`, or the user's own name for it.
            source: where it came from, in words.
            counts: examples per split.
            max_length: no sequence is longer; models are built for the next power of two.
            seed: of the generator or the shuffle, None where there is neither.
            parameters: the generator's.
            aliases: splits that are another one (`{"validation": "test"}`), not stored twice.
        """
        manifest = {
            "format": FORMAT_VERSION,
            "task": self.task,
            "data": data,
            "source": source,
            "seed": seed,
            "parameters": parameters or {},
            "max_length": max_length,
            "counts": counts,
            "aliases": aliases or {},
            "files": self._files,
            "request": self._request,
            "flags": self._flags,
        }
        manifest["sha256"] = _hash_without(manifest, _NOT_DATA)
        manifest["seal"] = _hash_without(manifest, ("seal",))
        with open(self._scratch / MANIFEST, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.write("\n")
            sync(file)
        atomic_folder.replace(self.target, self._scratch)
        return manifest

    def _refuse_foreign_folder(self) -> None:
        """What `finish` would remove must be prepared data, never somebody's raw files."""
        if not self.target.exists() or (self.target / MANIFEST).exists():
            return
        if not self.target.is_dir() or any(self.target.iterdir()):
            raise UserError(
                f"{self.target} is in the way and is not prepared data (it has no {MANIFEST}); "
                "move it or choose another --data_dir"
            )

    def _path(self, name: str) -> pathlib.Path:
        path = self._scratch / name
        path.parent.mkdir(exist_ok=True)
        return path

    def _record(self, name: str) -> None:
        path = self._scratch / name
        self._files[name] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


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
        # Another process may have put other data there meanwhile, as a whole.
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
    sealed = "seal" not in manifest or manifest["seal"] == _hash_without(manifest, ("seal",))
    if not sealed or sha256 != _hash_without(manifest, _NOT_DATA):
        raise UserError(f"{path} was edited or damaged; prepare it again: {again}")
    return manifest


def _hash_without(manifest: dict[str, Any], names: tuple[str, ...]) -> str:
    rest = {key: value for key, value in manifest.items() if key not in names}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _write_header(file, dtype: type, shape: tuple[int, ...]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
