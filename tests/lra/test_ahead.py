"""Programs compiled ahead: once, in order, and with nothing of it in a run's results."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lra import ahead
from lra.loop import train
from lra.stopping import STATUS_STOPPED, Stop
from tests.lra.conftest import ALL_DEVICES, ONE_DEVICE
from tests.lra.trainings import assert_same_bits, final_state, make_trainer, rows_of

COMPILES = "/jax/core/compile/backend_compile_duration"
SHAPE = jax.ShapeDtypeStruct((3,), jnp.float32)


@pytest.fixture
def compiled():
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
    assert [thread for thread, _ in compiled] == ["compile_0"]
    np.testing.assert_array_equal(program(x), 3)
    assert len(compiled) == 1


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
    begun, may_end, traced = threading.Event(), threading.Event(), []

    def arguments():
        begun.set()
        may_end.wait(60)
        return (SHAPE,)

    beside.submit("first", jax.jit(lambda x: traced.append("first") or x), arguments)
    beside.submit("second", jax.jit(lambda x: traced.append("second") or x), lambda: (SHAPE,))
    begun.wait(60)
    beside.close()
    may_end.set()
    beside.wait("first")
    beside.wait("second")
    assert traced == ["first"]


@pytest.mark.parametrize("devices", [ONE_DEVICE, ALL_DEVICES], ids=["one", "all"])
def test_a_run_calls_what_was_compiled(devices, tiny_config, data_dir, compiled):
    config = tiny_config("listops", "performer", "seeds=(0, 5)", *devices)
    trainer = make_trainer(config, data_dir)
    del compiled[:]
    trainer.compile_ahead()
    state = trainer.init()
    for step, split in ((0, "validation"), (2, "test")):
        state, _ = trainer.train(state, step, 2)
        evaluation = trainer.evaluation(state.params, state.rest, split)
        evaluation.advance(evaluation.remaining)
        state = trainer.update_best(state, evaluation.result().accuracy, step + 2)
    trainer.ahead.close()
    by_thread = {name: [t for t, program in compiled if name in program] for name in NAMES}
    assert by_thread == {name: ["compile_0"] * count for name, count in NAMES.items()}


NAMES = {"train": 1, "update_best": 1, "logits": 2, "scores": 2}  # these once a split


def test_it_leaves_no_trace_in_a_run(tiny_config, data_dir, tmp_path, monkeypatch, compiled):
    config = tiny_config("listops", "reformer", "seeds=(0, 5)", *ONE_DEVICE)
    assert train(config, tmp_path / "plain", data_dir) == 0
    assert "compile_0" not in {thread for thread, _ in compiled}
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    assert train(config, tmp_path / "ahead", data_dir) == 0
    assert "compile_0" in {thread for thread, _ in compiled}
    assert rows_of(tmp_path / "ahead") == rows_of(tmp_path / "plain")
    plain, found = (final_state(config, data_dir, tmp_path / name) for name in ("plain", "ahead"))
    assert_same_bits(plain[0], found[0])


def test_a_run_that_ends_early_compiles_no_further(tiny_config, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "is_worthwhile", lambda: True)
    stop = Stop()
    stop.reason = "told to"
    assert train(tiny_config(), tmp_path, data_dir, stop=stop) == STATUS_STOPPED
    running = [thread for thread in threading.enumerate() if thread.name == "compile_0"]
    for thread in running:
        thread.join(120)
        assert not thread.is_alive()
