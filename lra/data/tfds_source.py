"""Read a TensorFlow Datasets (TFDS) data set, without TensorFlow where possible.

TFDS needs TensorFlow to download and prepare data, and to read tfrecord files (its default), but
not to read data prepared with `file_format='array_record'`. Once prepared by `lra.data.prepare`,
the data need neither.
"""

import argparse
import importlib.util
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from lra.data.download import Remote, check_reachable
from lra.errors import UserError

SOURCE = "tfds"  # the value of --source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flag for TFDS's folder."""
    parser.add_argument(
        "--tfds_dir",
        metavar="DIR",
        help="with --source=tfds: TFDS's folder (default: $TFDS_DATA_DIR or ~/tensorflow_datasets)",
    )


class Dataset:
    """Data set prepared by TFDS.

    Args:
        name: TFDS's name, with the configuration if there is one: `imdb_reviews/plain_text`.
        tfds_dir: TFDS's folder, or the data set's own folder in it (`.../cifar10/3.0.2`); None for
            TFDS's default.
        remote: File that TFDS downloads if the data set is not prepared.

    Raises:
        UserError: TFDS or TensorFlow is needed but not installed, or TFDS failed. The message says
            how to fix it.
    """

    def __init__(self, name: str, tfds_dir: str | None, remote: Remote):
        if importlib.util.find_spec("tensorflow_datasets") is None:
            raise UserError(
                "--source=tfds needs TFDS: pip install tensorflow-datasets importlib_resources"
            )
        root = pathlib.Path(
            tfds_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        ).expanduser()
        self.folder = _find(root, name) or _prepare(root, name, remote)
        self._builder = _open(self.folder)
        found = self._builder.name
        if found != name.partition("/")[0]:
            raise UserError(
                f"{self.folder} holds TFDS's {found}, not {name}; choose another folder"
            )
        self._array_record = self._builder.info.file_format.value == "array_record"
        if not (self._array_record or _has_tensorflow()):
            raise UserError(
                f"{self.folder} holds {self._builder.info.file_format.value} files, which only "
                "TensorFlow reads: pip install tensorflow-cpu, or have TFDS prepare it again with "
                "file_format='array_record'"
            )

    def examples(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield the examples of `split` in TFDS's order, as NumPy values by feature.

        Raises:
            UserError: There is no such split, or one of its files is missing or damaged.
        """
        if split not in self._builder.info.splits:
            raise UserError(f"{self.folder} has no split '{split}'; prepare it with TFDS again")
        try:
            yield from self._read(split)
        except Exception as error:
            raise self._failure(split, error) from None

    def _read(self, split: str) -> Iterable[dict[str, Any]]:
        if self._array_record:
            return self._builder.as_data_source(split)
        import tensorflow_datasets as tfds

        return tfds.as_numpy(self._builder.as_dataset(split))

    def _failure(self, split: str, error: Exception) -> UserError:
        if isinstance(error, ImportError):
            return UserError(f"TFDS lacks a package ({error}); images need pip install pillow")
        return UserError(
            f"{self.folder}: TFDS cannot read its split '{split}' ({_summary(error)}); remove the "
            "folder and prepare it with TFDS again"
        )


def _find(root: pathlib.Path, name: str) -> pathlib.Path | None:
    """Return the folder of the newest prepared version of the data set, or None."""
    if (root / "dataset_info.json").exists():
        return root
    versions = [path.parent for path in (root / name).glob("*/dataset_info.json")]
    return max(versions, key=lambda path: _version_key(path.name), default=None)


def _version_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _prepare(root: pathlib.Path, name: str, remote: Remote) -> pathlib.Path:
    """Let TFDS download and prepare the data as array_record, to be read without TensorFlow."""
    if not _has_tensorflow():
        raise UserError(
            f"TFDS has no prepared {name} in {root}, and preparing needs TensorFlow: "
            "pip install tensorflow-cpu, or take another --source"
        )
    if not (root / "downloads").exists():
        check_reachable(remote)
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=root, file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:
        raise UserError(f"TFDS could not prepare {name} in {root}: {_summary(error)}") from None
    return pathlib.Path(builder.data_dir)


def _open(folder: pathlib.Path) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder_from_directory(folder)
    except Exception as error:
        raise UserError(f"{folder}: not a data set TFDS can read ({_summary(error)})") from None


def _has_tensorflow() -> bool:
    return importlib.util.find_spec("tensorflow") is not None


def _summary(error: Exception) -> str:
    """Return the first line of a message of TFDS, which are often very long."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
