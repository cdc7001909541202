"""How hosts find each other, and how long they wait for those that do not come."""

import threading

import jax
import pytest

from lra import rendezvous
from lra.errors import UserError
from lra.rendezvous import Addresses, addresses, meet
from lra.stopping import Stop, Stopped


@pytest.fixture
def alone(monkeypatch):
    """Let no other host come, and this one say so at once."""
    over = threading.Event()
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **named: over.wait())
    monkeypatch.setattr(rendezvous, "SAY_SECONDS", 0)
    yield
    over.set()


def test_a_host_that_others_do_not_meet_ends_before_jax_would_abort_it(monkeypatch, alone, capsys):
    monkeypatch.setattr(rendezvous, "MEETING_SECONDS", 0.3)
    message = "not meet: not all 3 hosts at node:1234 within 0.005 min; start the same command"
    with pytest.raises(rendezvous.MissingHostsError, match=message):
        meet(Addresses("node:1234", 3, 0))
    said = capsys.readouterr().err
    assert said == "waiting for all 3 hosts at node:1234 (up to 0.005 min)\n"


def test_a_host_that_waits_for_others_can_be_stopped(alone, capsys):
    stop = Stop()
    threading.Timer(0.3, setattr, (stop, "reason", "SIGTERM")).start()
    with pytest.raises(Stopped):
        meet(Addresses(), stop)
    assert capsys.readouterr().err == "waiting for all hosts (up to 5 min)\n"
    with pytest.raises(Stopped):
        meet(Addresses(), Stop(budget_minutes=0.01))


def test_a_stop_after_all_have_met_does_not_leave_the_others(monkeypatch):
    told = Stop()
    told.reason = "SIGTERM"
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **named: None)
    meet(Addresses("node:1234", 2, 0), told)


@pytest.mark.parametrize(
    ("coordinator", "end"),
    [("node:1234", r"\(no port\)$"), (None, r"\(no port\); where neither Slurm, a TPU nor MPI")],
)
def test_what_jax_says_is_told(monkeypatch, coordinator, end):
    def fail(*_, **named):
        raise RuntimeError("no port")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(UserError, match=f"^the hosts did not meet {end}"):
        meet(Addresses(coordinator, 2, 0))


@pytest.mark.parametrize(
    ("coordinator", "bound"),
    [
        ("127.0.0.1:1234", "127.0.0.1:1234"),
        ("[::1]:1234", "[::1]:1234"),
        ("localhost:1234", "localhost:1234"),
        ("node:1234", None),
        ("10.127.0.1:1234", None),
        (None, None),
    ],
)
def test_on_one_machine_nobody_else_can_reach_the_coordinator(monkeypatch, coordinator, bound):
    asked = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **named: asked.append(named))
    meet(Addresses(coordinator, 2, 0))
    assert [named["coordinator_bind_address"] for named in asked] == [bound]


def test_flags_name_the_hosts():
    assert addresses(False, None, None, None) is None
    assert addresses(True, None, None, None) == Addresses()
    assert addresses(False, "localhost:1234", 2, 1) == Addresses("localhost:1234", 2, 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((False, "node:1234", None, None), "together"),
        ((False, None, 2, 0), "together"),
        ((True, "node:1234", 2, 0), "--distributed alone"),
        ((False, "node:1234", 2, 2), "--process_id=2 is not from 0 to --num_processes=2 - 1"),
        ((False, "node", 2, 0), "--coordinator_address=node is not HOST:PORT"),
        ((False, "1234", 2, 0), "--coordinator_address=1234 is not HOST:PORT"),
        ((False, "localhost:0", 2, 0), "--coordinator_address=localhost:0 is not HOST:PORT"),
        ((False, "localhost:65536", 2, 0), "--coordinator_address=localhost:65536 is not HOST"),
        ((False, "localhost:1\N{SUPERSCRIPT TWO}", 2, 0), "localhost:1² is not HOST:PORT"),
        ((False, "no.invalid:1234", 2, 1), "--coordinator_address: no host no.invalid"),
        ((False, "node..cluster:1234", 2, 1), "node..cluster is no name of a host"),
        ((False, "localhost:1234", 2**31, 0), "--num_processes=2147483648 is more than"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        addresses(*flags)
