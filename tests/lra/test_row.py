"""Rows: their lines of JSON, their keys, and which of a key counts."""

import json

import pytest

from lra.errors import UserError
from lra.row import from_json, key, latest, make_key, now, to_json
from tests.lra.row_factory import diverged_row, failed_row, make_row


def test_a_row_survives_its_line_of_json():
    for row in (make_row(0.25), diverged_row(), failed_row()):
        assert from_json(to_json(row)) == row


@pytest.mark.parametrize(
    ("task", "overrides", "expected"),
    [
        ("text", {}, True),
        ("text", {"data.holdout": 0.1}, False),
        ("image", {}, False),
    ],
)
def test_rows_of_schema_0_are_read(task, overrides, expected):
    values = json.loads(to_json(make_row(task=task, config_overrides=overrides)))
    del values["val_is_test"], values["config"]
    row = from_json(json.dumps(values | {"schema": 0}))
    assert row.val_is_test is expected
    assert row.schema == 1


@pytest.mark.parametrize(
    ("device", "number", "moved", "title"),
    [
        ("a GPU", 1, False, "a GPU"),
        ("a GPU", 4, False, "4 x a GPU"),
        ("4 x a GPU, a GPU, a CPU", 1, True, "4 x a GPU + a GPU + a CPU"),
        ("a CPU, 4 x a GPU", 4, True, "a CPU + 4 x a GPU"),
        (None, None, False, "unknown device"),
    ],
)
def test_what_a_row_ran_on(device, number, moved, title):
    row = make_row(device=device, num_devices=number)
    assert (row.moved, row.devices) == (moved, title)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("A (1 core)", True),
        ("A (8 cores) on 2 hosts", True),
        ("B, 4 x A (8 cores) on 2 hosts", True),
        ("B on 2 hosts", False),
        ("4 x A (8 cores) on 2 hosts, B", False),
        (None, False),
    ],
)
def test_whether_a_row_is_of_a_cpu(device, expected):
    assert make_row(device=device).on_cpu is expected


def test_tuples_in_the_config_do_not_change_the_key():
    row = make_row(config_overrides={"model.attention.share": ("kv", "heads")})
    assert key(from_json(to_json(row))) == key(row)


def test_seeds_among_the_overrides_do_not_change_the_key():
    plain = make_key("listops", "nystrom", {"a": 1}, 0, "table3", "official")
    seeds = make_key("listops", "nystrom", {"seeds": (0, 1), "a": 1}, 0, "table3", "official")
    assert plain == seeds


def test_the_order_of_the_overrides_does_not_change_the_key():
    one, other = make_row(config_overrides={"a": 1, "b": 2}), {"b": 2, "a": 1}
    assert key(one) == make_key(one.task, one.attention, other, one.seed, one.protocol, one.data)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "text"},
        {"attention": "standard"},
        {"seed": 1},
        {"config_overrides": {"train.steps": 5}},
        {"protocol": "changed: x=1"},
        {"data": "official"},
    ],
)
def test_each_part_of_the_key_counts(change):
    assert key(make_row(**change)) != key(make_row())


def test_the_latest_stand_in_the_order_in_which_they_were_written():
    failed, other, result = failed_row(seed=0), make_row(seed=1), make_row(seed=0)
    assert latest([failed, other, result]) == [other, result]
    assert latest([other, result, make_row(0.9, seed=1)]) == [other, result]


def test_of_the_rows_of_a_key_the_first_result_counts_else_the_last_failure():
    result, failures = make_row(0.5), [failed_row("killed"), failed_row("out of memory")]
    rows = [failures[0], result, make_row(0.25), failures[1], *failures]
    assert latest(rows) == [result]
    assert latest(failures) == failures[1:]


def test_a_diverged_row_has_its_number_of_parameters():
    with pytest.raises(UserError, match="params does not fit status 'diverged'"):
        to_json(diverged_row(params=None))


def test_times_are_in_utc():
    assert now().endswith("+00:00")
