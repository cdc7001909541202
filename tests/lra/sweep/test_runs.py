"""The order of a sweep's runs."""

import pytest

from lra.sweep.data import Data
from lra.sweep.runs import Done, Run, in_order
from tests.lra.row_factory import failed_row


def make_run(attention: str) -> Run:
    return Run(
        spec=f"configs/listops.py:{attention}",
        overrides=(),
        seeds=(0, 1),
        task="listops",
        attention=attention,
        protocol="table3",
        changed={},
        config={},
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_comes_last_whichever_of_its_seeds_has_failed(seed):
    failed, other = make_run("nystrom"), make_run("linear")
    done = Done([failed_row(seed=seed)], Data("nowhere", {}))
    assert in_order([failed, other], done) == [other, failed]


def test_a_failure_on_other_data_is_none_of_this_sweep():
    run, data = make_run("nystrom"), Data("nowhere", {"listops": {"data_label": "mine"}})
    assert Done([failed_row()], data).failures(run) == []
    assert Done([failed_row(data="mine")], data).failures(run) == ["killed by SIGKILL"]
