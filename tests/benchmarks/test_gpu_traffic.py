"""What a step moves on a GPU, by the program compiled for one that need not be there."""

import importlib.util

import jax
import pytest

from benchmarks import gpu_traffic
from benchmarks.hlo_cost import kernels_of
from lra.errors import UserError
from models.machine import Machine, assumed, this_backend, this_machine
from tests.triton_lowering import TRITON_IS_LEAVING

TEXT = """
%body (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %twice = f32[8]{0} add(%x, %x), metadata={op_name="jit(step)/add"}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %before = f32[8]{0} negate(%x)
  ROOT %loop = f32[8]{0} while(%before), condition=%cond, body=%body
}
"""


def test_a_loop_that_does_not_tell_its_turns_is_one_step():
    before, twice = kernels_of(TEXT, unknown_turns=1)
    assert (before.name, before.size, before.turns, before.looped) == ("before", 64, 1, False)
    assert (twice.size, twice.turns, twice.looped, twice.source) == (96, 1, True, "jit(step)/add")


def test_another_machine_is_assumed_inside_alone():
    gpu = Machine("gpu", memory=7, has_cudnn=True, runs_kernels=True, inverts=True)
    with assumed(gpu):
        assert (this_machine(), this_backend()) == (gpu, "gpu")
    assert this_backend() == this_machine().backend == jax.default_backend()


@pytest.mark.parametrize("argument", ["--tasks=imag", "--attentions=linear,nystron", "--seeds=0"])
def test_wrong_names_are_told(argument):
    with pytest.raises(UserError):
        gpu_traffic.main([argument])


@TRITON_IS_LEAVING
def test_a_step_is_compiled_for_a_gpu_or_the_plugin_is_asked_for(capsys):
    """The plugin is not among the requirements."""
    argv = ["--tasks=listops", "--attentions=linformer", "--largest=1"]
    if not any(map(importlib.util.find_spec, ("jax_cuda12_plugin", "jax_cuda13_plugin"))):
        with pytest.raises(UserError, match=r"pip install 'jax\[cuda12\]=="):
            gpu_traffic.main(argv)
        return
    assert gpu_traffic.main(argv) == 0
    *_, line, largest = capsys.readouterr().out.splitlines()
    assert line.startswith("| listops | linformer |")
    assert " MB  " in largest
