"""What earlier lengths of a run predict for a later one."""

import pytest

from benchmarks.cases import Case, Contender
from benchmarks.measured import Measured
from tests.lra.cost_row_factory import standard

CONTENDER = Contender("standard", {"implementation": "xla"}, "ours", "standard (xla)")


def predicted(seconds: dict[int, float], at: int) -> float | None:
    measured = Measured()
    for length, value in seconds.items():
        measured.remember(standard(value, length=length))
    return measured.seconds(CONTENDER, Case("module", "forward", at, 1, 64, 2, "float32"))


def test_exact_attention_takes_at_least_four_times_as_long_as_at_half_of_the_length():
    seconds = {1024: 0.1, 2048: 0.4, 4096: 1.6}
    assert predicted(seconds, 16384) == pytest.approx(25.6)
    assert predicted(seconds | {8192: 12.0}, 16384) == pytest.approx(48.0)
    # A fast last call counts with the others.
    assert predicted(seconds | {8192: 3.2}, 16384) > 4 * 3.2
    assert predicted({1024: 0.1}, 2048) is None
