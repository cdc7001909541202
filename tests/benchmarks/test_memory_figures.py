"""Which figure of memory is shown."""

import pytest

from benchmarks.memory_figures import filling_batch, largest_batch, memory_fields


@pytest.mark.parametrize(
    ("analysis", "first", "shown"),
    [
        ({"memory": 8e6}, {"process_memory": 9e6}, ("xla", 8)),
        ({"memory": 8e6}, {"process_memory": 11e6}, ("process", 11)),
        ({"memory": 1e6}, {"process_memory": 3e6}, ("xla", 1)),  # a step of 2 MB
        ({"memory": 8e6}, {"process_memory": None}, ("xla", 8)),
        ({"memory": 8e6}, {"device_memory": 99e6}, ("xla", 8)),
        ({}, {"device_memory": 9e6}, ("device", 9)),
        ({}, {"process_memory": 9e6}, ("process", 9)),
    ],
)
def test_the_figure_shown(analysis, first, shown):
    fields = memory_fields(analysis, first)
    assert (fields["memory_source"], fields["peak_memory_mb"]) == shown


def test_without_any_figure_there_is_none():
    assert memory_fields({}, {}) == {}


def test_one_example_counts_as_fitting():
    assert [largest_batch(memory, 4, 2) for memory in (10, 9, 3)] == [4, 3, 1]


def test_the_filling_batch_is_a_power_of_two_within_both_bounds():
    assert filling_batch(seconds=0.01, largest=1000, target=1.0) == 64  # 100 calls in a second
    assert filling_batch(seconds=0.01, largest=20, target=1.0) == 16
    assert filling_batch(seconds=5.0, largest=20, target=1.0) == 1
