"""Writing a task's prepared data, in the format of `lra.data.prepared`: all of it or nothing."""

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
from lra.data.prepared import FORMAT_VERSION, MANIFEST, data_sha256, seal
from lra.disk_space import is_full
from lra.errors import UserError
from lra.files import file_sha256, sync


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
            # What is there was left by a killed process: a living one would hold the lock.
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

    def examples(
        self,
        split: str,
        examples: Iterable[tuple[np.ndarray | bytes, int]],
        bar: tqdm | None = None,
    ) -> int:
        """Streams the examples of a split, each a sequence and its label; returns how many.

        Args:
            split: `train`, `validation` or `test`.
            examples: in the order in which they are stored.
            bar: counts them.
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

        Raises:
            UserError: a split without examples.
        """
        for split, count in counts.items():
            if not count:
                raise UserError(f"{self.task}: no examples for {split}; add raw data")
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
        manifest["sha256"] = data_sha256(manifest)
        manifest["seal"] = seal(manifest)
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


def _write_header(file: BinaryIO, dtype: type, shape: tuple[int, ...]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
