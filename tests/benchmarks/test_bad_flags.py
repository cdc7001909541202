"""Flags of the smaller commands that no run can have: one line each, before anything is done."""

import pytest

from benchmarks import (
    first_steps,
    listops_generation,
    pathfinder_generation,
    report_rendering,
    standard_memory,
    torch_train_step,
    train_step,
)
from lra.errors import UserError


@pytest.mark.parametrize(
    ("command", "flag", "message"),
    [
        (listops_generation, "--count=0", "'0' is not a positive integer"),
        (listops_generation, "--workers=0", "'0' is not a positive integer"),
        (listops_generation, "--workers=1025", "1025 are more than 1,024"),
        (pathfinder_generation, "--workers=9999", "9999 are more than 1,024"),
        (pathfinder_generation, "--workers=0", "'0' is not a positive integer"),
        (pathfinder_generation, "--seconds=nan", "'nan' is not a positive number"),
        (report_rendering, "--seeds=0", "'0' is not a positive integer"),
        (report_rendering, "--values=-4", "'-4' is not 0 or a positive integer"),
        (standard_memory, "--heads=0", "'0' is not a positive integer"),
        (standard_memory, "--dropout=nan", "'nan' is not a number from 0 to below 1"),
        (standard_memory, "--dropout=1", "'1' is not a number from 0 to below 1"),
        (standard_memory, "--runs=-1", "'-1' is not 0 or a positive integer"),
        (first_steps, "--learning_rate=nan", "'nan' is not a positive number"),
        (train_step, "--seconds=nan", "'nan' is not a positive number"),
        (train_step, "--out=nowhere/rows.jsonl", "there is no folder nowhere"),
        (torch_train_step, "--out=nowhere/rows.jsonl", "there is no folder nowhere"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_bad_flags_are_refused_at_once(command, flag, message):
    with pytest.raises(UserError, match=message) as error:
        command.main([flag])
    assert "\n" not in str(error.value)
