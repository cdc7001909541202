"""Speeds of training steps that were measured apart: which count, and what is drawn of them."""

import pytest

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
    assert speeds.read(path).examples_per_second == {("listops", "nystrom"): 320.0}
    assert speeds.read(measured(tmp_path, slow)).examples_per_second == {
        ("listops", "nystrom"): 100.0
    }


def test_the_last_speed_of_one_seed_of_the_protocol_counts(tmp_path):
    path = measured(
        tmp_path,
        {"examples_per_second": 1.0},
        {},
        {"seeds": 3, "examples_per_second": 2.0},
        {"overrides": ["model.remat=True"], "examples_per_second": 3.0},
        {"protocol_hours": None, "batch": 64, "examples_per_second": 4.0},
        {"attention": "standard", "examples_per_second": 200.0},
    )
    failed = {"task": "listops", "attention": "linear", "failed": True, "seeds": 1}
    training_rows.append(path, failed, StepRow)
    expected = {("listops", "nystrom"): 320.0, ("listops", "standard"): 200.0}
    assert speeds.read(path) == (GPU, expected)


def test_the_platform_of_most_cells_counts_then_the_latest(tmp_path):
    path = measured(tmp_path, {"num_devices": 4}, {}, {"attention": "standard"})
    assert speeds.read(path).platform == GPU
    path = measured(tmp_path, {"num_devices": 4, "attention": "standard"})
    assert speeds.read(path).platform == GPU._replace(devices="4 x a GPU")


def test_a_file_without_such_a_speed_is_refused(tmp_path):
    with pytest.raises(UserError, match="no step of the protocol with one seed was measured"):
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
    found = panels(table, speeds.read(path))
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
    assert of_rest.caption.endswith("Speeds: a device, float32.")


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
