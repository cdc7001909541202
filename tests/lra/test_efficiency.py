"""Rows of cost: strict, durable, and told apart from rows of accuracy."""

import dataclasses
import json
import pathlib

import pytest

from lra import efficiency, records
from lra.efficiency import either_from_json, to_json
from lra.errors import UserError
from tests.lra import cost_row_factory
from tests.lra.row_factory import make_row

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cost_row(**values):
    """A row of cost with these values, whether it may have them or not."""
    return dataclasses.replace(cost_row_factory.cost_row(), **values)


FAILURES = [
    {"status": "extrapolated", "note": "from shorter lengths"},
    {"status": "out_of_memory", "note": "needs 9 MB of 1", "seconds": None},
    {
        "status": "unsupported",
        "note": "no",
        "seconds": None,
        "peak_memory_mb": None,
        "memory_source": None,
    },
]


@pytest.mark.parametrize("values", [{}, {"versions": {"jax": "0"}, "threads": 1}, *FAILURES])
def test_a_row_survives_its_line_of_json(values):
    assert either_from_json(to_json(cost_row(**values))) == cost_row(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"benchmark": "speed"},
        {"mode": "backward"},
        {"dtype": "float16"},
        {"status": "good"},
        {"memory_source": "a guess"},
        {"kind": "accuracy"},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"length": 512.0},
        {"filled": 1},
        {"label": None},
        {"label": ""},
        {"repeats": 0},
        {"seconds_min": 9.0, "seconds_max": 8.0},
        {"benchmark": "model", "mode": "forward"},
        {"memory_source": None},
        {"seconds": None, "peak_memory_mb": None, "memory_source": None},
        {"status": "extrapolated"},
        {
            "status": "extrapolated",
            "note": "no number",
            "seconds": None,
            "peak_memory_mb": None,
            "memory_source": None,
        },
        {"status": "extrapolated", "note": "of no measurement", "seconds_max": 1.0},
        {"status": "out_of_memory", "note": "it is shown with a time"},
        {"status": "unsupported", "note": "it has memory", "seconds": None},
    ],
)
def test_values_that_a_row_cannot_have_are_refused(values):
    with pytest.raises(UserError, match="not a row of cost"):
        to_json(cost_row(**values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"length": 0}, r"length cannot be 0, only 1 to 1e\+12"),
        ({"batch": 0}, "batch cannot be 0, only"),
        ({"heads": 10**300}, r"heads cannot be 1e\+300, only"),
        ({"seconds": 0.0}, "seconds cannot be 0, only 1e-12 to 1e"),
        ({"seconds": 1e-300}, "seconds cannot be 1e-300, only"),
        ({"seconds_max": 1e308}, r"seconds_max cannot be 1e\+308, only"),
        ({"peak_memory_mb": 1e-300}, r"peak_memory_mb cannot be 1e-300, only 1e-12 to 1e\+15"),
        ({"device_memory_mb": 1e308}, r"device_memory_mb cannot be 1e\+308, only"),
    ],
)
def test_numbers_that_nothing_measures_are_refused(values, message):
    with pytest.raises(UserError, match=f"not a row of cost: {message}"):
        to_json(cost_row(**values))


def test_a_process_may_grow_by_nothing():
    row = cost_row(process_memory_mb=0.0, xla_memory_mb=3.5)
    assert either_from_json(to_json(row)) == row


def test_the_rows_of_the_project_are_read():
    assert records.read(ROOT / "results" / "efficiency.jsonl", either_from_json)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2 is unknown, this version reads 1; update the code"),
        ({"schema": None}, "its schema is missing or no number"),
        ({"kind": "x"}, "not a row of accuracy or cost: its kind is not 'cost'"),
        ({"kind": "train"}, "of metrics; --curves WORKDIR, the folder of that file, draws"),
        ({"kind": []}, "its kind is not 'cost'"),
        ({"new": 1}, "unknown field 'new'"),
    ],
)
def test_lines_of_other_lists_are_refused(change, message):
    line = json.dumps(json.loads(to_json(cost_row())) | change)
    with pytest.raises(UserError, match=message):
        either_from_json(line)


def test_a_line_of_nothing_but_its_kind_is_told_what_it_lacks():
    with pytest.raises(UserError, match="its schema is missing"):
        either_from_json('{"kind": "cost"}')
    with pytest.raises(UserError, match=r"benchmark, method, .* missing"):
        either_from_json('{"kind": "cost", "schema": 1}')


@pytest.mark.parametrize("field", ["flops", "length"])
def test_an_integer_beyond_the_floats_is_refused(field):
    values = json.loads(to_json(cost_row())) | {field: 10**400}
    with pytest.raises(UserError, match=f"{field} cannot be 1000.* characters") as refused:
        either_from_json(json.dumps(values))
    assert len(str(refused.value)) < 150


def test_rows_without_parts_are_read():
    values = json.loads(to_json(cost_row(benchmark="model", mode="forward_backward", parts=8)))
    assert either_from_json(json.dumps(values)).parts == 8
    del values["parts"]
    assert either_from_json(json.dumps(values)).parts is None


def test_a_missing_field_is_named():
    values = json.loads(to_json(cost_row()))
    del values["label"]
    with pytest.raises(UserError, match="label missing"):
        either_from_json(json.dumps(values))


def test_append_keeps_every_run(tmp_path):
    path = tmp_path / "efficiency.jsonl"
    assert efficiency.append(path, [cost_row(), cost_row()]) == 2
    assert efficiency.append(path, [cost_row(run="1")]) == 1
    assert records.read(path, either_from_json) == [cost_row(), cost_row(), cost_row(run="1")]


def test_a_row_that_is_not_valid_leaves_the_file_alone(tmp_path):
    path = tmp_path / "efficiency.jsonl"
    with pytest.raises(UserError):
        efficiency.append(path, [cost_row(), cost_row(mode="x")])
    assert not path.exists()


def test_both_kinds_of_rows_share_a_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row()])
    efficiency.append(path, [cost_row()])
    assert records.read(path, either_from_json) == [make_row(), cost_row()]


def test_a_line_cut_short_is_set_aside(tmp_path, capsys):
    path = tmp_path / "efficiency.jsonl"
    line = to_json(cost_row())
    path.write_text(f"{line}\n{line[:40]}")
    efficiency.append(path, [cost_row(run="1")])
    assert records.read(path, either_from_json) == [cost_row(), cost_row(run="1")]
    assert "cut short" in capsys.readouterr().err
    assert (tmp_path / "efficiency.jsonl.broken").read_text() == f"{line[:40]}\n"
