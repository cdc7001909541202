"""The time of the whole table: measured, taken from a like task or another device, or told."""

import pytest

from benchmarks import table_hours
from benchmarks.table_hours import minutes_of, speed_of
from lra.errors import UserError


def row(steps, examples, device="ours"):
    return {"steps_per_second": steps, "eval_examples_per_second": examples, "device": device}


def test_speeds_are_taken_from_the_nearest_row():
    own = {("image", "nystrom"): row(100.0, 1000.0), ("text", "linformer"): row(8.0, 80.0)}
    other = {("image", "nystrom"): row(50.0, 250.0), ("text", "nystrom"): row(20.0, 200.0)}
    assert speed_of("image", "nystrom", own, other) == (100.0, 1000.0, "measured")
    assert speed_of("pathfinder", "nystrom", own, other) == (100.0, 1000.0, "image")
    assert speed_of("retrieval", "linformer", own, other) == (4.0, 40.0, "text")
    assert speed_of("text", "nystrom", own, other)[:2] == (40.0, 800.0)
    assert speed_of("retrieval", "nystrom", own, other)[:2] == (20.0, 400.0)
    assert speed_of("text", "reformer", own, other) is None


def test_minutes_are_those_of_the_protocol_and_missing_cells_take_the_mean():
    """Text: 20,000 steps, 40 evaluations and two more, of 25,000 reviews each."""
    own = {
        ("text", "nystrom"): row(100.0, 10_000.0),
        ("text", "linformer"): row(200.0, 20_000.0),
    }
    minutes, sources = minutes_of("text", own, {})
    one = (20_000 / 100 + 42 * 25_000 / 10_000) / 60
    assert minutes == pytest.approx(5 * (one + one / 2) / 2)
    assert sources[0] == "measured"
    assert len(sources) == 4
    with pytest.raises(UserError, match="no speed of image, nor of a task like it"):
        minutes_of("image", own, {})


def test_failed_cases_and_rows_of_several_devices_tell_no_time():
    measured = row(1.0, 2.0, "an H200") | {"task": "text", "attention": "nystrom", "seeds": 1}
    measured |= {"num_devices": 1, "dtype": "bfloat16", "protocol_hours": 1.0}
    failed = {"task": "text", "attention": "standard", "seeds": 1, "failed": True}
    rows = [measured, failed, measured | {"num_devices": 8, "steps_per_second": 8.0}]
    del (unlike := dict(measured))["protocol_hours"]  # of a batch that is not the protocol's
    rows.append(unlike | {"steps_per_second": 9.0})
    assert table_hours.cells(rows, "H200", "bfloat16") == {("text", "nystrom"): measured}


@pytest.mark.parametrize(
    "device", ["H200 (LRA_KERNELS=off)", "H200 (no kernels: 8 devices visible)"]
)
def test_rows_without_kernels_or_with_deterministic_operations_are_others(device):
    plain = row(1.0, 2.0, "an H200") | {"task": "text", "attention": "nystrom", "seeds": 1}
    plain |= {"num_devices": 1, "dtype": "bfloat16", "protocol_hours": 1.0, "deterministic": False}
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
