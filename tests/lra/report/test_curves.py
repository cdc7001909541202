"""Curves of training, from the folders of runs."""

import json

import pytest

from lra.errors import UserError
from lra.published import TABLE_TASKS
from lra.report import curves
from lra.report.curve_points import Curve, curve
from lra.report.curves import History
from lra.report.drawing import draw_histories, run_styles
from lra.report.figures import figures
from lra.report.styles import STYLES, shade
from lra.settings import load_config
from tests.lra.report.drawn_texts import draw, plain_texts
from tests.lra.run_folder import write_run


def test_histories_are_means_and_seeds(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "compile_cache").mkdir()
    ((name, (run,)),) = curves.histories([tmp_path / "compile_cache", tmp_path / "run"]).items()
    assert (name, run.attention, run.title) == (("listops",), "nystrom", "Nyströmformer")
    assert run.loss.mean == [1.5] * 20
    assert run.loss.seeds == [[2.0, 1.0]] * 20
    assert run.accuracy == ([10, 20], [pytest.approx(0.3), 0.5], [[0.2, 0.4], [0.5]])


def test_histories_are_called_by_what_tells_them_apart(tmp_path):
    for name, rate in (("one", 1e-4), ("two", 2e-4)):
        changed = [f"train.learning_rate={rate}", "model.attention.num_landmarks=32"]
        write_run(tmp_path / name, overrides=[*changed, "train.steps=20"])
    ((one, two),) = curves.histories([tmp_path / "one", tmp_path / "two"]).values()
    assert one.title == "Nyströmformer, num_landmarks=32, learning_rate=0.0001"
    assert two.title == "Nyströmformer, num_landmarks=32, learning_rate=0.0002"


def test_runs_of_one_attention_each_are_called_by_it_alone(tmp_path):
    for steps, name in ((20, "standard"), (30, "nystrom")):
        write_run(tmp_path / name, overrides=[f"train.steps={steps}"], attention=name)
    (runs,) = curves.histories([tmp_path / "nystrom", tmp_path / "standard"]).values()
    assert [run.title for run in runs] == ["Standard", "Nyströmformer"]


def test_keys_that_end_alike_are_named_in_full(tmp_path):
    for rate in ("0.1", "0.2"):
        changed = [f"model.dropout={rate}", "model.attention.dropout=0.3", "train.steps=30"]
        write_run(tmp_path / rate, overrides=changed, attention="standard")
    (runs,) = curves.histories([tmp_path / "0.1", tmp_path / "0.2"]).values()
    assert [run.title for run in runs] == [
        f"Standard, model.attention.dropout=0.3, model.dropout={rate}" for rate in (0.1, 0.2)
    ]


def test_runs_of_other_seeds_have_a_curve_together(tmp_path):
    roots = [
        write_run(tmp_path / name, overrides=[f"seeds={seeds}"])
        for name, seeds in (("one", (4, 1)), ("two", (0, 2)))
    ]
    metrics = tmp_path / "two" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("[0.2, 0.4]", "[0.6, 0.8]"))
    ((run,),) = curves.histories(roots).values()
    assert (run.title, run.seeds, run.ends) == ("Nyströmformer", 4, ((20, 2),))
    assert run.accuracy == ([10, 20], [pytest.approx(0.5), 0.5], [[0.6, 0.8, 0.2, 0.4], [0.5, 0.5]])
    assert set(run.loss.mean) == {1.5}


def test_losses_of_calls_of_other_lengths_are_brought_to_the_evaluations(tmp_path):
    roots = [
        write_run(tmp_path / name, overrides=[f"seeds={seeds}"])
        for name, seeds in (("one", (0, 1)), ("two", (2, 3)))
    ]
    metrics = tmp_path / "two" / "metrics.jsonl"
    calls = ((4, [5.0, 3.0]), (10, [6.0, 3.0]), (11, [7.0, 2.0]), (20, [4.0]))
    entries = [json.loads(line) for line in metrics.read_text().splitlines()[6:-1]]
    entries = [entry for entry in entries if entry["kind"] == "eval"]
    entries += [
        {"kind": "train", "step": step, "loss": loss, "accuracy": loss} for step, loss in calls
    ]
    metrics.write_text("\n".join(map(json.dumps, entries)))
    ((run,),) = curves.histories(roots).values()
    assert run.loss.steps == [5.5, 15.5]
    assert run.loss.mean == pytest.approx([(2 + 1 + 5.6 + 3) / 4, (2 + 1 + 4) / 3])
    assert run.loss.seeds == [[2, 1, pytest.approx(5.6), 3], [2, 1, 4]]


@pytest.mark.parametrize("lacking", ["losses", "an evaluation", "losses before an evaluation"])
def test_runs_that_lack_what_others_have_are_told_apart(tmp_path, lacking):
    for name, seeds in (("one", "(0,)"), ("two", "(1, 2)")):
        write_run(tmp_path / name, overrides=[f"seeds={seeds}"])
    metrics = tmp_path / "two" / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    if lacking == "an evaluation":
        lines = [line for line in lines if not ('"eval"' in line and '"step": 10' in line)]
    else:
        call = {"kind": "train", "step": 10, "loss": [2.0, 1.0], "accuracy": [0.5, 0.5]}
        lines = [line for line in lines if '"train"' not in line]
        lines += [json.dumps(call)] * (lacking == "losses before an evaluation")
    metrics.write_text("\n".join(lines))
    ((one, two),) = curves.histories([tmp_path / "one", tmp_path / "two"]).values()
    assert (one.title, two.title) == ("Nyströmformer, seed 0", "Nyströmformer, seeds 1 2")


def test_a_seed_counts_once_in_a_mean(tmp_path):
    for name, seeds in (("one", "(0, 1)"), ("two", "(1, 2)")):
        write_run(tmp_path / name, overrides=[f"seeds={seeds}"])
    ((one, two),) = curves.histories([tmp_path / "one", tmp_path / "two"]).values()
    assert (one.title, two.title) == ("Nyströmformer, seeds 0 1", "Nyströmformer, seeds 1 2")


def test_many_curves_have_a_figure_for_each_attention(tmp_path):
    settings = {"nystrom": ("num_landmarks", range(8, 64, 8)), "linformer": ("proj_dim", (8, 16))}
    roots = [
        write_run(tmp_path / f"{name}{value}", attention=name, overrides=[change])
        for name, (option, values) in settings.items()
        for value in values
        for change in [f"model.attention.{option}={value}"]
    ]
    one_more = write_run(
        tmp_path / "performer", attention="performer", overrides=["model.attention.num_features=8"]
    )
    for few in (roots[:7], roots[1:]):
        assert [figure.name for figure in figures([], few)[1]] == ["curves-listops"]
    of_linformer, of_nystrom = figures([], roots)[1]
    assert of_linformer.name == "curves-listops-linformer"
    assert of_nystrom.name == "curves-listops-nystrom"
    assert of_linformer.caption.startswith("ListOps, Linformer: training loss and")
    found = curves.histories(roots)
    assert [run.title for run in found["listops", "linformer"]] == [
        f"Linformer, proj_dim={value}" for value in (8, 16)
    ]
    assert len(found["listops", "nystrom"]) == 7
    (alone,) = curves.histories([*roots, one_more])["listops", "performer"]
    assert alone.title == "Performer, num_features=8"


def test_histories_of_the_same_runs_are_told_apart_by_their_folders(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name)
    ((one, two),) = curves.histories([tmp_path / "one", tmp_path / "two"]).values()
    assert one.title.endswith(f", {tmp_path / 'one'}")
    assert two.title.endswith(f", {tmp_path / 'two'}")


def test_runs_of_one_attention_look_different():
    nothing = Curve([], [], [])
    names = ("performer", "performer", "nystrom", "performer")
    looks = run_styles([History(name, name, nothing, nothing) for name in names], STYLES)
    own = STYLES["performer"]
    assert looks == [own, shade(own, 1), STYLES["nystrom"], shade(own, 2)]
    assert len(set(looks)) == 4


def test_histories_are_in_the_order_of_values(tmp_path):
    for landmarks in (128, 16, 64, 256, 32):
        changed = [f"model.attention.num_landmarks={landmarks}"]
        write_run(tmp_path / str(landmarks), overrides=changed)
    (runs,) = curves.histories(sorted(tmp_path.iterdir())).values()
    assert [run.title for run in runs] == [
        f"Nyströmformer, num_landmarks={landmarks}" for landmarks in (16, 32, 64, 128, 256)
    ]


def test_the_order_of_folders_does_not_matter(tmp_path):
    options = ("num_landmarks", "pinv_iterations")
    roots = [
        write_run(tmp_path / name, overrides=[f"model.attention.{name}=8"]) for name in options
    ]
    assert curves.histories(roots) == curves.histories(roots[::-1])


def test_the_caption_says_from_where_on_fewer_seeds_go_on(tmp_path):
    run = write_run(tmp_path / "run")
    _, (figure,) = figures([], [str(run)])
    assert figure.caption == (
        "ListOps: training loss and validation accuracy; thick lines are means over the seeds "
        "that have not diverged, thin lines are those seeds. A point is a mean over at least 1/80 "
        "of the steps (losses) or 1/200 of the steps (evaluations). "
        "Nyströmformer: 1 of 2 seeds from step 20 on."
    )
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("[0.5, null]", "[0.5, 0.5]"))
    _, (figure,) = figures([], [str(run)])
    assert figure.caption.endswith("(evaluations).")


def test_the_caption_says_of_how_many_runs_no_losses_are_kept(tmp_path):
    run, line = str(write_run(tmp_path / "run")), {"step": [1, 2], "val_accuracy": [0.1, 0.2]}
    file, name = tmp_path / "curves.jsonl", {"task": "listops", "attention": "linear", "seed": 0}
    file.write_text(json.dumps(name | {"config_overrides": {}} | line))
    said = {}
    for places in ([run], [run, str(file)], [str(file)]):
        _, (figure,) = figures([], places)
        said[len(places), places[0] == run] = "losses are kept" in figure.caption
        if len(places) == 2:
            assert figure.caption.endswith(" No losses are kept of 1 of the 2 lines.")
    assert said == {(1, True): False, (2, True): True, (1, False): False}


def test_curves_say_whether_they_are_of_the_test_set(tmp_path):
    official = str(write_run(tmp_path / "official", task="text"))
    held_out = str(write_run(tmp_path / "held-out", task="text", overrides=["data.holdout=0.1"]))
    said = "is the test set, as LRA has it."
    for runs, ending, label in (
        ([official], f" The validation set {said}", "validation = test accuracy (%)"),
        ([held_out], "from step 20 on.", "validation accuracy (%)"),
        (
            [official, held_out],
            f" The validation set of Nyströmformer, holdout=0.0 {said}",
            "validation accuracy (%)",
        ),
    ):
        _, (figure,) = figures([], runs)
        assert figure.caption.endswith(ending)
        assert label in plain_texts(draw(figure))


def test_long_histories_are_thinned_by_averaging(tmp_path):
    write_run(tmp_path / "run", steps=1040)
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    assert run.loss.steps == pytest.approx([13 * part + 7 for part in range(80)])


def test_losses_of_short_calls_count_by_their_steps(tmp_path):
    metrics = write_run(tmp_path / "run") / "metrics.jsonl"
    evaluations = [line for line in metrics.read_text().splitlines() if '"eval"' in line]
    both = ((9, 1.0), (10, 5.0))
    calls = [(step + length, loss) for step in range(0, 2000, 10) for length, loss in both]
    losses = [
        {"kind": "train", "step": step, "loss": [loss, loss], "accuracy": [0.5, 0.5]}
        for step, loss in calls
    ]
    metrics.write_text("\n".join([*map(json.dumps, losses), *evaluations]))
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    assert len(run.loss.steps) <= 80
    # One step in ten has a loss of 5, the others 1. A part has some 30 steps, so that one call more
    # or less changes its mean; if calls counted alike, it would be 3.
    assert run.loss.mean == pytest.approx([1.4] * len(run.loss.steps), abs=0.2)


def test_a_call_of_few_steps_makes_no_point_of_its_own(tmp_path):
    metrics = write_run(tmp_path / "run") / "metrics.jsonl"
    evaluations = [line for line in metrics.read_text().splitlines() if '"eval"' in line]
    line = {"kind": "train", "accuracy": [0.5, 0.5]}
    calls = [(98, 1.0), (100, 6.0), (200, 1.0), (298, 1.0), (300, 6.0)]
    losses = [line | {"step": step, "loss": [loss, loss]} for step, loss in calls]
    metrics.write_text("\n".join([*map(json.dumps, losses), *evaluations]))
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    assert run.loss.mean == pytest.approx([1.0, (2 * 6 + 100) / 102, (98 + 2 * 6) / 100])


@pytest.mark.parametrize("task", TABLE_TASKS)
def test_each_evaluation_of_a_protocol_is_a_point(tmp_path, task):
    train = load_config(f"configs/{task}.py:standard").train
    entries = [
        {"kind": "eval", "split": "validation", "step": step}
        | {"accuracy": [1 / step, 1 / step], "loss": [1.0, 1.0]}
        for step in range(train.eval_every, train.steps + 1, train.eval_every)
    ]
    metrics = write_run(tmp_path / "run") / "metrics.jsonl"
    metrics.write_text("\n".join(map(json.dumps, entries)))
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    assert run.accuracy.mean == [entry["accuracy"][0] for entry in entries]


def test_numbers_that_no_run_writes_are_not_drawn(tmp_path):
    run = write_run(tmp_path / "run")
    damaged = [{"step": 30, "accuracy": [1e308]}, {"step": 10**400, "accuracy": [0.5]}]
    damaged.append({"step": 2**62, "accuracy": [3e38]})  # as large as a float32 and a step can be
    with open(run / "metrics.jsonl", "a") as file:
        for line in damaged:
            line |= {"kind": "eval", "split": "validation", "loss": [1.0]}
            file.write("\n" + json.dumps(line))
    _, (figure,) = figures([], [str(run)])
    draw(figure)
    ((history,),) = curves.histories([run]).values()
    assert history.accuracy.steps == [10, pytest.approx(2**62)]  # two seeds, then one


def test_no_histories_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no folder of a run"):
        curves.histories([tmp_path])
    with pytest.raises(UserError, match=r"--curves names .*typo, which is not there"):
        curves.histories([write_run(tmp_path / "run"), tmp_path / "typo"])


def test_reports_beside_the_runs_are_skipped(tmp_path):
    """As `--curves DIR/*` names them, with the report's `--out=DIR`."""
    run = write_run(tmp_path / "run")
    for name in ("RESULTS.md", "results.csv", "results.html"):
        (tmp_path / name).write_text("no curve")
    assert len(curves.histories([run, *tmp_path.glob("*.*")])[("listops",)]) == 1
    with pytest.raises(UserError, match=r"no file of curves \(\.jsonl\)$"):
        curves.histories([tmp_path / "RESULTS.md"])


def test_a_step_that_no_seed_has_reached_is_no_point(tmp_path):
    metrics = write_run(tmp_path / "run") / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("[0.5, null]", "[null, null]"))
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    assert run.accuracy == ([10], [pytest.approx(0.3)], [[0.2, 0.4]])
    assert run.ends == ((20, 0),)


def test_a_mean_over_steps_is_drawn_in_their_middle():
    entries = [(step, [2.0]) for step in (9, 18, 19)]
    assert curve(entries, 1000, spans=True).steps == [5, 14, 19]
    assert curve(entries, 1000).steps == [9, 18, 19]


def test_each_seed_is_averaged_by_itself():
    entries = [(step, [1.0, 3.0] if step % 2 else [3.0, 1.0]) for step in range(1, 161)]
    found = curve(entries, 80, spans=True)
    assert (found.mean, found.seeds) == ([2.0] * 80, [[2.0, 2.0]] * 80)


def test_entries_of_fewer_seeds_are_not_merged_with_those_before():
    found = curve([(1, [0.1, 0.3]), (2, [0.3, 0.5]), (3, [0.5]), (4, [0.7])], 1)
    assert found.mean == pytest.approx([0.3, 0.6])
    assert found.seeds == [pytest.approx([0.2, 0.4]), pytest.approx([0.6])]


def test_each_of_several_seeds_has_a_thin_line_up_to_where_one_diverges(tmp_path):
    write_run(tmp_path / "run")
    ((run,),) = curves.histories([tmp_path / "run"]).values()
    upper, lower = draw_histories([run], STYLES).axes
    assert [len(line.get_xdata()) for line in upper.lines] == [20, 20, 20]
    drawn = [[round(value) for value in line.get_ydata()] for line in lower.lines]
    assert drawn == [[30, 50], [20], [40]]
    assert {line.get_color() for line in lower.lines} == {STYLES["nystrom"].colour}
