"""Messages never end what they tell of."""

import errno
import io

import pytest

from lra.progress import Reporter
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
