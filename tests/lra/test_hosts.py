"""Two processes on the loopback interface train as one, and end when one of them is lost."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

import chex
import jax
import numpy as np
import pytest

import lra
from lra import environment, hosts, records, rendezvous
from lra.checkpoints import Checkpoints, Progress
from lra.errors import UserError
from lra.loop import train
from lra.restored import read_models
from lra.saving import Saver
from lra.stopping import STATUS_STOPPED, Stop, Stopped
from tests.lra.conftest import TINY, write_listops
from tests.lra.trainings import assert_same_bits, final_state
from tests.quick_compilation import XLA_FLAGS
from tests.waiting import wait_for
from train import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALLS_OF_ONE = ("train.steps_per_call=1", "train.checkpoint_seconds=0")


@pytest.fixture
def start(data_dir, tmp_path):
    """Start two hosts of a run: `start(workdir, *overrides)`; kill what is left of them.

    Two workdirs are one for each.
    """
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": XLA_FLAGS,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    started = []

    def arrange(workdir, *overrides, data=(data_dir, data_dir), told=by_flags):
        command = [sys.executable, "train.py", "--config=configs/listops.py:linear"]
        command += [f"--config.{override}" for override in (*TINY, *overrides)]
        workdirs = workdir if isinstance(workdir, tuple) else (workdir, workdir)
        pair = [
            subprocess.Popen(
                [*command, *flags, f"--data_dir={folder}", f"--workdir={own}"],
                cwd=ROOT,
                env=environment | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for folder, own, (flags, variables) in zip(data, workdirs, told(), strict=True)
        ]
        started.extend(pair)
        return pair

    yield arrange
    for process in started:
        process.kill()
        process.communicate()


def by_flags():
    """Flags and environment of two hosts that are told of each other by hand."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [f"--coordinator_address=127.0.0.1:{port}", "--num_processes=2"]
    return [([*flags, f"--process_id={index}"], {}) for index in range(2)]


def by_slurm():
    """The same of two tasks of a Slurm job on this machine."""
    job = {
        "SLURM_JOB_ID": str(os.getpid()),  # JAX makes the port of it
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
    }
    tasks = [{"SLURM_PROCID": str(index), "SLURM_LOCALID": str(index)} for index in range(2)]
    return [(["--distributed"], job | task) for task in tasks]


def ended(pair, timeout=580):
    """The exit statuses and what was written to stderr."""
    errors = [process.communicate(timeout=timeout)[1] for process in pair]
    return [process.returncode for process in pair], errors


def wait_for_checkpoint(folder, number, pair):
    while not (folder / "checkpoints" / f"{number}.sha256.json").exists():
        for process in pair:
            assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


def test_two_hosts_train_as_two_devices_of_one(start, tiny_trainer, data_dir, tmp_path):
    statuses, errors = ended(start(tmp_path / "run"))
    assert statuses == [0, 0], errors
    (row,) = records.read(tmp_path / "run" / "rows.jsonl")
    assert (row.status, row.steps, row.num_devices) == ("ok", 12, 2)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(steps)
    assert "seed 0: test accuracy" in errors[0]
    assert "seed 0" not in errors[1]
    trainer = tiny_trainer("listops", "linear", "mesh.data=2")
    expected, _ = trainer.train(trainer.init(), 0, 12)
    state, _ = final_state(trainer.config, data_dir, tmp_path / "run")
    parameters = jax.tree.leaves(expected.params)
    for one, other in zip(state, parameters, strict=False):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.slow
def test_two_hosts_begin_where_one_ended(start, tiny_config, data_dir, tmp_path):
    """And hardly move from there, at such a learning rate."""
    assert train(tiny_config("listops", "linear"), tmp_path / "first", data_dir) == 0
    begin = f"train.init_from={tmp_path / 'first'}"
    statuses, errors = ended(start(tmp_path / "run", begin, "train.learning_rate=1e-9"))
    assert statuses == [0, 0], errors
    best = read_models(tmp_path / "first").state.best.params
    chex.assert_trees_all_close(read_models(tmp_path / "run").state.params, best, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_host_ends_the_other_and_both_go_on(start, tiny_config, data_dir, tmp_path, lost):
    longer = ("train.steps=16", "train.eval_every=16", *CALLS_OF_ONE)
    assert ended(start(tmp_path / "whole", *longer))[0] == [0, 0]
    pair = start(tmp_path / "broken", *longer)
    wait_for_checkpoint(tmp_path / "broken", 4, pair)
    pair[lost].kill()
    begun = time.monotonic()
    _, error = pair[1 - lost].communicate(timeout=120)
    assert time.monotonic() - begun < 60
    assert pair[1 - lost].returncode in (STATUS_STOPPED, -signal.SIGABRT), error
    assert "lost another host" in error or "another task died" in error
    assert not (tmp_path / "broken" / "rows.jsonl").exists()
    statuses, errors = ended(start(tmp_path / "broken", *longer))
    assert statuses == [0, 0], errors
    config = tiny_config("listops", "linear", *longer)
    whole, _ = final_state(config, data_dir, tmp_path / "whole")
    broken, progress = final_state(config, data_dir, tmp_path / "broken")
    assert progress.step == 16
    assert_same_bits(whole, broken)
    rows = [records.read(tmp_path / run / "rows.jsonl") for run in ("whole", "broken")]
    assert [row.test_accuracy for row in rows[0]] == [row.test_accuracy for row in rows[1]]


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_host_is_noticed(start, tmp_path, frozen):
    pair = start(tmp_path / "run", "train.steps=100000", *CALLS_OF_ONE)
    wait_for_checkpoint(tmp_path / "run", 4, pair)
    pair[frozen].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    _, error = pair[1 - frozen].communicate(timeout=120)
    assert time.monotonic() - begun < 2 * rendezvous.HEARTBEAT_SECONDS
    assert pair[1 - frozen].returncode in (STATUS_STOPPED, -signal.SIGABRT), error
    assert pair[frozen].poll() is None


@pytest.mark.slow
def test_hosts_of_a_slurm_job_find_each_other(start, tmp_path):
    statuses, errors = ended(start(tmp_path / "run", told=by_slurm))
    assert statuses == [0, 0], errors
    (row,) = records.read(tmp_path / "run" / "rows.jsonl")
    assert (row.status, row.steps, row.num_devices) == ("ok", 12, 2)


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1])
def test_a_signal_to_one_host_stops_both(start, tmp_path, told):
    pair = start(tmp_path / "run", "train.steps=100000", "train.steps_per_call=1")
    wait_for((tmp_path / "run" / "metrics.jsonl").exists, pair, seconds=300)
    time.sleep(1)
    pair[told].terminate()
    statuses, errors = ended(pair)
    assert statuses == [STATUS_STOPPED] * 2, errors
    assert "saved, the same command goes on from here" in errors[0]


@pytest.mark.slow
def test_hosts_with_other_data_are_refused(start, data_dir, tmp_path):
    write_listops(tmp_path / "other", seed=1)
    statuses, errors = ended(start(tmp_path / "run", data=(data_dir, tmp_path / "other")))
    assert statuses == [2, 2]
    for error in errors:
        assert "error: hosts 0 and 1 differ in the data (sha256)" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_host_without_data_ends_both(start, data_dir, tmp_path):
    statuses, errors = ended(start(tmp_path / "run", data=(data_dir, tmp_path / "nothing")))
    assert statuses == [2, 2]
    for error in errors:
        assert "error: host 1: no prepared listops" in error


@pytest.mark.slow
def test_hosts_with_a_folder_each_are_refused(start, tmp_path):
    """They would save half of a checkpoint each."""
    statuses, errors = ended(start((tmp_path / "one", tmp_path / "other")))
    assert statuses == [2, 2]
    for error in errors:
        assert f"error: host 1: {tmp_path / 'other'} is not the folder that host 0 has" in error
    assert not list((tmp_path / "one").glob(".seen*"))


@pytest.mark.slow
def test_a_run_to_begin_from_that_is_not_there_ends_both(start, tmp_path):
    nothing = tmp_path / "nothing"
    statuses, errors = ended(start(tmp_path / "run", f"train.init_from={nothing}"))
    assert statuses == [2, 2]
    for error in errors:
        assert error.splitlines()[-1] == f"error: {nothing} holds no run: no config.json in it"
    assert not (tmp_path / "run").exists()


def two_hosts(monkeypatch, other):
    """Let this process be host 0 of two; the outcomes of `other` are those of host 1."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "_gather", lambda outcome: [outcome, other(outcome)])


def fail(message="wrong"):
    raise UserError(message)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"error": "wrong"}, "wrong"),
        ({"error": "worse"}, "host 0: wrong"),
        ({"value": None}, "host 0: wrong"),
    ],
)
def test_an_error_of_all_hosts_names_none(monkeypatch, other, message):
    two_hosts(monkeypatch, lambda _: other)
    with pytest.raises(hosts.SharedError, match=f"^{message}$"):
        hosts.on_every(fail)


def test_a_folder_that_another_host_does_not_see_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    gathered = []

    def gather(outcome):
        marks = list(tmp_path.glob(".seen-by-all-*"))
        gathered.append(len(marks))
        last = {"error": "not there"} if len(gathered) == 3 and not sees else outcome
        return [outcome, last]

    monkeypatch.setattr(hosts, "_gather", gather)
    for sees in (True, False):
        gathered.clear()
        if sees:
            hosts.check_shared(tmp_path)
        else:
            with pytest.raises(hosts.SharedError, match=r"^host 1: not there$"):
                hosts.check_shared(tmp_path)
        assert gathered == [0, 1, 1]
        assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="is not the folder that host 0 has there: give all hosts"):
        hosts._check_seen(tmp_path / "mark")


def test_unequal_numbers_of_devices_are_refused(monkeypatch):
    devices = [types.SimpleNamespace(process_index=index) for index in (0, 0, 0, 1)]
    monkeypatch.setattr(rendezvous, "meet", lambda *_: None)
    monkeypatch.setattr(jax, "devices", lambda: devices)
    message = r"unequal numbers of devices \(host 0 3, host 1 1\); give each as many"
    with (
        pytest.raises(hosts.SharedError, match=message),
        hosts.connected(rendezvous.Addresses("node:1234", 2, 0)),
    ):
        raise AssertionError("not reached")


def test_a_host_ends_also_where_nothing_can_be_printed(monkeypatch):
    """An orderly exit would wait for the others for minutes."""
    monkeypatch.setattr(os, "_exit", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    full = types.SimpleNamespace(write=lambda _: os.write(-1, b""), flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", full)
    with pytest.raises(SystemExit) as end:
        hosts._leave("error: a line", 2)
    assert end.value.code == 2


def test_hosts_that_differ_are_told_in_what(monkeypatch):
    own = {"train.steps": 10, "seeds": (0,)}
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(hosts, "_gather", lambda _: [own, own, own | {"train.steps": 12}])
    with pytest.raises(hosts.SharedError, match=r"hosts 0 and 2 differ in train\.steps: 10 and 12"):
        hosts.check_equal(own)


def test_all_hosts_are_told_of_a_disk_without_room(tiny_trainer, monkeypatch, tmp_path):
    checkpoints, state = Checkpoints(tmp_path), tiny_trainer().init()
    two_hosts(monkeypatch, lambda own: own)
    monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=0))
    with pytest.raises(hosts.SharedError, match=r"^no space left for a checkpoint: "):
        checkpoints.save(state, Progress())
    monkeypatch.undo()
    checkpoints.close()


def test_peak_memory_is_that_of_the_host_with_the_highest(monkeypatch):
    monkeypatch.setattr(environment, "peak_memory_mb", lambda: 5.5)
    saver = types.SimpleNamespace(
        progress=Progress(peak_memory_mb=6.5), has_worked=True, _started=0.0
    )
    assert Saver.progress_at(saver, 3).peak_memory_mb == 6.5
    two_hosts(monkeypatch, lambda own: own + 2)
    assert Saver.progress_at(saver, 3).peak_memory_mb == 7.5
    saver.has_worked = False  # nothing of it on these devices
    assert Saver.progress_at(saver, 3).peak_memory_mb == 6.5


def test_one_host_needs_nobody():
    assert hosts.is_main()
    assert hosts.any_of(True)
    assert not hosts.any_of(False)
    assert hosts.least(7) == hosts.most(7) == 7
    assert hosts.on_main(lambda: "value") == hosts.on_every(lambda: "value") == "value"
    hosts.check_equal({"configuration": "any"})
    with hosts.connected(None):
        pass


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (RuntimeError("UNAVAILABLE: connection reset"), 75, "lost another host"),
        (ConnectionResetError("connection reset"), 75, "lost another host"),
        (ValueError("UNKNOWN: Gloo AllGather failed: reset by peer"), 75, "lost another host"),
        (ValueError("UNKNOWN: Gloo connectFullMesh: timed out"), 75, "answer in time, or was lost"),
        (RuntimeError("DEADLINE_EXCEEDED: Barrier"), 75, "did not answer in time, or was lost"),
        (ValueError("bad key 'connection_type'"), 1, "host 0 failed"),
        (OSError(28, "No space left on device", "metrics.jsonl"), 2, "on device: metrics.jsonl"),
    ],
)
def test_what_ends_a_host(error, status, line, monkeypatch):
    left = []
    monkeypatch.setattr(rendezvous, "meet", lambda *_: None)
    monkeypatch.setattr(hosts, "_leave", lambda *told: _note(left, *told))
    with pytest.raises(SystemExit), hosts.connected(rendezvous.Addresses("node:1234", 2, 0)):
        raise error
    ((text, number, stays),) = left
    assert number == status
    assert line in text
    assert stays == hosts.LAST_SECONDS  # others may be about to tell the same


def _note(left: list, text: str, number: int, stays: float = 0) -> None:
    left.append((text, number, stays))
    raise SystemExit


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (Stopped(), 75, "stopped before all hosts were there (SIGTERM); start the same command"),
        (
            rendezvous.MissingHostsError("the hosts did not meet"),
            2,
            "error: the hosts did not meet",
        ),
    ],
)
def test_a_host_that_met_no_others_ends_at_once(error, status, line, monkeypatch):
    """JAX still waits in a thread, and would end an orderly exit with a stack."""
    left, stop = [], Stop()
    stop.reason = "SIGTERM"
    monkeypatch.setattr(rendezvous, "meet", lambda *_: (_ for _ in ()).throw(error))
    monkeypatch.setattr(hosts, "_leave", lambda *told: _note(left, *told))
    with pytest.raises(SystemExit), hosts.connected(rendezvous.Addresses(), stop):
        raise AssertionError("not reached")
    ((text, number, _),) = left
    assert number == status
    assert line in text


def test_only_the_host_that_coordinates_stays_after_an_error(monkeypatch):
    def no_device():
        raise RuntimeError("no device")

    stays = [hosts._stay(rendezvous.Addresses("node:1234", 2, index)) for index in (0, 1)]
    assert stays == [hosts.LAST_SECONDS, 0]
    for index, expected in ((lambda: 0, 3), (lambda: 1, 0), (no_device, 3)):
        monkeypatch.setattr(jax, "process_index", index)
        assert hosts._stay(rendezvous.Addresses()) == expected


def test_settings_that_no_host_may_have_are_refused_before_they_meet(monkeypatch):
    monkeypatch.setattr(rendezvous, "meet", lambda *_: pytest.fail("met"))
    addresses = rendezvous.Addresses("node:1234", 2, 1)
    with (
        jax.enable_x64(True),
        pytest.raises(UserError, match="JAX_ENABLE_X64 is set to"),
        hosts.connected(addresses),
    ):
        raise AssertionError("not reached")


def test_variables_that_do_not_fit_the_devices_end_all_hosts_alike(monkeypatch):
    two_hosts(monkeypatch, lambda own: own)
    monkeypatch.setattr(rendezvous, "meet", lambda *_: None)
    monkeypatch.setenv("LRA_KERNELS", "yes")
    with (
        pytest.raises(hosts.SharedError, match=r"^LRA_KERNELS=yes: it can be on or off"),
        hosts.connected(rendezvous.Addresses("node:1234", 2, 1)),
    ):
        raise AssertionError("not reached")


def test_what_all_hosts_lack_ends_all_alike(monkeypatch, tiny_config, data_dir, tmp_path):
    two_hosts(monkeypatch, lambda own: own)
    with jax.debug_nans(True), pytest.raises(hosts.SharedError, match="JAX_DEBUG_NANS is set"):
        train(tiny_config(), tmp_path / "run", data_dir)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(hosts.SharedError, match=r"^--tensorboard needs tensorboardX"):
        train(tiny_config(), tmp_path / "run", data_dir, tensorboard=True)


def test_the_loop_is_imported_before_hosts_connect(monkeypatch, tmp_path):
    """It takes seconds, on a cold disk many more than hosts wait for each other."""
    seen = []

    def connected(*_):
        seen.append("lra.loop" in sys.modules)
        raise SystemExit

    monkeypatch.setattr(hosts, "connected", connected)
    monkeypatch.setattr(lra, "loop", lra.loop)
    monkeypatch.delitem(sys.modules, "lra.loop")
    with pytest.raises(SystemExit):
        main(["--config=configs/listops.py:standard", f"--workdir={tmp_path}"])
    assert seen == [True]


@pytest.mark.slow
def test_a_signal_ends_a_host_that_waits_for_others(start, data_dir, tmp_path):
    (process,) = start((tmp_path / "run",), data=(data_dir,), told=lambda: by_flags()[:1])
    assert process.stderr.readline().startswith("waiting for all 2 hosts at 127.0.0.1:")
    process.terminate()
    (status,), (error,) = ended([process], timeout=10)
    assert status == STATUS_STOPPED
    (line,) = error.splitlines()
    assert line.startswith("error: stopped before all hosts were there (SIGTERM); start the same")
    assert not (tmp_path / "run").exists()
