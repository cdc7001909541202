"""Messages never end what they tell of."""

import errno
import io

import pytest

from lra.reporter import Reporter
from lra.stderr import say


class Broken(io.StringIO):
    """A stream whose disk is full, or whose reader is gone."""

    def __init__(self, code):
        super().__init__()
        self.code = code

    def write(self, text):
        raise OSError(self.code, text)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EPIPE])
def test_a_stream_that_takes_nothing_ends_nothing(monkeypatch, code):
    monkeypatch.setattr("sys.stderr", Broken(code))
    say("step 5")
    Reporter.say(None, "step 5")


def test_a_line_is_written_at_once(monkeypatch):
    """Other processes may write to the same pipe, and with PYTHONUNBUFFERED nothing is kept."""
    writes = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", writes.append)
    monkeypatch.setattr("sys.stderr", stream)
    say("step 5")
    assert list(filter(None, writes)) == ["step 5\n"]
