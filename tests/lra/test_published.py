"""Published numbers, by sums that one wrong digit changes."""

import pytest

from lra.published import XFORMERS
from lra.published_efficiency import (
    LINFORMER_MEMORY_SAVED,
    LINFORMER_TIME_SAVED,
    LRA_MEMORY,
    LRA_STEPS,
    TABLE1_MEMORY,
    TABLE1_TIME,
)


@pytest.mark.parametrize(
    ("lines", "values", "times"),
    [
        (TABLE1_TIME, [201.5, 21.3, 70.9, 22.9, 21.5], [5, 26.5, 7.9, 24.8, 26.1]),
        (TABLE1_MEMORY, [13778, 1288, 945.2, 895, 747], [5, 31.1, 42.4, 44.6, 53.3]),
        (LRA_STEPS, [16.7, 34.6, 9.2, 34.8, 35.6], [0] * 5),
        (LRA_MEMORY, [18490, 2900, 5280, 2770, 2840], [0] * 5),
    ],
)
def test_sums_of_lines(lines, values, times):
    assert [sum(line.values.values()) for line in lines] == pytest.approx(values)
    assert [sum(line.times.values()) for line in lines] == pytest.approx(times)


@pytest.mark.parametrize(
    ("saved", "sums"),
    [
        (LINFORMER_TIME_SAVED, [56.3, 51.3, 44.6, 35.4, 19.6]),
        (LINFORMER_MEMORY_SAVED, [224.8, 197.0, 138.7, 68.8, 48.8]),
    ],
)
def test_sums_of_what_linformer_saves(saved, sums):
    found = [sum(filter(None, values)) for values in saved.values()]
    assert found == pytest.approx(sums)


def test_sums_of_what_others_found_again():
    sums = {"standard": 288.46, "linformer": 271.18, "performer": 266.74, "nystrom": 288.06}
    found = {name: sum(values.values()) for name, values in XFORMERS.items()}
    assert found == pytest.approx(sums)
