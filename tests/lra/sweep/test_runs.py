"""The order of a sweep's runs."""

from lra.sweep.runs import Run, in_order
from tests.lra.row_factory import failed_row


def test_a_run_comes_last_whichever_of_its_seeds_has_failed():
    def run(attention):
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

    failed, other = run("nystrom"), run("linear")
    for seed in (0, 1):
        assert in_order([failed, other], [failed_row(seed=seed)]) == [other, failed]
