"""Reading of archives that are not trusted: nothing is unpacked to disk, nothing is executed."""

import gzip
import io
import os
import pickle
import pickletools
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lra.errors import UserError

_DRIVE = re.compile("[A-Za-z]:")
_LARGEST_MEMBER = 2**34


def read_members(
    path: str | os.PathLike, wanted: Callable[[str], bool], limit: int
) -> Iterator[tuple[str, bytes]]:
    """Streams a `.tar.gz`: name and first `limit` bytes of every regular file that is wanted.

    The archive is read to its last byte, so that its checksum (gzip's CRC-32) is compared.

    Raises:
        UserError: truncated, damaged or of another kind; a link or a device; a member that points
            outside the folder (absolute, or through `..`) or says that it has more than 16 GiB.
            Names the archive and the member.
    """
    last = "its start"
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                archive.members.clear()  # else a stream keeps every header in memory
                last = f"'{member.name}'"
                _refuse_unsafe(path, member)
                if member.isreg() and wanted(member.name):
                    yield member.name, archive.extractfile(member).read(limit)
            while stream.read(1 << 20):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, ValueError) as error:
        raise UserError(
            f"{path}: truncated, damaged or not a .tar.gz (at {last}: {error}); fetch it again"
        ) from None


def _refuse_unsafe(path: str | os.PathLike, member: tarfile.TarInfo) -> None:
    name = member.name.replace("\\", "/")
    if ".." in name.split("/") or name.startswith("/") or _DRIVE.match(name):
        raise UserError(f"{path}: refused, its member '{member.name}' points outside the folder")
    if not (member.isreg() or member.isdir()):
        raise UserError(f"{path}: refused, its member '{member.name}' is a link or a device")
    # Reading on would go through as many bytes, also where there are none.
    if member.issparse() or not 0 <= member.size <= _LARGEST_MEMBER:
        raise UserError(f"{path}: refused, its member '{member.name}' has an impossible size")


def unpickle_bytes(content: bytes, place: str) -> Any:
    """The objects of a pickle made of plain Python types and NumPy arrays of uint8.

    Written for the batches of CIFAR-10, which Python 2 pickled: its strings become `bytes`, its
    arrays `ByteArray`. No name is imported, so a pickle cannot run anything: the few names it may
    use stand for classes of this module.

    Args:
        content: the pickle.
        place: names it in errors.

    Raises:
        UserError: foreign classes, other arrays, truncated, or not a pickle.
    """
    try:
        _check_sizes(content)
        return _BytesUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(f"{place}: refused or damaged pickle ({error})") from None


class ByteArray:
    """What a pickle's NumPy array of uint8 becomes: `values`, of the array's shape."""

    def __init__(self, *_: Any):
        self.values = np.zeros(0, np.uint8)  # pickles build an empty array, then set its state

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, column_major, content = state
        if not isinstance(dtype, _Uint8):
            raise pickle.UnpicklingError("an array without a type")
        order = "F" if column_major else "C"
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order=order)


class _Uint8:
    """NumPy's dtype as pickles build it, which must be uint8."""

    def __init__(self, name: str | bytes, *_: Any):
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array of type {name!r}")

    def __setstate__(self, _: tuple) -> None:
        """Byte order and alignment, which bytes do not have."""


_KNOWN_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): ByteArray,
    ("numpy", "ndarray"): ByteArray,
    ("numpy", "dtype"): _Uint8,
}


def _check_sizes(content: bytes) -> None:
    """Refuses sizes beyond the pickle's own, for which the unpickler would first take memory."""
    for opcode, argument, _ in pickletools.genops(content):  # raises where bytes are missing
        if "PUT" in opcode.name and argument > len(content):
            raise pickle.UnpicklingError(f"it numbers an object {argument:,}")


class _BytesUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _KNOWN_NAMES:
            raise pickle.UnpicklingError(f"it names the foreign class {module}.{name}")
        return _KNOWN_NAMES[module, name]
