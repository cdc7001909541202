"""The campaigns in miniature: few kills and damages, the same comparisons."""

import pytest

from tests.campaigns import damage, kills


def test_damages_are_noticed(tmp_path):
    found = damage.campaign(tmp_path, flips=5, cuts=3, seed=1)
    assert len(found) == 6
    for name, (done, noticed) in found.items():
        assert noticed == done > 0, name


def test_a_phase_that_many_kills_left_out_is_named():
    tally = kills.Tally()
    tally.hits.update({(phase, 9): 16 for phase in kills.PHASES if phase != "rows"})
    assert tally.missed == ["none of 64 kills hit the phase 'rows'"]
    tally.hits["rows", 15] += 1
    assert tally.missed == []
    assert kills.Tally().missed == [], "few kills cannot hit every phase"


@pytest.mark.slow
def test_many_kills_leave_no_trace(tmp_path):
    tally = kills.campaign(tmp_path, kills=12, seed=5)
    assert tally.wrong == []
    assert {phase for phase, _ in tally.hits} >= {"training", "evaluation", "checkpoint", "rows"}
