"""Which rows of several files count."""

import pytest

from lra import records
from lra.report.__main__ import main
from lra.report.reading import read
from tests.lra.row_factory import HALF, failed_row, make_row


def test_files_are_joined_and_the_first_counts(tmp_path, capsys):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    records.append(one, [make_row(0.3), failed_row(seed=1)])
    records.append(two, [make_row(0.4), make_row(0.5, seed=1)])
    main([str(one), str(two)])
    said = capsys.readouterr()
    assert "40.00 ± 14.14 (2)" in said.out
    left_out = "1 row left out: a row before it is of the same run and seed, with another result"
    assert said.err == f"{two}: {left_out}\n"
    assert f"from {one}, {two} ({left_out})." in said.out.replace("\\", "")
    two.write_bytes(one.read_bytes() + two.read_bytes())
    main([str(two)])
    said = capsys.readouterr()
    assert "40.00 ± 14.14 (2)" in said.out
    assert said.err == f"{two}: {left_out}\n"
    records.append(three := tmp_path / "three.jsonl", [make_row(0.3, wall_seconds=7.0)])
    main([str(one), str(three)])
    assert not capsys.readouterr().err


def test_a_result_on_any_bytes_of_the_data_comes_before_a_failure(tmp_path):
    """A run that failed may not have come as far as its data."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    records.append(one, [failed_row()])
    records.append(two, [make_row(data_sha256=64 * "a")])
    assert [row.status for row in read([str(one), str(two)]).accuracies] == ["ok"]


def test_a_number_format_among_the_overrides_or_not_is_the_same_run(tmp_path, capsys):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    records.append(one, [make_row(0.3, dtype="bfloat16")])
    records.append(two, [make_row(0.4, **HALF), make_row(0.5, seed=1, **HALF)])
    main([str(one), str(two)])
    said = capsys.readouterr()
    assert "| 40.00 ± 14.14 (2) |" in said.out
    assert said.err.startswith(f"{two}: 1 row left out: a row before it is of the same run")


STEPS = {"config_overrides": {"train.steps": 10}}


@pytest.mark.parametrize(
    "rows",
    [
        # Data of one result each: which are those of the table.
        [make_row(0.5, data="mine"), make_row(0.4, data="yours")],
        # Which of two cells is the first, and has the seed that failed.
        [make_row(0.5), make_row(0.4, seed=1, steps=10), failed_row(seed=2)],
        # Which data and which devices the summary names first.
        [make_row(0.5, data="official", device="b"), make_row(0.4, device="a")],
        # Which of three attentions is the best.
        [make_row(attention=name, **STEPS) for name in ("standard", "nystrom", "linear")],
        # Which option a line names first.
        [
            make_row(config_overrides={f"model.attention.{option}": 9})
            for option in ("pinv_iterations", "num_landmarks")
        ],
    ],
)
def test_the_order_of_rows_does_not_matter(rows, tmp_path, capsys):
    path, texts = tmp_path / "rows.jsonl", []
    for ordered in (rows, rows[::-1]):
        path.unlink(missing_ok=True)
        records.append(path, ordered)
        main([str(path)])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"data_sha256": 64 * "b"}, "30.00 (1) [data aaaaaaaa] / 40.00 (1) [data bbbbbbbb]"),
        # Said by the row alone, not by the overrides of its run.
        ({"dtype": "bfloat16"}, "30.00 (1)"),
    ],
)
def test_results_on_other_data_or_in_another_number_format_are_all_shown(
    other, place, tmp_path, capsys
):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    known = {"data_sha256": 64 * "a"}
    records.append(one, [make_row(0.3, **known)])
    records.append(two, [make_row(0.4, **known | other)])
    main([str(one), str(two)])
    said = capsys.readouterr()
    assert f"| {place} |" in said.out
    assert "40.00 (1)" in said.out
    assert not said.err
