"""The GPU kernels' times: what is timed can be lowered, and where it cannot run is told."""

import pytest

from benchmarks import gpu_kernels
from benchmarks.gpu_kernels import KERNELS, programs
from lra.errors import UserError
from models.machine import Machine, assumed
from tests.triton_lowering import TRITON_IS_LEAVING, on_an_h100


@TRITON_IS_LEAVING
@pytest.mark.parametrize(
    "name",
    [
        *("flash", "pinv", "chunks", "to_64_keys"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("finish_gradient", "favor")),
    ],
)
def test_each_choice_of_sizes_is_a_program_of_its_own(name, monkeypatch):
    """Lowered for a GPU on any machine, on small arrays."""
    monkeypatch.setattr(gpu_kernels, "_BATCH", 2)
    monkeypatch.setattr(gpu_kernels, "_LENGTH", 256)
    kernel = KERNELS[name]
    kernel = kernel._replace(others=kernel.others[:2])
    with on_an_h100(monkeypatch), assumed(Machine("gpu", runs_kernels=True, inverts=True)):
        texts = [program.both.as_text() for program in programs(kernel)]
    assert len(texts) == len(set(texts)) == len(list(kernel.sizes()))
    assert all("xla.gpu.triton" in text for text in texts)


def test_the_sizes_in_use_come_first_and_once():
    for kernel in KERNELS.values():
        sizes = list(kernel.sizes())
        assert len(sizes) == len(set(sizes))
        assert kernel.module is None or sizes[0] == getattr(kernel.module, kernel.name)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--kernels=finsh"], "unknown 'finsh'"),
        (["--kernels="], "kernels is empty"),
        ([], "need one NVIDIA GPU"),
    ],
)
def test_wrong_names_and_a_machine_without_kernels_are_told(argv, message):
    with assumed(Machine("cpu")), pytest.raises(UserError, match=message):
        gpu_kernels.main(argv)
