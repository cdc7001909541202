"""Predictions of what was measured: from which rows, and by how much they are off."""

import pytest

from benchmarks import prediction_errors
from benchmarks.prediction_errors import of_costs, of_runs
from lra.errors import UserError
from lra.row import to_json
from tests.lra.cost_row_factory import cost_row
from tests.lra.sweep.test_listing import timed_row


def test_a_run_is_estimated_from_the_others_on_its_device_if_there_are_any():
    rows = [
        timed_row(seed=0, device="one (2 cores)", wall_seconds=100.0),
        timed_row(seed=1, device="one (2 cores)", wall_seconds=200.0),
        timed_row(seed=2, device="other (2 cores)", wall_seconds=50.0),
        timed_row(attention="linear", device="other (2 cores)", wall_seconds=1.0),
        timed_row(attention="nystrom", device="a third (2 cores)", wall_seconds=1.0),
    ]
    found = [(ratio.kind, ratio.value) for ratio in of_runs(rows)]
    assert found == [
        ("time of a run, about", pytest.approx(2.0)),
        ("time of a run, about", pytest.approx(0.5)),
        ("time of a run, ~", pytest.approx(3.0)),  # the median of 100 and 200, over 50
    ]
    assert not list(of_runs(rows[:1]))


def test_seeds_of_one_program_are_one_run():
    rows = [timed_row(seed=seed, wall_seconds=300.0) for seed in range(3)]
    assert not list(of_runs(rows))
    alone = timed_row(seed=3, wall_seconds=200.0, seeds_in_program=1)
    together, alone = of_runs([*rows, alone])
    assert together.value == pytest.approx(3 * 200 / 300)
    assert alone.value == pytest.approx(100 / 200)


def test_costs_are_extrapolated_from_one_and_from_two_lengths_before():
    seconds = {1024: 1.0, 2048: 2.0, 4096: 4.0, 8192: 10.0}
    rows = [cost_row(time, 1.0, length=length, label="one") for length, time in seconds.items()]
    rows.append(cost_row(7.0, 1.0, length=16384, label="one", filled=True))
    found: dict[str, list[float]] = {}
    for kind, value in of_costs(rows):
        found.setdefault(kind, []).append(value)
    assert found["time of approximations, next length"] == pytest.approx([1.0, 0.8])
    assert found["time of approximations, second next length"] == pytest.approx([0.8])
    # Memory grows at least with the length, and did not.
    assert found["memory of approximations, next length"] == pytest.approx([2.0, 2.0])


def test_the_command_prints_a_line_of_each_kind(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    rows = [timed_row(seed=seed, wall_seconds=100.0 + 50 * seed) for seed in (0, 1)]
    path.write_text("".join(f"{to_json(row)}\n" for row in rows))
    assert prediction_errors.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "|---|---|---|---|---|---|",
        "| time of a run, about | 2 | 1.08 | 0.67 | 1.50 | 0 |",
    ]
    path.write_text(f"{to_json(rows[0])}\n")
    with pytest.raises(UserError, match="leave nothing to predict"):
        prediction_errors.main([str(path)])
