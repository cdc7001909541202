"""The page of training steps: of rows, strict about them, committed as it is rendered."""

import json
import pathlib

import pytest

from benchmarks import first_steps, torch_train_step, train_step, training_page
from lra import training_rows
from lra.errors import UserError
from lra.training_rows import PeerRow, StepRow

COMMITTED = pathlib.Path(__file__).resolve().parents[2] / "results" / "training"
STEP = {
    "task": "listops",
    "attention": "nystrom",
    "seeds": 1,
    "dtype": "float32",
    "batch": 32,
    "overrides": [],
    "device": "a device",
    "num_devices": 1,
    "commit": "0123456789",
    "versions": {"jax": "0.1"},
    "deterministic": False,
    "matmul_precision": "float32",
    "compile_seconds": 2.0,
    "eval_compile_seconds": 1.0,
    "other_compile_seconds": 0.5,
    "steps_per_second": 4.0,
    "examples_per_second": 128.0,
    "eval_examples_per_second": 300.0,
    "peak_memory_mb": 500.0,
    "real_flops_per_step": 10**9,
    "peak_flops_per_second": 1e10,
    "protocol_hours": 1.5,
    "whole_hours": 1.55,
}
SIDE = {"milliseconds": 10.0, "fastest": 9.0, "params": 1000, "peak_memory_mb": 100.0}
PEER = {
    "task": "listops",
    "attention": "standard",
    "length": 2000,
    "batch": 4,
    "threads": 2,
    "steps": 5,
    "device": "a device",
    "commit": "0123456789",
    "versions": {"jax": "0.1", "torch": "2.0"},
    "ours": SIDE,
    "torch": SIDE | {"milliseconds": 40.0},
    "ratio": 4.0,
    "fastest_ratio": 3.0,
}
FAILED = {"task": "text", "attention": "reformer", "seeds": 1, "failed": True, "why": "memory"}


def write(folder, *, steps=(), peers=()):
    files = ((training_page.STEPS, steps, StepRow), (training_page.PEERS, peers, PeerRow))
    for name, rows, kind in files:
        for row in rows:
            training_rows.append(folder / name, row, kind)


def lines_of(folder, *words):
    """Cells of the lines of the page's tables that have all `words` as cells."""
    lines = training_page.page(folder).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [line for line in cells if set(words) <= set(line)]


def test_the_committed_page_is_that_of_the_committed_rows():
    rendered = training_page.page(COMMITTED)
    assert (COMMITTED / training_page.PAGE).read_text() == rendered, (
        "python -m benchmarks.training_page results/training"
    )


def test_the_newest_steps_are_first(tmp_path):
    write(tmp_path, steps=[STEP, STEP | {"commit": "9876543210"}, STEP | {"dtype": "bfloat16"}])
    captions = [line for line in training_page.page(tmp_path).splitlines() if ", commit " in line]
    titles = [line for line in training_page.page(tmp_path).splitlines() if line[:2] == "##"]
    assert titles == ["## a device, bfloat16", "## a device, float32", "## a device, float32"]
    assert ["9876543" in caption for caption in captions] == [False, True, False]


def test_the_page_says_which_compilation_had_company(tmp_path):
    write(tmp_path, steps=[STEP, STEP | {"attention": "nystrom", "compiled_beside": 3}])
    assert "Compiled beside up to 3 other cases, timed alone." in training_page.page(tmp_path)
    write(tmp_path, steps=[STEP | {"attention": "nystrom"}])
    assert "Compiled beside" not in training_page.page(tmp_path)


def test_a_failure_is_over_with_a_later_success_of_the_same_case(tmp_path):
    case = {"batch": 32, "dtype": "float32", "overrides": []}
    failed = {"task": "listops", "attention": "nystrom", "seeds": 1, "failed": True}
    write(tmp_path, steps=[failed, failed | case, failed | case | {"batch": 4096}, STEP])
    text = training_page.page(tmp_path)
    (line,) = [line for line in text.splitlines() if line.startswith("Could not be measured")]
    assert line == ("Could not be measured: listops, nystrom, batch 4096, float32 (train_step).")


def test_what_a_row_need_not_have_is_a_dash(tmp_path):
    missing = ("real_flops_per_step", "protocol_hours", "whole_hours")
    write(tmp_path, steps=[{name: value for name, value in STEP.items() if name not in missing}])
    (line,) = lines_of(tmp_path, "listops", "nystrom")
    assert line.count("–") == 2


def test_the_page_shows_steps_peers_and_what_failed(tmp_path):
    reformer = PEER | {"attention": "reformer", "ratio": 1.0, "fastest_ratio": 2.0}
    reformer["versions"] = PEER["versions"] | {"transformers": "5"}
    write(tmp_path, steps=[STEP, FAILED], peers=[PEER, reformer])
    assert training_page.main([str(tmp_path)]) == 0
    text = (tmp_path / training_page.PAGE).read_text()
    assert lines_of(tmp_path, "listops", "nystrom", "40.0%")
    assert "1 seed: 1 of 25 cells of the table, 1.55 h in all" in text
    # One table of both peers, though only one of them needs transformers.
    assert text.count("## ") == 2
    assert "jax 0.1, torch 2.0, transformers 5; batch 4" in text
    assert "geometric mean 2.00, smallest 1.00." in text
    assert text.endswith("Could not be measured: text, reformer (train_step).\n")


def test_of_rows_of_a_case_the_latest_is_shown(tmp_path):
    write(tmp_path, steps=[STEP, STEP | {"seeds": 3}, STEP | {"steps_per_second": 8.0}])
    assert [line[6] for line in lines_of(tmp_path, "nystrom")] == ["8", "4"]


def test_steps_of_other_models_are_lines_of_their_own_and_no_cells(tmp_path):
    changed = {"overrides": ["model.attention.num_landmarks=16", "model.dropout=0.2"]}
    changed["whole_hours"] = 9.0
    write(tmp_path, steps=[STEP, STEP | changed, STEP | changed | {"steps_per_second": 8.0}])
    assert lines_of(tmp_path, "nystrom, num_landmarks=16, dropout=0.2")[0][6] == "8"
    assert len(lines_of(tmp_path, "listops")) == 2
    assert "1 of 25 cells of the table, 1.55 h in all" in training_page.page(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"device": "another"},
        {"dtype": "bfloat16"},
        {"commit": "9876543210"},
        {"versions": {"jax": "0.2"}},
        {"num_devices": 2},
    ],
    ids=lambda value: next(iter(value)),
)
def test_steps_under_other_conditions_have_a_table_of_their_own(tmp_path, other):
    write(tmp_path, steps=[STEP, STEP | other])
    titles = [line for line in training_page.page(tmp_path).splitlines() if line[:3] == "## "]
    assert len(titles) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1}, "task, attention, seeds"),
        ([1], "not a row of a training step: no object"),
        (STEP | {"steps_per_second": 0.0}, "steps_per_second cannot be 0"),
        (STEP | {"eval_examples_per_second": 0.0}, "eval_examples_per_second cannot be 0"),
        (STEP | {"steps_per_second": "4"}, "steps_per_second cannot be '4'"),
        (STEP | {"fits": True}, "unknown field 'fits'"),
        (STEP | {"overrides": [[]]}, "overrides and versions are texts"),
        (STEP | {"versions": {"jax": {"a": 1}}}, "overrides and versions are texts"),
        (FAILED | {"task": 3}, "task cannot be 3"),
        (FAILED | {"seeds": "3"}, "seeds cannot be '3'"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path, row, message):
    path = tmp_path / training_page.STEPS
    path.write_text(f"{json.dumps(STEP)}\n{json.dumps(row)}\n")
    with pytest.raises(UserError, match=f"line 2: .*{message}"):
        training_page.main([str(tmp_path)])
    assert not (tmp_path / training_page.PAGE).exists()


def test_both_sides_of_a_peer_are_checked(tmp_path):
    with pytest.raises(UserError, match="ours: fastest, params, peak_memory_mb missing"):
        write(tmp_path, peers=[PEER | {"ours": {"milliseconds": 1.0}}])


def test_a_row_that_could_not_be_read_is_not_written(tmp_path):
    for wrong in ({"compile_seconds": -0.4}, {"seeds": 0}, {"failed": False}):
        with pytest.raises(UserError, match="not a row of a training step"):
            write(tmp_path, steps=[STEP | wrong])
    write(tmp_path, steps=[STEP])
    assert lines_of(tmp_path, "listops", "nystrom")


def test_a_flipped_digit_is_noticed(tmp_path):
    write(tmp_path, steps=[STEP])
    path = tmp_path / training_page.STEPS
    path.write_text(path.read_text().replace('"batch": 32', '"batch": 33'))
    with pytest.raises(UserError, match="line 1: was edited or damaged"):
        training_page.page(tmp_path)


def test_a_folder_without_rows_is_said(tmp_path):
    with pytest.raises(UserError, match=r"no rows in .*train_step.jsonl or"):
        training_page.main([str(tmp_path)])


def test_a_case_that_failed_and_was_measured_later_has_not_failed(tmp_path):
    again = {name: FAILED[name] for name in ("task", "attention", "seeds")}
    write(tmp_path, steps=[FAILED, FAILED | {"seeds": 3}, STEP | again])
    failed = training_page.page(tmp_path).splitlines()[-1]
    assert failed == "Could not be measured: text, reformer, 3 seeds (train_step)."


def test_a_page_of_failures_alone_names_them(tmp_path):
    failed = {name: FAILED[name] for name in ("task", "attention", "failed")}
    write(tmp_path, steps=[FAILED], peers=[failed])
    named = "Could not be measured: text, reformer (train_step); text, reformer (torch_train_step)."
    assert training_page.page(tmp_path).splitlines()[-1] == named


def test_deterministic_steps_have_a_table_and_hours_of_their_own(tmp_path):
    write(tmp_path, steps=[STEP, STEP | {"deterministic": True, "whole_hours": 2.0}])
    text = training_page.page(tmp_path)
    assert "1.55 h in all" in text
    assert "2 h in all" in text


def test_a_commit_with_changes_is_told(tmp_path):
    write(tmp_path, steps=[STEP | {"commit": "0123456789" * 4 + "-dirty"}])
    assert "commit 0123456-dirty, jax 0.1" in training_page.page(tmp_path)


@pytest.mark.parametrize(
    ("command", "flags"), [(train_step, []), (torch_train_step, ["--threads=1"]), (first_steps, [])]
)
def test_a_file_that_takes_no_rows_is_told_before_anything_is_measured(
    command, flags, tmp_path, monkeypatch
):
    monkeypatch.setattr(torch_train_step, "_has_peer", lambda attention: True)
    out = tmp_path / "rows.jsonl"
    out.write_text("no row\n{}\n")
    with pytest.raises(UserError, match="line 1: not JSON"):
        command.main([*flags, f"--out={out}"])
