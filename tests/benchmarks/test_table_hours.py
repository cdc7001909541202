"""The time of the whole table, by the rows of a device."""

import pytest

from benchmarks import table_hours
from lra import training_rows
from lra.errors import UserError
from lra.training_rows import StepRow
from tests.lra.report.test_speeds import STEP

MEASURED = {
    "task": "text",
    "attention": "nystrom",
    "seeds": 1,
    "device": "an H200",
    "num_devices": 1,
    "dtype": "bfloat16",
    "protocol_hours": 1.0,
}


def test_minutes_are_those_of_the_measured_cells(tmp_path, capsys):
    path = tmp_path / "steps.jsonl"
    for attention, hours in (("nystrom", 0.1), ("linformer", 0.5), ("linear", 9.0)):
        training_rows.append(
            path, STEP | {"attention": attention, "protocol_hours": hours}, StepRow
        )
    assert table_hours.main([str(path), "--device=GPU"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["| listops | 36.0 | 2 of 5 |", "| text | 0.0 | 0 of 5 |"]
    assert lines[-1] == "| all | 36 | 2 of 25 |"


def test_failed_cases_and_rows_of_several_devices_tell_no_time():
    failed = {"task": "text", "attention": "standard", "seeds": 1, "failed": True}
    rows = [MEASURED, failed, MEASURED | {"num_devices": 8}]
    rows.append(MEASURED | {"protocol_hours": None})  # of a batch that is not the protocol's
    rows.append(MEASURED | {"overrides": ["model.attention.num_landmarks=512"]})
    assert table_hours.cells(rows, "H200", "bfloat16") == {("text", "nystrom"): MEASURED}


@pytest.mark.parametrize(
    "device", ["H200 (LRA_KERNELS=off)", "H200 (no kernels: 8 devices visible)"]
)
def test_rows_without_kernels_or_with_deterministic_operations_are_others(device):
    plain = MEASURED | {"deterministic": False}
    without, deterministic = plain | {"device": device}, plain | {"deterministic": True}
    rows = [plain, deterministic, without]
    assert table_hours.cells(rows, "H200", "bfloat16") == {("text", "nystrom"): plain}
    assert table_hours.cells(rows, device, "bfloat16") == {("text", "nystrom"): without}
    assert table_hours.cells(rows[1:2], "H200", "bfloat16") == {("text", "nystrom"): deterministic}


def test_a_device_without_rows_is_told(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.touch()
    with pytest.raises(UserError, match="no row of one seed, bfloat16, on such a device"):
        table_hours.main([str(path), "--device=H300"])
