"""Signals and budgets."""

import signal
import subprocess
import sys
import time

import pytest

from lra.stopping import Stop


def test_nothing_asks_for_a_stop():
    stop = Stop(None)
    assert not stop.before(1e9)
    assert stop.reason is None


def test_a_budget_leaves_time_for_the_next_call():
    stop = Stop(1.0)
    assert not stop.before(30)
    assert stop.before(58)  # less than the seconds kept for saving would remain
    assert "budget" in stop.reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_stop(number):
    with Stop(None) as stop:
        signal.raise_signal(number)
        assert stop.before(0)
    assert stop.reason == number.name


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Stop(None):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_signal_ends_the_process_at_once():
    code = """if True:
        import time
        from lra.stopping import Stop
        with Stop(None):
            print("ready", flush=True)
            while True:
                time.sleep(1)
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=20) == -signal.SIGTERM
    process.stdout.close()
