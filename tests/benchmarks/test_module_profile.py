"""The profile of an attention module: its longest operations, and what is refused."""

import pytest

from benchmarks.module_profile import main
from lra.errors import UserError

SMALL = ["--length=64", "--width=16x2", "--repeats=1"]


def test_the_products_of_a_module_are_among_its_operations(capsys):
    main([*SMALL, "--methods=linear,linformer:proj_dim=8", "--rows=200"])
    linear, linformer = capsys.readouterr().out.split("linformer-8, length 64, width 16")
    for printed in (linear, linformer):
        assert "ms a call" in printed
        assert "summed over threads" in printed
        assert "dot_general" in printed


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--methods=nystrom:num_landmarks=65", "nystrom-65: num_landmarks = 65 exceeds"),
        ("--methods=nystroem", "did you mean 'nystrom'"),
        ("--width=16x2,32x2", "--width takes one"),
        ("--threads=4096", "--threads=4096 are more than the cores that can be used: "),
    ],
)
def test_mistakes_are_told_in_one_line(flag, expected):
    with pytest.raises(UserError, match=expected) as error:
        main([*SMALL, flag])
    assert "\n" not in str(error.value)
