"""Write a task's prepared data atomically, in the format of `lra.data.prepared`."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from lra.data import atomic_folder
from lra.data.prepared import (
    FORMAT_VERSION,
    MANIFEST,
    SPLITS,
    check_holds_no_data,
    data_sha256,
    manifest_sha256,
)
from lra.disk_space import cure, is_full
from lra.errors import UserError
from lra.files import file_sha256, sync, sync_folder

_ARRAYS = tuple(
    f"{folder}/{name}.npy"
    for folder in (*SPLITS, "docs")
    for name in ("tokens", "offsets", "labels", "pairs")
)


class TaskWriter:
    """Context manager that writes one task's folder, which appears under its name on `finish`.

    Leaving the block without `finish` (an error, Ctrl-C) removes what was written and keeps an
    earlier prepared folder unchanged. If two processes prepare the same task, the second waits in
    `__enter__` for the first.

    Args:
        data_dir: Folder that contains one folder per task; created if missing.
        task: Name of the task.
        request: The user's request; stored in the manifest but not part of its hash.
        flags: Flags that prepare the same data again; stored like `request`.
        data_label: The user's own name for the data, in place of the one given to `finish`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike,
        task: str,
        request: dict[str, Any] | None = None,
        flags: Sequence[str] = (),
        data_label: str | None = None,
    ):
        self.task, self._data_dir = task, pathlib.Path(data_dir)
        # Of a symlink, the target is replaced, not the link.
        self.target = (self._data_dir / task).resolve()
        self._request, self._flags, self._data_label = request, list(flags), data_label
        self._partial = self.target.with_name(f".{self.target.name}.partial")
        self._files: dict[str, dict[str, Any]] = {}
        self._labels: dict[str, int] = {}  # number of labels, by folder
        self._longest = 0
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> "TaskWriter":
        check_holds_no_data(self._data_dir)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as resources:
            resources.enter_context(atomic_folder.locked(self.target))
            atomic_folder.put_back(self.target)
            atomic_folder.remove_previous(self.target)
            atomic_folder.check_replaceable(self.target)
            self._refuse_foreign_folder()
            # Any leftover is from a killed process: a running one would hold the lock.
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir()
            self._resources = resources.pop_all()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with self._resources:
            shutil.rmtree(self._partial, ignore_errors=True)
        if error is not None and is_full(error):
            advice = cure(error, "free some space there or choose another --data_dir")
            raise UserError(
                f"no space left in {self.target.parent} while writing {self.task}; {advice}"
            ) from error

    def sequences(self, folder: str, items: Iterable[np.ndarray | bytes]) -> int:
        """Stream sequences (uint8 arrays or bytes) to `folder`; return their number.

        Raises:
            ValueError: An array is not uint8, and could hold what this format cannot.
        """
        offsets = [0]
        path = self._path(f"{folder}/tokens.npy")
        with open(path, "wb") as file:
            _write_header(file, np.uint8, (0,))
            start = file.tell()
            for item in items:
                if not isinstance(item, bytes) and item.dtype != np.uint8:
                    raise ValueError(f"{folder}: a sequence of {item.dtype}, not of uint8 or bytes")
                file.write(item if isinstance(item, bytes) else np.ascontiguousarray(item))
                offsets.append(offsets[-1] + len(item))
                self._longest = max(self._longest, len(item))
            # The header has a fixed size, so it can be rewritten with the true length.
            file.seek(0)
            _write_header(file, np.uint8, (offsets[-1],))
            assert file.tell() == start
            sync(file)
        self._record(f"{folder}/tokens.npy")
        self.array(f"{folder}/offsets.npy", np.asarray(offsets, np.int64))
        return len(offsets) - 1

    def examples(
        self,
        split: str,
        examples: Iterable[tuple[np.ndarray | bytes, int]],
        bar: tqdm | None = None,
    ) -> int:
        """Stream the examples of a split, each a sequence and its label; return their number.

        Args:
            split: `train`, `validation` or `test`.
            examples: Examples in storage order.
            bar: Progress bar to update for each example.
        """
        labels: list[int] = []

        def items() -> Iterator[np.ndarray | bytes]:
            for item, label in examples:
                labels.append(label)
                if bar is not None:
                    bar.update()
                yield item

        count = self.sequences(split, items())
        self.array(f"{split}/labels.npy", np.asarray(labels, np.int32))
        return count

    def array(self, name: str, values: np.ndarray) -> None:
        """Write an array to `name`, a path relative to the task folder (`train/labels.npy`)."""
        with open(self._path(name), "wb") as file:
            np.save(file, np.ascontiguousarray(values), allow_pickle=False)
            sync(file)
        self._record(name)
        split, _, file_name = name.partition("/")
        if file_name == "labels.npy":
            self._labels[split] = len(values)

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
        """Write the manifest, move the folder to its final place and return the manifest.

        Args:
            data: `official`, `generated` or `differs (...)`.
            source: Origin of the data, in words.
            counts: Number of examples per split.
            max_length: Maximum sequence length; models are built for the next power of two.
            seed: Seed of the generator or the shuffle, or None if there is neither.
            parameters: Parameters of the generator.
            aliases: Splits that equal another one (`{"validation": "test"}`) and are stored once.

        Raises:
            UserError: A split has no examples.
            ValueError: `counts` or `max_length` are not those of what was written.
        """
        for split, count in counts.items():
            if not count:
                raise UserError(f"{self.task}: no examples for {split}; add raw data")
            if (written := self._labels.get((aliases or {}).get(split, split), 0)) != count:
                raise ValueError(
                    f"{self.task}: {written} labels of {split} are written, not {count}"
                )
        if self._longest > max_length:
            raise ValueError(f"{self.task}: a sequence of {self._longest}, more than {max_length}")
        manifest = {
            "format": FORMAT_VERSION,
            "task": self.task,
            "data": self._data_label or data,
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
        manifest["sha256"] = data_sha256(manifest)
        manifest["seal"] = manifest_sha256(manifest)
        with open(self._partial / MANIFEST, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.write("\n")
            sync(file)
        for folder, _, _ in os.walk(self._partial):  # what replaces earlier data is on the disk
            sync_folder(folder)
        atomic_folder.replace(self.target, self._partial)
        return manifest

    def _refuse_foreign_folder(self) -> None:
        """Raise UserError if `finish` would remove anything other than prepared data."""
        cure = "move it or choose another --data_dir"
        if (self.target / MANIFEST).exists():
            own = {MANIFEST, *_ARRAYS, *self._listed_files()}
            for path in self.target.rglob("*"):
                if not (path.is_dir() or path.relative_to(self.target).as_posix() in own):
                    raise UserError(
                        f"{path} is no prepared data, and would be removed with its folder; {cure}"
                    )
        elif self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            raise UserError(
                f"{self.target} is in the way and is not prepared data (it has no {MANIFEST}); "
                f"{cure}"
            )

    def _listed_files(self) -> list[str]:
        """Return the names of the files in the manifest of earlier data; none if it is damaged."""
        try:
            manifest = json.loads((self.target / MANIFEST).read_bytes())
            return [str(name) for name in manifest["files"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []

    def _path(self, name: str) -> pathlib.Path:
        path = self._partial / name
        path.parent.mkdir(exist_ok=True)
        return path

    def _record(self, name: str) -> None:
        path = self._partial / name
        self._files[name] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _write_header(file: BinaryIO, dtype: type, shape: tuple[int, ...]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
