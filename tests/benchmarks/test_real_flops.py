"""Operations of real tokens, counted for rows that have all operations only."""

import pytest

from benchmarks import real_flops
from lra import training_rows
from lra.errors import UserError
from lra.training_rows import StepRow
from tests.lra.report.test_speeds import STEP

STEPS = {"steps_per_second": 2.0, "peak_flops_per_second": 1e12}


def test_a_share_is_of_all_seeds_and_of_the_rate_of_all_devices(monkeypatch):
    cases = []
    monkeypatch.setattr(real_flops, "make_trainer", lambda case, examples: cases.append(case))
    monkeypatch.setattr(real_flops, "model_flops", lambda trainer: 10**11)
    row = STEP | STEPS | {"seeds": 3, "num_devices": 4}
    assert real_flops.share(row) == pytest.approx(3 * 1e11 * 2.0 / (4 * 1e12))
    assert cases == [("listops", "nystrom", 3, "bfloat16", 32, ())]


def test_the_command_has_a_line_per_task_and_asks_for_a_device_with_rows(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "steps.jsonl"
    training_rows.append(path, STEP | STEPS, StepRow)
    monkeypatch.setattr(real_flops, "share", lambda row: row["steps_per_second"] / 100)
    assert real_flops.main([str(path), "--device=GPU"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| listops | – | – | – | – | 2.0% |"
    assert len(lines) == 2 + 5
    with pytest.raises(UserError, match="no row of one seed, float32, on such a device"):
        real_flops.main([str(path), "--device=GPU", "--dtype=float32"])
