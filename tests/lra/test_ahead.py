"""Programs compiled ahead: once, in order, and with nothing of it in a run's results."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import ahead
from lra.errors import UserError
from lra.evaluation import evaluate
from lra.loop import train
from lra.stopping import STATUS_STOPPED, Stop
from lra.trainer import Trainer
from models.machine import Machine, assumed
from tests.lra.conftest import ALL_DEVICES, ONE_DEVICE
from tests.lra.trainings import assert_same_bits, final_state, make_trainer, rows_of

pytestmark = pytest.mark.usefixtures("shared_programs")

COMPILES = "/jax/core/compile/backend_compile_duration"
SHAPE = jax.ShapeDtypeStruct((3,), jnp.float32)


@pytest.fixture
def compiled(own_programs):
    """(thread, program) of all that is compiled, where JAX says which program it is."""
    events = []

    def listen(event, duration, fun_name="", **_):
        if event == COMPILES:
            events.append((threading.current_thread().name, fun_name))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def beside():
    found = ahead.Ahead()
    yield found
    found.close()


def test_a_call_finds_what_was_compiled(beside, compiled):
    program = jax.jit(lambda x: 2 * x + 1)
    x = np.ones(3, np.float32)
    beside.submit("twice", program, lambda: (SHAPE,))
    beside.wait("twice")
    assert not beside.is_compiling
    assert [thread for thread, _ in compiled] == ["compile_0"]
    np.testing.assert_array_equal(program(x), 3)
    assert len(compiled) == 1


def test_it_is_for_accelerators():
    for backend, expected in (("cpu", False), ("gpu", True), ("tpu", True)):
        with assumed(Machine(backend)):
            assert ahead.is_worthwhile() is expected


def test_an_error_is_left_to_the_call(beside):
    def refuse(x):
        raise ValueError("refused")

    program = jax.jit(refuse)
    beside.submit("refused", program, lambda: (SHAPE,))
    beside.wait("refused")
    beside.wait("refused")
    beside.wait("never submitted")
    with pytest.raises(ValueError, match="refused"):
        program(np.ones(3, np.float32))


def test_what_has_not_begun_is_not_compiled_after_the_end(beside):
    may_end, traced = threading.Event(), []

    def submit(name, arguments):
        beside.submit(name, jax.jit(lambda x: traced.append(name) or x), arguments)

    for name in ("first", "second"):
        submit(name, lambda: (SHAPE,) if may_end.wait(60) else ())
    submit("third", lambda: (SHAPE,))
    assert beside.is_compiling
    closing = threading.Thread(target=beside.close)
    closing.start()
    beside.wait("third")  # until it is given up
    may_end.set()
    closing.join(60)
    assert not closing.is_alive()
    assert sorted(traced) == ["first", "second"]


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(ONE_DEVICE, id="one"),
        pytest.param(ALL_DEVICES, id="all", marks=pytest.mark.slow),
    ],
)
def test_a_run_calls_what_was_compiled(devices, tiny_config, data_dir, compiled):
    config = tiny_config("listops", "performer", "seeds=(0, 5)", *devices)
    trainer = make_trainer(config, data_dir)
    del compiled[:]
    trainer.compile_ahead()
    state = trainer.init()
    for step, split in ((0, "validation"), (2, "test")):
        state, _ = trainer.train(state, step, 2)
        evaluation = evaluate(trainer, state.params, state.rest, split)
        state = trainer.update_best(state, evaluation.accuracy, step + 2)
    trainer.check_end(state, evaluation.loss)
    trainer.ahead.close()
    assert_compiled_beside(compiled)


def assert_compiled_beside(compiled):
    """Each once, and none by the thread that calls them."""
    once = {"train": 1, "update_best": 1, "check_end": 1, "logits": 2, "scores": 2}  # a split each
    threads = {name: [thread for thread, program in compiled if name in program] for name in once}
    assert {name: len(each) for name, each in threads.items()} == once
    assert {thread.partition("_")[0] for each in threads.values() for thread in each} == {"compile"}


def threads_of(compiled):
    return {thread.partition("_")[0] for thread, _ in compiled}


@pytest.mark.slow
def test_it_leaves_no_trace_in_a_run(tiny_config, data_dir, tmp_path, monkeypatch, compiled):
    config = tiny_config("listops", "linear", "seeds=(0, 5)", *ONE_DEVICE)
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: False)
    assert train(config, tmp_path / "plain", data_dir) == 0
    assert "compile" not in threads_of(compiled)
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    assert train(config, tmp_path / "ahead", data_dir) == 0
    assert "compile" in threads_of(compiled)
    assert rows_of(tmp_path / "ahead") == rows_of(tmp_path / "plain")
    plain, found = (final_state(config, data_dir, tmp_path / name) for name in ("plain", "ahead"))
    assert_same_bits(plain[0], found[0])


@pytest.mark.slow
def test_a_run_that_goes_on_calls_what_was_compiled(
    tiny_config, data_dir, tmp_path, monkeypatch, compiled, stop_after
):
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    config = tiny_config("listops", "linear", *ONE_DEVICE)
    before = Stop.before
    stop_after(3)
    assert train(config, tmp_path, data_dir, stop=Stop()) == STATUS_STOPPED
    monkeypatch.setattr(Stop, "before", before)
    del compiled[:]
    assert train(config, tmp_path, data_dir) == 0
    assert_compiled_beside(compiled)


def test_only_runs_that_make_a_step_compile_ahead(tiny_config, data_dir, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    monkeypatch.setattr(Trainer, "compile_ahead", lambda self: begun.append(self))
    config = tiny_config("listops", "linear", *ONE_DEVICE)
    at_once = Stop(1e-9)
    status = train(config, tmp_path / "looked at", data_dir, stop=at_once, debug_nans=True)
    assert status == STATUS_STOPPED
    assert not begun
    assert train(config, tmp_path / "run", data_dir) == 0
    assert len(begun) == 1
    (tmp_path / "run" / "rows.jsonl").unlink()
    assert train(config, tmp_path / "run", data_dir) == 0  # makes its rows anew
    assert len(begun) == 1


def test_a_run_closes_it_however_it_ends(tiny_config, data_dir, tmp_path, monkeypatch):
    closed = []
    close = ahead.Ahead.close
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    monkeypatch.setattr(ahead.Ahead, "close", lambda self: closed.append(close(self)))
    stop = Stop()
    stop.reason = "told to"
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path / "stopped", data_dir, stop=stop) == STATUS_STOPPED
    assert len(closed) == 1

    def fail(self):
        raise UserError("no room")

    monkeypatch.setattr(Trainer, "init", fail)
    with pytest.raises(UserError, match="no room"):
        train(config, tmp_path / "failed", data_dir)
    assert len(closed) == 2
