"""Signals and budgets."""

import signal
import subprocess
import sys
import time

import pytest

import train
from lra import records, settings
from lra.evaluation import evaluate_workdir
from lra.stopping import STATUS_STOPPED, Stop
from tests.lra.conftest import ONE_DEVICE, TINY
from tests.waiting import wait_for


def test_nothing_asks_for_a_stop():
    stop = Stop(None)
    assert not stop.before(1e9)
    assert stop.reason is None


def test_a_budget_leaves_time_for_the_next_call():
    stop = Stop(2.0)
    assert not stop.before(90)
    assert stop.before(118)  # less than the seconds kept for saving would remain
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


# Both hold the main thread; Python's handlers do not run during the second, a call of C.
@pytest.mark.parametrize(
    "busy", ["time.sleep(600)", "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"]
)
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_second_signal_ends_the_process_at_once(busy, number):
    code = f"""if True:
        import hashlib, time
        from lra.stopping import Stop
        with Stop(None):
            print("ready", flush=True)
            {busy}
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            for _ in range(2):  # within a second they are one
                process.send_signal(number)
            time.sleep(1.3)
            assert process.poll() is None
            # On a busy machine it may have heard of the first only just now.
            wait_for(lambda: process.send_signal(number) or process.poll() is not None)
            assert process.returncode == 128 + number
        finally:
            process.kill()


def test_a_process_that_is_about_to_end_can_ignore_signals():
    code = """
import signal
from lra.stopping import Stop, ignore_signals
with Stop():
    pass
ignore_signals()
signal.raise_signal(signal.SIGTERM)
signal.raise_signal(signal.SIGINT)
raise SystemExit(75)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 75


def test_a_signal_before_the_first_step_is_obeyed(data_dir, tmp_path, monkeypatch, capsys):
    load_config = settings.load_config

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)  # JAX is not even loaded, in a process of its own
        return load_config(*arguments)

    keys = (*TINY, *ONE_DEVICE)
    overrides = [f"--config.{key}" for key in keys]
    command = ["--config=configs/listops.py:linear", f"--workdir={tmp_path}", *overrides]
    monkeypatch.setattr(settings, "load_config", interrupted)
    assert train.main([*command, f"--data_dir={data_dir}"]) == STATUS_STOPPED
    assert not (tmp_path / "rows.jsonl").exists()
    evaluate_workdir(tmp_path)
    assert capsys.readouterr().out.endswith("with the parameters of step 0; no validation yet\n")
    monkeypatch.undo()
    assert train.main([*command, f"--data_dir={data_dir}"]) == 0
    assert len(records.read(tmp_path / "rows.jsonl")) == 1
