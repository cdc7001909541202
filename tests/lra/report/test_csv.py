"""The CSV of accuracies: every place of the table, averages, marks; that of costs: programs."""

import csv
import io
import json
import math

import pytest
from scipy import stats

from lra import records
from lra.published import TABLE3, TABLE_TASKS
from lra.report.__main__ import main
from lra.report.groups import group
from lra.report.tables import tables
from tests.lra.report.test_tables import five
from tests.lra.row_factory import HALF, diverged_row, failed_row, make_row


@pytest.fixture
def rendered(tmp_path, capsys):
    """From rows to the lines of their CSV."""

    def render(rows) -> list[dict[str, str]]:
        path = tmp_path / "rows.jsonl"
        path.unlink(missing_ok=True)
        records.append(path, rows)
        main([str(path), "--format=csv"])
        return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    return render


def of(lines, task="listops", attention="nystrom", mark="") -> dict[str, str]:
    """The one line of a place."""
    (found,) = (
        line
        for line in lines
        if (line["task"], line["attention"], line["mark"]) == (task, attention, mark)
    )
    return found


def test_csv_has_a_line_a_place(rendered):
    rows = [
        *(make_row(0.37), make_row(0.39, seed=1), diverged_row(seed=2), make_row(task="image")),
        *(diverged_row(attention="performer"), failed_row(attention="linformer")),
    ]
    lines = rendered(rows)
    places = [(line["attention"], line["task"]) for line in lines]
    assert sorted(places) == sorted((a, t) for a in TABLE3 for t in (*TABLE_TASKS, "average"))
    found = of(lines)
    assert (found["test_accuracy_mean"], found["test_accuracy_std"]) == ("0.38", "0.014142")
    assert (found["seeds_ok"], found["seeds_diverged"]) == ("2", "1")
    assert (found["published"], found["difference"]) == ("0.3715", "0.0085")
    assert (found["status"], found["devices"]) == ("ok", "a device")
    assert of(lines, attention="performer")["status"] == "diverged"
    assert of(lines, attention="linformer")["status"] == "failed"
    for task, published in (("text", "0.6552"), ("average", "0.5895")):
        assert of(lines, task)["status"] == "missing"
        assert (of(lines, task)["published"], of(lines, task)["difference"]) == (published, "")


def test_csv_has_the_average(rendered):
    rows = [*five("nystrom", 0.5), *five("nystrom", 0.6, seed=1), diverged_row(seed=2)]
    found = of(rendered(rows), "average")
    assert (found["test_accuracy_mean"], found["test_accuracy_std"]) == ("0.55", "0.031623")
    assert (found["seeds_ok"], found["seeds_diverged"]) == ("10", "1")
    assert (found["published"], found["difference"]) == ("0.5895", "-0.0395")
    assert (found["status"], found["dtype"], found["devices"]) == ("ok", "float32", "")


def test_csv_marks_other_data_and_other_number_formats(rendered):
    data = {task: "mine" if task == "retrieval" else "generated" for task in TABLE_TASKS}
    rows = [make_row(task=task, data=mark, **HALF) for task, mark in data.items()]
    lines = rendered([*rows, make_row(0.4)])
    assert of(lines)["dtype"] == "bfloat16"
    apart = of(lines, mark="other number format")
    assert (apart["test_accuracy_mean"], apart["difference"]) == ("0.4", "")
    for task in ("retrieval", "average"):
        assert of(lines, task, mark="other data")["difference"] == ""
    assert len(lines) == 31


def test_csv_lists_devices_and_code_of_a_cell(rendered):
    rows = [
        make_row(device="a CPU", versions={"jax": "0.10.2"}, commit=40 * "a"),
        make_row(seed=1, device="a GPU", num_devices=2, commit=40 * "b"),
        make_row(seed=2, device="a GPU, a CPU", commit=40 * "b"),
        failed_row(seed=4, device=None),
    ]
    found = of(rendered(rows))
    assert found["params"] == "207000"  # the failed seed has none
    assert found["devices"] == "a CPU; 2 x a GPU; a GPU + a CPU"
    assert (found["jax"], found["commits"]) == ("0.10.2; unknown", "aaaaaaa; bbbbbbb")
    assert found["seeds"] == "[0, 1, 2]"


def test_csv_comes_back_as_it_was(rendered):
    digest = 64 * "a"
    rows = [
        make_row(0.30, val_is_test=True, data_sha256=digest),
        make_row(0.32, seed=7, val_is_test=True, data_sha256=digest),
        make_row(task="text", val_is_test=False),
    ]
    lines = rendered(rows)
    found = of(lines)
    assert (found["params"], found["steps"]) == ("207000", "5000")
    assert (found["val_is_test"], found["data_sha256"]) == ("True", digest)
    assert (json.loads(found["options"]), json.loads(found["seeds"])) == ({}, [0, 7])
    variance = (0.3715 * 0.6285 + 0.31 * 0.69) / 2000 + 0.0002 * 1.5
    assert float(found["difference_error"]) == pytest.approx(math.sqrt(variance), abs=1e-6)
    of_seeds = 0.0002 * 1.5 / variance
    multiple = 2 * (1 - of_seeds) + stats.t.isf(stats.norm.sf(2), 1) * of_seeds
    least = multiple * math.sqrt(variance)
    assert float(found["difference_least"]) == pytest.approx(least, abs=1e-6)
    assert {of(lines, "text")[name] for name in ("difference_error", "difference_least")} == {""}


def test_csv_has_no_difference_where_several_cells_stand_in_one_place(rendered):
    one, other = make_row(data_sha256="a" * 64), make_row(seed=1, data_sha256="b" * 64)
    assert of(rendered([one]))["difference"] != ""
    lines = [line for line in rendered([one, other]) if line["seeds"] in ("[0]", "[1]")]
    names = ("difference", "difference_error", "difference_least")
    assert {line[name] for line in lines for name in names} == {""}
    assert all(line["published"] for line in lines)


def test_costs_have_a_line_a_program(tmp_path):
    rows = [
        make_row(device="a CPU", examples_per_second=32.0),
        make_row(seed=1, device="a GPU", num_devices=2, examples_per_second=5000.0),
        make_row(seed=2, device="a GPU", num_devices=2, examples_per_second=6000.0),
        *(make_row(task="text", seed=s, versions={"jax": f"0.1{s}.0"}) for s in (0, 2)),
        diverged_row(seed=3, task="text", versions={"jax": "0.12.0"}, seeds_in_program=2),
        failed_row(seed=4, task="text"),
        diverged_row(steps=8, seed=5, task="text"),  # mostly compilation
        make_row(task="image", device="a GPU, a CPU"),
    ]
    records.append(tmp_path / "rows.jsonl", rows)
    main([str(tmp_path / "rows.jsonl"), f"--out={tmp_path}", "--format=csv"])
    lines = list(csv.DictReader(io.StringIO((tmp_path / "costs.csv").read_text())))
    names = ("task", "seeds", "device", "num_devices", "seeds_in_program", "jax")
    assert [tuple(line[name] for name in names) for line in lines] == [
        ("listops", "[0]", "a CPU", "1", "3", "unknown"),
        ("listops", "[1, 2]", "a GPU", "2", "3", "unknown"),
        ("text", "[0]", "a device", "1", "3", "0.10.0"),
        ("text", "[2]", "a device", "1", "3", "0.12.0"),
        ("text", "[3]", "a device", "1", "2", "0.12.0"),
        ("image", "[0]", "a GPU, a CPU", "", "3", "unknown"),
    ]
    assert [line["examples_per_second"] for line in lines[:3]] == ["32.0", "5500.0", "1000.0"]
    assert (lines[-1]["examples_per_second"], lines[-1]["peak_memory_mb"]) == ("", "")
    assert {(line["params"], line["wall_seconds"]) for line in lines} == {("207000", "600.0")}
    # The table has the same lines.
    (table,) = (t for t in tables(group(rows)[0]) if t.title == "Cost")
    assert len(table.lines) == len(lines)


def test_csv_of_other_groups_has_their_options(rendered):
    rows = [
        make_row(task=task, config_overrides={"model.attention.num_landmarks": n})
        for task, n in (("listops", 16), ("listops", 32), ("image", 16))
    ]
    found = [(line["task"], line["options"], line["status"]) for line in rendered(rows)]
    option = '{"model.attention.num_landmarks": %d}'
    assert found == [
        ("listops", option % 16, "ok"),
        ("image", option % 16, "ok"),
        ("listops", option % 32, "ok"),
        ("image", option % 32, "missing"),
    ]


def test_seeds_that_all_ended_early_have_costs_none_the_less():
    (found,) = (t for t in tables(group([diverged_row()])[0]) if t.title == "Cost")
    assert [texts[3:5] for texts in found.lines] == [["1,000", "10.0"]]
