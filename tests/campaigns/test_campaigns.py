"""The campaigns in miniature: few kills and damages, the same comparisons."""

import jax
import pytest

from models.attention import favor_programs
from tests.campaigns import damage, kernel_code, kills
from tests.triton_lowering import TRITON_IS_LEAVING


@pytest.mark.slow
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


@pytest.mark.slow
@TRITON_IS_LEAVING
def test_the_code_of_a_kernel_is_known_by_its_hash(monkeypatch):
    before = kernel_code.kernels("performer")
    jax.clear_caches()
    monkeypatch.setattr(favor_programs, "_LEAST", 0.5)
    after = kernel_code.kernels("performer")
    assert len(after) == len(before) == 10
    changed = [name for (name, old), (_, new) in zip(before, after, strict=True) if old != new]
    assert changed == ["attend_queries"]
