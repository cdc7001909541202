"""The CSV of accuracies: every place of the table, averages, marks, costs of one platform only."""

import csv
import io

import pytest

from lra import records
from lra.published import TABLE3, TASKS
from lra.report.__main__ import main
from tests.lra.row_factory import diverged_row, failed_row, make_row
from tests.lra.test_report import five


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
    assert sorted(places) == sorted((a, t) for a in TABLE3 for t in (*TASKS, "average"))
    found = of(lines)
    assert (found["test_accuracy_mean"], found["test_accuracy_std"]) == ("0.38", "0.014142")
    assert (found["seeds_ok"], found["seeds_diverged"]) == ("2", "1")
    assert (found["published"], found["difference"]) == ("0.3715", "0.0085")
    assert (found["status"], found["device"]) == ("ok", "a device")
    assert of(lines, attention="performer")["status"] == "diverged"
    assert of(lines, attention="linformer")["status"] == "failed"
    for task, published in (("text", "0.6552"), ("average", "0.5895")):
        assert of(lines, task)["status"] == "missing"
        assert (of(lines, task)["published"], of(lines, task)["difference"]) == (published, "")


def test_csv_has_the_average(rendered):
    rows = [*five("nystrom", 0.5), *five("nystrom", 0.6, seed=1), diverged_row(seed=2)]
    found = of(rendered(rows), "average")
    assert (found["test_accuracy_mean"], found["test_accuracy_std"]) == ("0.55", "0.031623")
    assert (found["seeds_ok"], found["seeds_diverged"]) == ("2", "1")
    assert (found["published"], found["difference"]) == ("0.5895", "-0.0395")
    assert (found["status"], found["dtype"], found["device"]) == ("ok", "float32", "")


def test_csv_marks_other_data_and_other_number_formats(rendered):
    half = {"dtype": "bfloat16", "config_overrides": {"dtype": "bfloat16"}}
    data = {task: "mine" if task == "retrieval" else "generated" for task in TASKS}
    rows = [make_row(task=task, data=mark, **half) for task, mark in data.items()]
    lines = rendered([*rows, make_row(0.4)])
    assert of(lines)["dtype"] == "bfloat16"
    assert of(lines, mark="other number format")["test_accuracy_mean"] == "0.4"
    for task in ("retrieval", "average"):
        assert of(lines, task, mark="other data")["difference"] == ""
    assert len(lines) == 31


def test_csv_has_no_costs_of_several_devices_or_sizes_of_programs(rendered):
    rows = [
        make_row(device="a CPU", examples_per_second=32.0),
        make_row(seed=1, device="a GPU", num_devices=2, examples_per_second=5000.0),
        make_row(seed=2, task="text", seeds_in_program=1),
        make_row(seed=3, task="text"),
        failed_row(seed=4, task="text", device=None),
        make_row(task="image"),
    ]
    lines = rendered(rows)
    assert of(lines)["device"] == "a CPU; 2 x a GPU"
    costs = ("examples_per_second", "wall_seconds", "peak_memory_mb", "num_devices")
    assert [of(lines)[name] for name in costs] == [""] * 4
    assert [of(lines, "text")[name] for name in costs] == ["", "", "", "1"]
    assert of(lines, "text")["seeds_in_program"] == ""
    assert [of(lines, "image")[name] for name in costs] == ["1000.0", "600.0", "512.0", "1"]
    assert of(lines)["params"] == "207000.0"


def test_csv_has_no_costs_of_several_codes(rendered):
    rows = [
        make_row(seed=seed, versions={"jax": version}, commit=40 * digit)
        for seed, (version, digit) in enumerate((("0.10.2", "a"), ("0.12.0", "b")))
    ]
    found = of(rendered(rows))
    assert (found["jax"], found["commits"]) == ("0.10.2; 0.12.0", "aaaaaaa; bbbbbbb")
    assert found["examples_per_second"] == ""
    assert of(rendered(rows[:1]))["examples_per_second"] == "1000.0"


def test_csv_of_other_groups_has_their_options(rendered):
    rows = [
        make_row(task=task, config_overrides={"model.attention.num_landmarks": n})
        for task, n in (("listops", 16), ("listops", 32), ("image", 16))
    ]
    found = [(line["task"], line["options"], line["status"]) for line in rendered(rows)]
    option = "{'model.attention.num_landmarks': %d}"
    assert found == [
        ("listops", option % 16, "ok"),
        ("image", option % 16, "ok"),
        ("listops", option % 32, "ok"),
        ("image", option % 32, "missing"),
    ]
