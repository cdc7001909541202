"""What earlier lengths of a run predict for a later one."""

import dataclasses

import pytest

from benchmarks.cases import Case, Contender
from benchmarks.measured import Measured, fitted_exponent, least_exponent, power_law
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
    case = Case("module", "forward", at, 1, 64, 2, "float32")
    return measured.seconds(CONTENDER, case, flops=None)


def test_exact_attention_takes_at_least_four_times_as_long_as_at_half_of_the_length():
    seconds = {1024: 0.1, 2048: 0.4, 4096: 1.6}
    assert predicted(seconds, 16384) == pytest.approx(25.6)
    assert predicted(seconds | {8192: 12.0}, 16384) == pytest.approx(48.0)
    assert predicted(seconds | {8192: 3.2}, 16384) == pytest.approx(4 * 3.2)
    assert predicted({1024: 0.1}, 2048) is None


def test_time_grows_as_the_flops_where_they_are_known():
    measured = Measured()
    for length, flops in ((2048, 1e9), (4096, 3e9)):
        row = standard(length / 1024, length=length)
        measured.remember(dataclasses.replace(row, flops=flops))
    assert measured.seconds(CONTENDER, CASE, flops=9e9) == pytest.approx(12.0)
    assert measured.seconds(CONTENDER, CASE, flops=None) == pytest.approx(4.0 * 16**2)


def test_what_is_predicted_is_never_below_what_was_measured_before():
    """A line through all points may pass above or below the last of them."""
    slow_at_first = {1024: 3.0, 2048: 3.5, 4096: 4.0}
    assert predicted(slow_at_first, 8192) == pytest.approx(16.0)


def test_a_power_law_is_continued_exactly():
    points = [(512, 99.0), *((n, 3.0 * n**1.5) for n in (1024, 2048, 4096))]
    assert power_law(points, 16384) == pytest.approx(3.0 * 16384**1.5)
    assert power_law(points[1:3], 8192) == pytest.approx(3.0 * 8192**1.5)
    assert power_law(points[:1], 1024) is None


def test_a_power_law_is_of_all_long_lengths():
    """One slow call in the middle costs the prediction a fraction, not a factor of its own."""
    points = [(n, 1e-6 * n**2 * (2 if n == 4096 else 1)) for n in (1024, 2048, 4096, 8192)]
    assert power_law(points, 16384) == pytest.approx(1e-6 * 16384**2, rel=0.4)
    # With fewer than three of them the three longest count, and no others.
    short = [(256, 100.0), (512, 1.0), (1024, 2.0), (2048, 4.0)]
    assert power_law(short, 4096) == pytest.approx(8.0)


def test_what_is_known_of_a_method_bounds_its_exponent():
    # The committed times of exact attention, whose last two points alone give 4.8 s.
    assert predicted({1024: 0.0916, 2048: 0.891, 4096: 2.075}, 8192) == pytest.approx(8.3)
    flat = [(n, 1.0) for n in (1024, 2048, 4096)]
    assert [fitted_exponent(flat, least) for least in (0, 1, 2)] == pytest.approx([0, 1, 2])
    steep = [(n, n**5.0) for n in (512, 1024, 2048)]  # noise, not length**5
    assert power_law(steep, 4096) == pytest.approx(1024**5 * 4**2)


def test_exact_attention_grows_by_a_power_more_than_the_others():
    benchmarks = ("module", "model", "fixed_tokens")
    assert [least_exponent(True, name) for name in benchmarks] == [2, 2, 1]
    assert [least_exponent(False, name) for name in benchmarks] == [1, 1, 0]


@pytest.mark.parametrize(
    "other",
    [
        {"mode": "forward_backward"},
        {"dtype": "bfloat16"},
        {"benchmark": "model"},
        {"dim": 128},
        {"heads": 4},
        {"batch": 2},
    ],
)
def test_another_pass_size_or_format_predicts_nothing(other):
    measured = Measured()
    for length in (1024, 2048):
        measured.remember(standard(1.0, length=length))
    assert measured.seconds(CONTENDER, CASE, None)
    assert measured.memory(CONTENDER, CASE)
    changed = dataclasses.replace(CASE, **other)
    assert measured.seconds(CONTENDER, changed, None) is None
    assert measured.memory(CONTENDER, changed) is None
