"""A sweep of its own for every test."""

import pathlib
import signal

import pytest

from tests.lra.sweep.place import Place


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The stand-in imports the project; the tests' own cache and signals stay theirs."""
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path.cwd()))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)
