"""What earlier lengths of a run predict for a later one."""

import pytest

from benchmarks.cases import Case, Contender
from benchmarks.measured import Measured
from tests.lra.cost_row_factory import cost_row, standard

CONTENDER = Contender("standard", {"implementation": "xla"}, "ours", "standard (xla)")


CASE = Case("module", "forward", 65536, 1, 64, 2, "float32")


@pytest.mark.parametrize(
    ("options", "peer", "expected"),
    [
        ({"implementation": "xla"}, "ours", 1600.0),
        ({"implementation": "chunked"}, "ours", 400.0),
        ({}, "torch plain", 1600.0),
        ({}, "torch sdpa", 400.0),
    ],
)
def test_memory_grows_at_least_with_what_a_method_holds(options, peer, expected):
    """With the scores or with the sequence, though that of shorter ones hardly grew."""
    contender = Contender("standard", options, peer, "one")
    measured = Measured()
    assert measured.memory(contender, CASE) is None
    for length, memory in ((4096, 90.0), (8192, 95.0), (16384, 100.0)):
        measured.remember(cost_row(1.0, memory, method="standard", length=length, label="one"))
    assert measured.memory(contender, CASE) == (pytest.approx(expected * 1e6), "xla")


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
