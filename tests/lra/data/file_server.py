"""A web server on this machine that holds one file, and can misbehave.

It speaks http: while it runs, downloads are allowed from it as from https.
"""

import contextlib
import http.server
import re
import threading
from collections.abc import Iterator

import pytest

from lra.data import download


class FileServer(http.server.ThreadingHTTPServer):
    """Serves `content` at any address.

    Attributes:
        content: the file.
        ranges: whether a request for the rest of the file is answered with the rest.
        cut_after: closes the connection after so many bytes; None never.
        status: an error to answer with instead; None answers.
        redirect: an address to send every request on to; None answers.
        requested: the Range header of each request, None where there was none.
    """

    def __init__(self, content: bytes):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content = content
        self.ranges = True
        self.cut_after: int | None = None
        self.status: int | None = None
        self.redirect: str | None = None
        self.requested: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


@contextlib.contextmanager
def serve(content: bytes) -> Iterator[FileServer]:
    """A running server for the time of the block."""
    with FileServer(content) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "SECURE", (*download.SECURE, server.url("")))
        patch.setenv("no_proxy", "*")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.requested.append(asked)
        if self.server.redirect:
            self.send_response(302)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        start = start if self.server.ranges else 0
        if self.server.status or start >= len(self.server.content):
            self.send_error(self.server.status or 416)
            return
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut_after])

    def log_message(self, *_: object) -> None:
        """Say nothing."""
