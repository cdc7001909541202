"""What a step costs on a TPU, by the program compiled for one that need not be there."""

import importlib.util
import os
from unittest import mock

import jax
import pytest

from benchmarks import tpu_programs
from benchmarks.train_case import TrainCase, make_trainer
from lra import sharding
from lra.errors import UserError

HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
ONE = ("mesh.seed=1", "mesh.data=1")
TEXT = """
%block_body (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%x, %x), backend_config={"estimated_cycles":"10"}
}

%block_condition (x: f32[8]) -> pred[] {
  %x = f32[8]{0} parameter(0)
  %four = s32[]{:T(128)} constant(4)
  ROOT %goes_on = pred[] compare(%x, %four), direction=LT
}

%steps_body (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %blocks = f32[8]{0} while(%x), condition=%block_condition, body=%block_body
  %order = f32[8]{0} sort(%blocks), dimensions={0}, to_apply=%less
  ROOT %scalar = f32[8]{0} negate(%order)
}

%steps_condition (x: f32[8]) -> pred[] {
  %x = f32[8]{0} parameter(0)
  ROOT %goes_on = pred[] compare(%x, %x), direction=LT
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %steps = f32[8]{0} while(%x), condition=%steps_condition, body=%steps_body
}
"""


def test_loops_over_blocks_count_with_their_turns_and_that_over_steps_once():
    costs = [(e.operation.name, e.turns, e.cycles) for e in tpu_programs.estimates(TEXT)]
    assert costs == [("twice", 4, 40), ("order", 1, None)]


@pytest.mark.parametrize("end", ["constant(true)", "negate(%x)"])
def test_a_loop_of_another_kind_is_told(end):
    text = TEXT.replace("compare(%x, %four), direction=LT", end)
    with pytest.raises(ValueError, match="how often blocks is repeated"):
        list(tpu_programs.estimates(text))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--tasks=imag", "'imag'"),
        ("--attentions=linear,nystron", "'nystron'"),
        ("--seeds=0", "--seeds"),
        ("--devices=3", "--devices"),
    ],
)
def test_wrong_names_and_numbers_are_told(argument, message):
    with pytest.raises(UserError, match=message):
        tpu_programs.main([argument])


def test_a_program_for_other_devices_is_the_one_that_a_run_calls():
    """Here the other device is a CPU, too."""
    case = TrainCase("listops", "linear", 2, "float32", None, (*ONE, "train.batch_size=2"))
    trainer = make_trainer(case, 4)
    mesh = sharding.make_mesh(jax.devices()[:1], 1, 1)
    arguments = trainer.train_arguments(trainer.abstract_state(), 0, 1)
    moved = tpu_programs.programs_on(trainer, mesh).train.lower(
        *tpu_programs.abstract(arguments, mesh)
    )
    assert moved.as_text() == trainer.programs.train.lower(*arguments).as_text()


@pytest.fixture
def without_traces():
    """What libtpu needs in the environment is gone after the test."""
    with mock.patch.dict(os.environ):
        yield


@pytest.mark.skipif(HAS_LIBTPU, reason="libtpu is there")
def test_libtpu_is_asked_for(without_traces):
    with pytest.raises(UserError, match="pip install libtpu"):
        tpu_programs.main(["--tasks=listops"])


@pytest.mark.skipif(not HAS_LIBTPU, reason="needs libtpu")
def test_a_step_is_compiled_for_two_tpus(capsys, without_traces):
    argv = ["--tasks=listops", "--attentions=linear", "--devices=2", "--largest=1"]
    assert tpu_programs.main(argv) == 0
    printed = capsys.readouterr().out
    assert "| listops | linear |" in printed
    assert "all-reduce" in printed  # of the gradients
