"""Speeds of training steps that were measured apart: which count, and what is drawn of them."""

import dataclasses

import pytest
from matplotlib import pyplot

from lra import training_rows
from lra.errors import UserError
from lra.report import __main__ as report
from lra.report import speeds
from lra.report.dots import panels
from lra.report.figures import figures
from lra.report.groups import group
from lra.report.provenance import Platform
from lra.row import to_json
from lra.training_rows import StepRow
from tests.lra.row_factory import make_row

STEP = {
    "task": "listops",
    "attention": "nystrom",
    "seeds": 1,
    "dtype": "bfloat16",
    "batch": 32,
    "device": "a GPU",
    "num_devices": 1,
    "commit": "a" * 40,
    "versions": {"jax": "0.12.0"},
    "deterministic": True,
    "matmul_precision": "float32",
    "compile_seconds": 1.0,
    "eval_compile_seconds": 1.0,
    "other_compile_seconds": 1.0,
    "steps_per_second": 10.0,
    "examples_per_second": 320.0,
    "eval_examples_per_second": 900.0,
    "peak_memory_mb": 1.0,
    "peak_flops_per_second": 1e12,
    "protocol_hours": 0.1,
}
GPU = Platform("a GPU", "bfloat16", "0.12.0")
# The last one is the default.
CHANGES = ["model.remat=True", "model.dropout=1e-4", "model.attention.num_landmarks=64"]
NYSTROM = "listops", "nystrom", frozenset()


def measured(tmp_path, *rows) -> str:
    """The path of a file of such rows, each `STEP` but for the values given."""
    path = tmp_path / "steps.jsonl"
    for values in rows:
        training_rows.append(path, STEP | values, StepRow)
    return str(path)


def test_deterministic_operations_count_where_there_are_no_others(tmp_path):
    """They are slower; on a CPU all operations are deterministic."""
    slow = {"examples_per_second": 100.0}
    (tmp_path / "both").mkdir()
    path = measured(tmp_path / "both", {"deterministic": False}, slow)
    assert speeds.read(path) == [(GPU, {NYSTROM: 320.0}, {NYSTROM: "aaaaaaa"})]
    assert speeds.read(measured(tmp_path, slow))[0].examples_per_second == {NYSTROM: 100.0}


def test_the_last_speed_of_one_seed_counts(tmp_path):
    path = measured(
        tmp_path,
        {"examples_per_second": 1.0},
        {},
        {"seeds": 3, "examples_per_second": 2.0},
        {"overrides": CHANGES, "examples_per_second": 3.0},
        {"protocol_hours": None, "batch": 64, "examples_per_second": 4.0},
        {"attention": "standard", "examples_per_second": 200.0},
        {"attention": "standard", "examples_per_second": 100.0, "commit": "b" * 40},
    )
    failed = {"task": "listops", "attention": "linear", "failed": True, "seeds": 1}
    training_rows.append(path, failed, StepRow)
    changed = frozenset(["model.remat=True", "model.dropout=0.0001"])
    standard = "listops", "standard", frozenset()
    expected = {NYSTROM: 320.0, ("listops", "nystrom", changed): 3.0, standard: 200.0}
    (found,) = speeds.read(path)
    assert (found.platform, found.examples_per_second) == (GPU, expected)
    assert [found.commits[each] for each in (NYSTROM, standard)] == ["aaaaaaa", "aaaaaaa"]


def test_speeds_of_a_task_are_of_one_commit(tmp_path):
    """That with most cases, then the latest."""
    standard, image = {"attention": "standard"}, {"task": "image"}
    old, new = ({"commit": letter * 40, "examples_per_second": 5.0} for letter in "bc")
    path = measured(tmp_path, {}, old, standard | old, standard, standard | new, image | new)
    (found,) = speeds.read(path)
    of_standard, of_image = (("listops", "standard", frozenset()), ("image", *NYSTROM[1:]))
    assert found.examples_per_second == {NYSTROM: 320.0, of_standard: 320.0, of_image: 5.0}
    assert set(found.commits.values()) == {"aaaaaaa", "ccccccc"}
    assert found.commits[of_image] == "ccccccc"
    (found,) = speeds.read(measured(tmp_path, old))
    assert found.examples_per_second[NYSTROM] == 5.0


def test_the_platform_of_most_cells_counts_then_the_latest(tmp_path):
    four, sizes = {"num_devices": 4}, (1, 2)
    others = (four | {"overrides": [f"model.attention.num_landmarks={n}"]} for n in sizes)
    path = measured(tmp_path, four, *others)
    path = measured(tmp_path, {}, {"attention": "standard"})
    assert speeds.of_table(speeds.read(path)).platform == GPU
    path = measured(tmp_path, four | {"attention": "standard"})
    assert speeds.of_table(speeds.read(path)).platform == GPU._replace(devices="4 x a GPU")


def test_a_file_without_cells_of_the_table_has_no_speeds_for_it(tmp_path):
    path = measured(tmp_path, {"overrides": ["model.remat=True"]})
    assert speeds.of_table(speeds.read(path)) is None
    assert speeds.of_table([]) is None


def test_the_platform_measured_last_comes_first(tmp_path):
    path = measured(tmp_path, {"device": "old"}, {"device": "new"})
    assert [each.platform.devices for each in speeds.read(path)] == ["new", "old"]


def test_a_file_without_such_a_speed_is_refused(tmp_path):
    with pytest.raises(UserError, match="no step with the protocol's batch and one seed was"):
        speeds.read(measured(tmp_path, {"seeds": 3}))
    with pytest.raises(UserError, match="no such file"):
        speeds.read(tmp_path / "none.jsonl")


def test_dots_of_the_table_have_the_speeds_measured(tmp_path):
    path = measured(tmp_path, {}, {"attention": "standard", "examples_per_second": 200.0})
    other = {"config_overrides": {"train.steps": 9}}
    rows = [
        *(make_row(attention=name) for name in ("nystrom", "standard", "linformer")),
        *(make_row(attention=name, **other) for name in ("nystrom", "standard")),
    ]
    table, rest = group(rows)
    found = panels(table, *speeds.read(path))
    assert {name: dot.speed for name, dot in found.by_task["listops"].items()} == {
        "standard": 200.0,
        "nystrom": 320.0,
    }
    ((of_table,), (of_rest,)), _ = figures([table, rest], [], speeds.read(path))
    assert of_table.caption.endswith(
        "speeds are of one seed, measured by benchmarks.train_step: a GPU, bfloat16, "
        "JAX 0.12.0. No dot for cells without a speed."
    )
    assert "all seeds of a program together" in of_rest.caption
    assert of_rest.caption.endswith("Speeds: a device, float32, programs of 3 seeds.")
    image = [{"task": "image", "attention": name} for name in ("nystrom", "standard")]
    path = measured(tmp_path, *(each | {"commit": "b" * 40} for each in image))
    table, rest = group([*rows, *(make_row(**each) for each in image)])
    ((of_table,), _), _ = figures([table, rest], [], speeds.read(path))
    commits = "; each task's at one of the commits aaaaaaa, bbbbbbb, with other code and days. No"
    assert f"JAX 0.12.0{commits}" in of_table.caption


def test_sweeps_have_the_speeds_measured_on_one_platform(tmp_path):
    """Of the platform measured last that has one for each point, else of the runs."""
    swept = ({"model.attention.num_landmarks": count} for count in (16, 32))
    rows = [make_row(0.3), *(make_row(0.2, config_overrides=values) for values in swept)]
    of_16, of_32 = ({"overrides": [f"model.attention.num_landmarks={n}"]} for n in (16, 32))
    path = measured(tmp_path, of_16 | {"examples_per_second": 500.0}, {})

    def figure(rows=rows):
        shown, _ = figures(group(rows), [], speeds.read(path))
        (found,) = [each for each in shown[-1] if "num_landmarks" in each.name]
        return found

    assert "Each speed is of a run of its own" in figure().caption
    measured(tmp_path, of_32 | {"examples_per_second": 400.0}, of_16 | {"device": "another"})
    caption = figure().caption
    assert "measured by benchmarks.train_step: a GPU, bfloat16, JAX 0.12.0." in caption
    assert "Each speed" not in caption
    shorter = [dataclasses.replace(row, data="differs (lengths 16 to 63)") for row in rows]
    assert "Each speed" in figure(shorter).caption
    drawn = figure().draw()
    pyplot.close(drawn)
    line = drawn.axes[1].lines[0]
    assert [line.get_xdata().tolist(), line.get_ydata().tolist()] == [
        [16, 32, 64],
        [500.0, 400.0, 320.0],
    ]


def test_the_command_takes_them(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    lines = [to_json(make_row(attention=name)) for name in ("nystrom", "standard")]
    rows.write_text("".join(f"{line}\n" for line in lines))
    path = measured(tmp_path, {}, {"attention": "standard"})
    report.main([str(rows), f"--speeds={path}", "--format=html"])
    page = capsys.readouterr().out
    assert "measured by benchmarks.train_step: a GPU" in page
    assert f"Rendered from {rows}, {path}." in page
    with pytest.raises(UserError, match="--speeds is for figures"):
        report.main([str(rows), f"--speeds={path}"])
