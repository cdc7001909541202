"""Files of curves: written from folders of runs, drawn without them."""

import json
import pathlib
import re

import pytest

from lra import records
from lra.errors import UserError
from lra.report import curve_files, curves
from lra.report.figures import figures
from tests.lra.report.drawn_texts import draw, plain_texts
from tests.lra.row_factory import diverged_row, make_row
from tests.lra.run_folder import write_run

COMMITTED = sorted((pathlib.Path(__file__).resolve().parents[3] / "results/curves").glob("*.jsonl"))

BEST = {"best_step": 20, "val_accuracy": 0.5}  # of seed 0 in the metrics of `write_run`


@pytest.fixture
def run(tmp_path):
    """The folder of a complete run: of its two seeds, the second diverged."""
    folder = write_run(tmp_path / "run", overrides=["model.attention.num_landmarks=32"])
    rows = [make_row(seed=0, **BEST), diverged_row(seed=1)]
    records.append(folder / "rows.jsonl", rows)
    return folder


@pytest.fixture
def file(run, tmp_path, capsys):
    """What the command prints of that run, as a file."""
    curve_files.main([str(run)])
    path = tmp_path / "curves.jsonl"
    path.write_text(capsys.readouterr().out)
    return path


def test_a_line_has_the_validations_of_a_seed_and_the_means_between_them(run, file):
    row = json.loads((run / "rows.jsonl").read_text().splitlines()[0])
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {
            "task": "listops",
            "attention": "nystrom",
            "config_overrides": {"model.attention.num_landmarks": 32},
            "seed": 0,
            "data": "generated",
            "row_sha256": row["sha256"],
            "step": [10, 20],
            "val_accuracy": [0.2, 0.5],
            "val_loss": [2.0, 2.0],
            "train_loss": [2.0, 2.0],
            "train_accuracy": [0.5, 0.5],
        }
    ]


def test_means_weigh_each_step_alike():
    entries = [
        {"kind": "train", "step": step, "loss": [loss], "accuracy": [0.0]}
        for step, loss in ((3, 1.0), (4, 5.0))
    ]
    evaluation = {"kind": "eval", "split": "validation", "step": 4, "loss": [1.0]}
    entries += [evaluation | {"accuracy": [0.1]}, evaluation | {"split": "test", "accuracy": [9.0]}]
    assert curve_files._series(entries, 0)["train_loss"] == [2.0]


def test_a_file_is_drawn_as_its_run_is(file):
    ((found,),) = curves.histories([str(file)]).values()
    assert (found.title, found.attention, found.seeds) == ("Nyströmformer", "nystrom", 1)
    assert found.accuracy == ([10, 20], [0.2, 0.5], [[0.2], [0.5]])
    assert found.loss == ([5.5, 15.5], [2.0, 2.0], [[2.0], [2.0]])
    (figure,) = figures([], [str(file)])[1]
    assert figure.caption == (
        "ListOps: training loss and validation accuracy. A point is a mean over at least 1/80 of "
        "the steps (losses) or 1/200 of the steps (evaluations)."
    )
    assert "training loss" in plain_texts(draw(figure))


def test_lines_without_losses_show_accuracies_alone(file):
    line = json.loads(file.read_text())
    del line["train_loss"], line["train_accuracy"]
    file.write_text(json.dumps(line))
    (figure,) = figures([], [str(file)])[1]
    assert figure.caption == (
        "ListOps: validation accuracy. A point is a mean over at least 1/200 of the steps "
        "(evaluations)."
    )
    drawn = draw(figure)
    assert len(drawn.axes) == 1
    assert "training loss" not in plain_texts(drawn)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        ({"step": [10]}, "line 1: not increasing steps with a possible number"),
        ({"step": [], "val_accuracy": []}, "line 1: not increasing steps with a possible number"),
        ({"train_loss": [1.0]}, "line 1: not increasing steps with a possible number"),
        ({"val_accuracy": [0.1, None]}, "line 1: not increasing steps with a possible number"),
        ({"step": [20, 10]}, "line 1: not increasing steps"),
        ({"step": [0, 10]}, "line 1: not increasing steps"),
        ({"step": [10, 10**300]}, "line 1: not increasing steps"),
        ({"val_accuracy": [0.2, float("nan")]}, "line 1: not increasing steps"),
        ({"val_accuracy": [0.2, 40]}, "line 1: not increasing steps"),
        ({"val_accuracy": [False, True]}, "line 1: not increasing steps"),
        ({"train_loss": [2.0, float("inf")]}, "line 1: not increasing steps"),
        ({"data": 3}, "line 1: not increasing steps"),
        ({"step": 3}, "line 1: no learning curve"),
        ({"attention": "nystorm"}, "line 1: no learning curve"),
        ({"task": "../mine"}, "line 1: no learning curve .unknown task '../mine'"),
        ({"config_overrides": {"train.stesp": 3}}, "did you mean 'train.steps'"),
        ({"config_overrides": 3}, "line 1: no learning curve"),
    ],
)
def test_a_line_that_is_no_curve_is_named(file, damage, cause):
    file.write_text(json.dumps(json.loads(file.read_text()) | damage))
    with pytest.raises(UserError, match=cause):
        curves.histories([str(file)])


def test_a_line_that_occurs_twice_counts_once(file):
    file.write_text(2 * file.read_text() + "\n")
    ((found,),) = curves.histories([str(file)]).values()
    assert found.title == "Nyströmformer"


def test_a_byte_order_mark_is_skipped(file):
    before = curve_files.read(file)
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert curve_files.read(file) == before


def test_curves_on_other_data_are_marked(run, tmp_path):
    (run / "rows.jsonl").unlink()
    records.append(
        run / "rows.jsonl", [make_row(seed=0, data="AAN (mine)", **BEST), diverged_row(seed=1)]
    )
    path = tmp_path / "other.jsonl"
    (line,) = curve_files.lines_of(str(run))
    path.write_text(json.dumps(line))
    for place in (run, path):
        ((found,),) = curves.histories([str(place)]).values()
        assert found.title == "Nyströmformer†"
        (figure,) = figures([], [str(place)])[1]
        assert figure.caption.endswith(" † On other data: AAN (mine).")


@pytest.mark.parametrize(("data", "mark"), [("AAN (mine)", "†"), ("official", ""), (None, "")])
def test_curves_on_other_data_are_marked_before_the_run_has_ended(run, data, mark):
    (run / "rows.jsonl").unlink()
    facts = {"data_dir": "data", "data": data, "data_sha256": "0" * 64, "commit": "a" * 40}
    (run / "run.json").write_text(json.dumps(facts | {"versions": {}}))
    ((found,),) = curves.histories([str(run)]).values()
    assert found.title == f"Nyströmformer{mark}"


def test_curves_of_a_run_on_several_data_are_told_apart(file):
    line = json.loads(file.read_text())
    marks = ("generated", "official", "mine", None)
    file.write_text("\n".join(json.dumps(line | {"data": mark}) for mark in marks))
    (found,) = curves.histories([str(file)]).values()
    titles = ["data=generated", "data=official", "data=mine†", "data=unknown"]
    assert [run.title for run in found] == [f"Nyströmformer, num_landmarks=32, {t}" for t in titles]


def test_a_run_that_lacks_the_row_of_a_seed_has_no_line(run):
    (run / "rows.jsonl").unlink()
    records.append(run / "rows.jsonl", [make_row(seed=0)])
    with pytest.raises(UserError, match=r"rows\.jsonl does not have a row of each seed of its run"):
        curve_files.lines_of(str(run))


def test_rows_are_left_as_they_are(run, file):
    """Their writer may be at work: a last line is not taken away, an empty one is no row."""
    rows = run / "rows.jsonl"
    content = rows.read_text() + '\n{"task": "li'
    rows.write_text(content)
    assert [json.dumps(line) for line in curve_files.lines_of(str(run))] == [file.read_text()[:-1]]
    assert rows.read_text() == content
    rows.write_text(
        "".join(re.sub(', "sha256.*', "}\n", line) for line in content.splitlines()[:2])
    )
    assert curve_files.lines_of(str(run))[0]["val_accuracy"] == [0.2, 0.5]


@pytest.mark.parametrize(
    ("value", "by"), [('"step": 20, "accuracy": [0.5', "?"), ("0.5, null", "0.4, 1")]
)
def test_metrics_without_the_best_validation_are_refused(run, value, by):
    metrics = run / "metrics.jsonl"
    assert value in metrics.read_text()
    metrics.write_text(metrics.read_text().replace(value, by))
    with pytest.raises(
        UserError, match=r"metrics\.jsonl lacks the validation of seed 0 at step 20"
    ):
        curve_files.lines_of(str(run))


def test_a_call_at_step_0_has_no_part_in_the_means(run, file):
    metrics = run / "metrics.jsonl"
    call = '{"kind": "train", "step": 0, "loss": [9.0, 9.0], "accuracy": [0.0, 0.0]}\n'
    metrics.write_text(call + metrics.read_text())
    assert [json.dumps(line) for line in curve_files.lines_of(str(run))] == [file.read_text()[:-1]]


def test_a_run_without_its_end_has_no_line(tmp_path):
    folder = write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"run holds no complete run; train\.py goes on with it"):
        curve_files.lines_of(str(folder))


def test_text_that_is_no_json_is_no_curve(file):
    file.write_bytes(file.read_bytes() + b"\xff\n")
    with pytest.raises(UserError, match="line 2: no learning curve"):
        curves.histories([str(file)])


def test_damaged_rows_are_refused(run):
    rows = run / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"test_accuracy": 0.5', '"test_accuracy": 0.6'))
    with pytest.raises(UserError, match=r"rows\.jsonl, line 1: was edited or damaged"):
        curve_files.lines_of(str(run))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_committed_curves_can_be_drawn_and_end_where_their_rows_do(path):
    rows = {}
    for name in ("accuracy", "sweeps"):
        for text in (path.parents[1] / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(text)
            rows[row["sha256"]] = row
    for line in map(json.loads, path.read_text().splitlines()):
        row = rows[line["row_sha256"]]
        assert (
            (line["task"], line["seed"]) == (row["task"], row["seed"]) == (path.stem, row["seed"])
        )
        best = line["val_accuracy"][line["step"].index(row["best_step"])]
        assert best == max(line["val_accuracy"]) == pytest.approx(row["val_accuracy"], abs=1e-5)
    drawn = [run for runs in curves.histories([str(path)]).values() for run in runs]
    assert sum(run.seeds for run in drawn) == len(curve_files.read(path))


def test_a_line_of_metrics_with_too_few_seeds_is_left_out(run):
    expected = curve_files.lines_of(str(run))
    damaged = {"kind": "eval", "split": "validation", "step": 15, "loss": [1.0], "accuracy": [0.9]}
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write("\n" + json.dumps(damaged) + "\n")
    assert curve_files.lines_of(str(run)) == expected


def test_the_curve_of_a_seed_is_found_by_its_place_in_the_run(tmp_path):
    folder = write_run(tmp_path / "run", overrides=["seeds=(7, 5)"])
    records.append(folder / "rows.jsonl", [diverged_row(seed=5), make_row(seed=7, **BEST)])
    (line,) = curve_files.lines_of(str(folder))
    assert (line["seed"], line["val_accuracy"]) == (7, [0.2, 0.5])
