"""Download a file of known size and hash, resuming an interrupted download.

Only https is used, including for redirects.
"""

import contextlib
import http.client
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request
from typing import BinaryIO, NamedTuple

from tqdm import tqdm

from lra.data import atomic_folder
from lra.errors import UserError
from lra.files import file_sha256, sync, sync_folder

TIMEOUT_SECONDS = 60
SECURE = ("https://",)  # allowed URL prefixes
_CHUNK_BYTES = 1 << 18


class Remote(NamedTuple):
    """File on a server.

    Attributes:
        url: URL of the file.
        bytes: Size in bytes.
        sha256: Hash in hexadecimal.
    """

    url: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """File name: the last part of the URL."""
        return self.url.rpartition("/")[2]


def download(remote: Remote, folder: str | os.PathLike) -> pathlib.Path:
    """Download a file into `folder` and return its path; an existing file is only verified.

    Received bytes are kept in `<name>.part`, and the next call requests the rest. The file gets its
    final name once its hash has been verified.

    Raises:
        UserError: The URL is not https, there is no network, the server refuses, the connection is
            lost (the partial file is kept), or the checksum is wrong (it is removed).
    """
    target = pathlib.Path(folder) / remote.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder.locked(target):
        if not target.exists():
            _download(remote, target)
        elif not _is_intact(target, remote):
            raise UserError(f"{target}: wrong checksum (sha256); remove it and run again")
    return target


def bytes_to_download(remote: Remote, folder: str | os.PathLike) -> int:
    """Bytes that `download` would need on the disk: none if the file is there."""
    return 0 if (pathlib.Path(folder) / remote.name).exists() else remote.bytes


def check_reachable(remote: Remote) -> None:
    """Raise UserError if no server answers; for downloaders that would retry for minutes."""
    try:
        request = urllib.request.Request(remote.url, method="HEAD")
        _request(request).close()
    except urllib.error.HTTPError as error:
        error.close()  # the server has answered, which suffices
    except (OSError, http.client.HTTPException) as error:
        raise _no_connection(remote, error) from None


def _download(remote: Remote, target: pathlib.Path) -> None:
    part = target.with_name(f"{remote.name}.part")
    with open(part, "ab") as file:
        if file.tell() < remote.bytes:
            _fetch_rest(remote, file)
        sync(file)
    if not _is_intact(part, remote):
        part.unlink()
        raise UserError(f"{remote.url}: wrong checksum (sha256) or size; run again to start anew")
    part.rename(target)
    sync_folder(target.parent)


def _fetch_rest(remote: Remote, file: BinaryIO) -> None:
    with contextlib.closing(_open(remote, file)) as response:
        if response.status != http.client.PARTIAL_CONTENT:
            file.truncate(0)  # the server ignores the range and sends the whole file
            file.seek(0)
        bar = tqdm(
            desc=remote.name,
            total=remote.bytes,
            initial=file.tell(),
            unit="B",
            unit_scale=True,
            disable=None,
        )
        with bar:
            # One byte more than expected suffices to detect another file.
            while file.tell() <= remote.bytes and (chunk := _read(remote, response, file)):
                file.write(chunk)
                bar.update(len(chunk))
    if file.tell() < remote.bytes:
        raise _lost(remote, file, "the server closed the connection")


def _open(remote: Remote, file: BinaryIO) -> http.client.HTTPResponse:
    headers = {"Range": f"bytes={file.tell()}-"} if file.tell() else {}
    request = urllib.request.Request(remote.url, headers=headers)
    try:
        return _request(request)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            file.truncate(0)  # the server's file is shorter than the partial file
        raise UserError(
            f"{remote.url}: the server answers {error.code} {error.reason}; {_by_hand(remote)}"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise _no_connection(remote, error) from None


def _request(request: urllib.request.Request) -> http.client.HTTPResponse:
    _check_secure(request.full_url)
    opener = urllib.request.build_opener(_SecureRedirects)
    return opener.open(request, timeout=TIMEOUT_SECONDS)


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to allowed URLs only."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        try:
            _check_secure(newurl)
        except UserError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_secure(url: str) -> None:
    if not url.lower().startswith(SECURE):
        raise UserError(
            f"{url} is not https, nothing is read from there; fetch the file elsewhere and give "
            "--source=PATH"
        )


def _read(remote: Remote, response: http.client.HTTPResponse, file: BinaryIO) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _lost(remote, file, str(error)) from None


def _lost(remote: Remote, file: BinaryIO, reason: str) -> UserError:
    done, total = file.tell() / 1e6, remote.bytes / 1e6
    return UserError(
        f"{remote.url}: {reason} after {done:.1f} of {total:.1f} MB; run again to continue"
    )


def _no_connection(remote: Remote, error: Exception) -> UserError:
    host = urllib.parse.urlsplit(remote.url).netloc
    reason = getattr(error, "reason", error)
    return UserError(f"no connection to {host} ({reason}); {_by_hand(remote)}")


def _by_hand(remote: Remote) -> str:
    return f"run again later, or fetch {remote.url} elsewhere and give --source=PATH"


def _is_intact(path: pathlib.Path, remote: Remote) -> bool:
    return path.stat().st_size == remote.bytes and file_sha256(path) == remote.sha256
