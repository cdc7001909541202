"""Read untrusted archives without unpacking to disk or executing anything."""

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
_MAX_MEMBER_BYTES = 2**34
# Headers with names or further fields of the next member, which tarfile reads into memory.
_EXTENDED_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MAX_EXTENDED_HEADER_BYTES = 2**20
_DAMAGE = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    tarfile.TarError,
    ValueError,
    RecursionError,  # from thousands of extended headers of one member
)


def read_members(
    path: str | os.PathLike, wanted: Callable[[str], bool], limit: int
) -> Iterator[tuple[str, bytes]]:
    """Stream the regular files of a `.tar.gz` whose names `wanted` accepts.

    The archive is read to its last byte, so that its checksum (gzip's CRC-32) is verified.

    Args:
        path: Path of the archive.
        wanted: Predicate of member names.
        limit: Number of leading bytes of each member to read.

    Yields:
        The name and content of each member.

    Raises:
        UserError: The archive is truncated, damaged or of another kind, or it has a member that is
            a link or a device, points outside the folder (absolute, or through `..`) or claims
            more than 16 GiB. The message names the archive and the member.
    """
    position = "its start"
    try:
        with (
            gzip.open(path) as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive,
        ):
            for member in archive:
                archive.members.clear()  # otherwise tarfile keeps every header in memory
                position = f"'{member.name}'"
                _refuse_unsafe(path, member)
                if member.isreg() and wanted(member.name):
                    yield member.name, archive.extractfile(member).read(limit)
            while stream.read(1 << 20):
                pass
    except _DAMAGE as error:
        raise UserError(
            f"{path}: truncated, damaged or not a .tar.gz (at {position}: {error}); fetch it again"
        ) from None


class _Header(tarfile.TarInfo):
    """Header whose damage is an error; tarfile takes most damaged ones for the archive's end.

    Not by `frombuf`, which newer versions of Python do not call when they read an archive.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        """Read the next header of an archive."""
        try:
            return super().fromtarfile(archive)
        # A block of zeros, which ends the archive, or the end of the file, where it may be missing.
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, archive: tarfile.TarFile) -> "_Header":
        """Read what belongs to this header.

        tarfile calls it for every header and intends it to be overridden.
        """
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a sparse file")
        if self.type in _EXTENDED_HEADERS and not 0 <= self.size <= _MAX_EXTENDED_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)


def _refuse_unsafe(path: str | os.PathLike, member: tarfile.TarInfo) -> None:
    name = member.name.replace("\\", "/")
    if ".." in name.split("/") or name.startswith("/") or _DRIVE.match(name):
        raise UserError(f"{path}: refused, its member '{member.name}' points outside the folder")
    if not (member.isreg() or member.isdir()):
        raise UserError(f"{path}: refused, its member '{member.name}' is a link or a device")
    # Skipping a member reads as many bytes as it claims, even if they do not exist.
    if member.issparse() or not 0 <= member.size <= _MAX_MEMBER_BYTES:
        raise UserError(f"{path}: refused, its member '{member.name}' has an impossible size")


def unpickle_bytes(content: bytes, place: str) -> Any:
    """Unpickle plain Python types and NumPy arrays of uint8.

    Made for the batches of CIFAR-10, which were pickled by Python 2: strings become `bytes`, arrays
    become `ByteArray`. Nothing is imported, so a pickle cannot execute code: the few names it may
    refer to are mapped to classes of this module.

    Args:
        content: The pickle.
        place: Name of the pickle in error messages.

    Raises:
        UserError: The pickle has foreign classes or other arrays, is truncated, or is no pickle.
    """
    try:
        _check_sizes(content)
        return _BytesUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(f"{place}: refused or damaged pickle ({error})") from None


class ByteArray:
    """Stand-in for a pickled NumPy array of uint8.

    Attributes:
        values: uint8, of the array's shape.
    """

    def __init__(self, *_: Any):
        self.values = np.zeros(0, np.uint8)  # pickles build an empty array, then set its state

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, column_major, content = state
        if not isinstance(dtype, _Uint8):
            raise pickle.UnpicklingError("an array without a type")
        order = "F" if column_major else "C"
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order=order)


class _Uint8:
    """Stand-in for a pickled NumPy dtype, which must be uint8."""

    def __init__(self, name: str | bytes, *_: Any):
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array of type {name!r}")

    def __setstate__(self, _: tuple) -> None:
        """Ignore byte order and alignment, which do not matter for bytes."""


_KNOWN_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): ByteArray,
    ("numpy._core.multiarray", "_reconstruct"): ByteArray,
    ("numpy", "ndarray"): ByteArray,
    ("numpy", "dtype"): _Uint8,
}


def _check_sizes(content: bytes) -> None:
    """Reject memo indices beyond the pickle's size, for which the unpickler allocates memory."""
    for opcode, argument, _ in pickletools.genops(content):  # raises if truncated
        if "PUT" in opcode.name and argument > len(content):
            raise pickle.UnpicklingError(f"it numbers an object {argument:,}")


class _BytesUnpickler(pickle.Unpickler):
    """Unpickler that resolves only `_KNOWN_NAMES`."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _KNOWN_NAMES:
            raise pickle.UnpicklingError(f"it names the foreign class {module}.{name}")
        return _KNOWN_NAMES[module, name]
