"""Estimates of the time left: the rows that they are based on."""

from lra.sweep.estimate import rows_with_costs
from tests.lra.row_factory import CONFIG, make_row


def test_rows_with_costs_are_in_the_order_of_their_making():
    config = CONFIG | {"train.batch_size": 32}
    late, early = (
        make_row(seed=seed, config=config, finished=f"2026-01-0{day}T00:00:00+00:00")
        for seed, day in enumerate((2, 1))
    )
    assert rows_with_costs([late, early]) == [early, late]
