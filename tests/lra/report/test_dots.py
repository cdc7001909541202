"""Accuracy against speed: whose speed a dot has, and why a cell has none."""

import dataclasses

import pytest
from matplotlib import pyplot

from lra.report.cells import divide_into_cells, usual_platform
from lra.report.dots import dot, panels
from lra.report.groups import group
from lra.report.provenance import platform_of
from tests.lra.report.swept_rows import (
    CPU,
    GPU,
    beside,
    figures_of,
    options,
    swept,
)
from tests.lra.row_factory import failed_row, make_row


def test_dots_of_tasks_and_average():
    rows = [
        make_row(0.1 * i, task=task, examples_per_second=10.0**i, params=100 * i)
        for i, task in enumerate(("listops", "text", "retrieval", "image", "pathfinder"), start=1)
    ]
    rows += [dataclasses.replace(row, attention="linformer") for row in rows]
    dots = panels(group(rows)[0]).by_task
    assert len(dots) == 6
    assert list(dots[""]) == ["linformer", "nystrom"]
    average = dots[""]["nystrom"]
    assert average.speed == pytest.approx(1000)
    assert average.accuracy.mean == pytest.approx(0.3)
    assert average.params == 300
    # One that is to be tried again is in no average, and neither is one whose speed is unknown.
    assert "" not in panels(group([*rows, failed_row(seed=1)])[0]).by_task
    rows[0] = dataclasses.replace(rows[0], examples_per_second=None)
    assert "" not in panels(group(rows)[0]).by_task


def test_a_dot_has_the_speed_of_the_device_of_most_results():
    rows = beside(
        [
            make_row(0.4, **CPU),
            make_row(0.5, seed=1, **GPU),
            make_row(0.5, task="image", **GPU),
            make_row(0.5, task="text", num_devices=2, **GPU),
            make_row(0.5, task="pathfinder", dtype="bfloat16", **GPU),
        ]
    )
    (table,) = group(rows)
    by_task, platform, _ = panels(table)
    assert platform.title == "a GPU, float32"
    assert {task: dots["nystrom"].speed for task, dots in by_task.items()} == {
        "listops": 5000,
        "image": 5000,
    }
    assert by_task["listops"]["nystrom"].accuracy.mean == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"device": "a CPU"}, "of other devices"),
        ({"num_devices": 2}, "of other devices"),
        ({"device": "a device, a CPU"}, "of other devices"),
        ({"dtype": "bfloat16"}, "of other number formats"),
        ({"examples_per_second": None}, "without a speed"),
        ({"params": None}, "without a number of parameters"),
    ],
)
def test_the_caption_says_why_cells_have_no_dot(other, reason):
    rows = [*beside([make_row()]), make_row(attention="reformer", **other)]
    (figure,) = figures_of(group(rows)[0])
    assert figure.caption.endswith(
        f" Speeds: a device, float32, programs of 3 seeds. No dot for cells {reason}."
    )


def test_runs_that_all_went_on_elsewhere_have_no_dots():
    moved = [make_row(attention=name, device="a GPU, a CPU") for name in ("linear", "linformer")]
    assert panels(group(moved)[0]).by_task == {}
    swept = [
        make_row(device="a GPU, a CPU", config_overrides={"model.attention.num_landmarks": size})
        for size in (16, 32)
    ]
    assert figures_of(group(swept)[0])


def test_the_caption_tells_of_seeds_that_differ():
    rows = beside([make_row(seed=seed) for seed in range(3)])
    for values, reason in (
        ({"steps": 100}, "of seeds that differ in steps"),
        ({"data": "official"}, "of seeds that differ in data or overrides"),
    ):
        others = [make_row(attention="reformer"), make_row(attention="reformer", seed=1, **values)]
        (figure,) = figures_of(group([*rows, *others])[0])
        assert figure.caption.endswith(f" No dot for cells {reason}.")


def test_an_attention_with_several_lines_has_no_dot():
    steps = {"train.steps": 9}
    rows = [make_row(attention=name, config_overrides=steps) for name in ("linear", "linformer")]
    rows += [
        make_row(config_overrides=steps | {"model.attention.num_landmarks": size})
        for size in (16, 32)
    ]
    (figure, _) = figures_of(group(rows)[0])
    assert figure.caption.endswith(" No dot for cells of an attention with several lines.")


def test_a_panel_has_two_dots_or_more():
    (alone,) = group([make_row()])
    assert panels(alone).by_task == {}
    assert figures_of(alone) == []
    (table,) = group([*beside([make_row()]), make_row(task="image")])
    assert list(panels(table).by_task) == ["listops"]
    (figure,) = figures_of(table)
    assert figure.caption.endswith(" No dot for cells alone in their column.")


def test_a_speed_is_that_of_programs_with_as_many_seeds():
    """Seeds that were trained together cost less than one by one: no median of both."""
    alone = {"seeds_in_program": 1, "examples_per_second": 100.0}
    together = {"seeds_in_program": 2, "examples_per_second": 180.0}
    rows = [
        make_row(**alone),
        *(make_row(seed=seed, **together) for seed in (1, 2)),
        make_row(attention="linformer", **alone),
    ]
    (table,) = group(rows)
    dots = panels(table).by_task["listops"]
    assert {name: (dot.speed, dot.seeds_together) for name, dot in dots.items()} == {
        "linformer": (100, 1),
        "nystrom": (180, 2),
    }
    (figure,) = figures_of(table)
    assert figure.caption.endswith("Speeds: a device, float32, programs of 1 to 2 seeds.")
    (other,) = figures_of(group(beside(rows[1:3]))[0])
    assert other.caption.endswith("Speeds: a device, float32, programs of 2 seeds.")
    (other,) = figures_of(group(beside(rows[:1]))[0])
    assert other.caption.endswith("Speeds: a device, float32.")

    changed = {"config_overrides": {"model.attention.num_landmarks": 16}}
    rows = [make_row(**alone), make_row(**alone | changed), make_row(seed=1, **together | changed)]
    assert [dot.speed for dot in swept(rows).values()] == [180, 100]
    (figure,) = figures_of(options(rows))
    assert figure.caption.endswith("Speeds: a device, float32, programs of 1 to 2 seeds.")


def test_speeds_are_of_one_version_of_jax():
    old, new = ({"versions": {"jax": version}} for version in ("0.10.2", "0.12.0"))
    rows = [
        make_row(**new),
        make_row(attention="linear", **new),
        make_row(attention="linformer", **old),
    ]
    (figure,) = figures_of(group(rows)[0])
    assert figure.caption.endswith(
        "Speeds: a device, float32, JAX 0.12.0, programs of 3 seeds. No dot for cells of other "
        "versions of JAX."
    )
    (figure,) = figures_of(group(beside(rows[:2]))[0])
    assert figure.caption.endswith("Speeds: a device, float32, JAX 0.12.0, programs of 3 seeds.")


def test_speeds_of_a_sweep_are_of_one_version_of_jax():
    rows = [
        make_row(
            config_overrides={"model.attention.num_landmarks": size},
            versions={"jax": version},
        )
        for size, version in ((16, "0.12.0"), (32, "0.12.0"), (128, "0.10.2"))
    ]
    assert {size: dot.speed for size, dot in swept(rows).items()} == {16: 1000, 32: 1000, 128: None}
    (figure,) = figures_of(options(rows))
    assert figure.caption.endswith(
        "Speeds: a device, float32, JAX 0.12.0, programs of 3 seeds. No speed on that platform: "
        "ListOps at 128."
    )


@pytest.mark.parametrize("commits", ["abc", "aaa"])
def test_of_programs_with_as_many_seeds_the_fastest_tells_the_speed(commits):
    """Whatever else a machine did made the others slower; whether of one commit or of several."""
    speeds = (10.0, 30.0, 20.0)
    rows = [
        make_row(seed=i, commit=40 * name, examples_per_second=speed, seeds_in_program=1)
        for i, (name, speed) in enumerate(zip(commits, speeds, strict=True))
    ]
    (cell,) = divide_into_cells(rows)
    found = dot(cell, platform_of(rows[0]))
    assert (found.slowest, found.speed) == (10, 30)
    (figure,) = figures_of(group(beside(rows))[0])
    assert figure.caption.endswith(
        "Speeds: a device, float32; of several programs of a cell the fastest, with a line to the "
        "slowest, which other work on the machine or older code held up: what "
        "benchmarks.train_step measures in one run compares methods better."
    )
    drawn = figure.draw()
    spans = [list(line.get_xdata()) for line in drawn.axes[0].lines if len(line.get_xdata()) == 2]
    assert spans == [[10, 30]] * 2
    pyplot.close(drawn)


def test_the_speeds_of_a_sweep_reach_to_the_slowest():
    rows = [
        make_row(
            seed=seed,
            config_overrides={"model.attention.num_landmarks": size},
            examples_per_second=speed,
            seeds_in_program=1,
        )
        for size, speeds in ((16, (10.0, 20.0)), (32, (5.0, 5.0)))
        for seed, speed in enumerate(speeds)
    ]
    (figure,) = figures_of(options(rows))
    drawn = figure.draw()
    _, lower = drawn.axes
    curve, *spans = [(list(line.get_xdata()), list(line.get_ydata())) for line in lower.lines]
    assert curve == ([16, 32], [20, 5])
    assert spans == [([16, 16], [10, 20])]
    pyplot.close(drawn)


def test_tasks_on_other_data_are_marked():
    tasks = ("listops", "text", "retrieval", "image", "pathfinder")
    rows = [make_row(task=t, data="mine" if t == "retrieval" else "official") for t in tasks]
    (table,) = group(beside(rows))
    by_task = panels(table).by_task
    marked = [task for task, dots in by_task.items() for dot in dots.values() if dot.marked]
    assert marked == ["retrieval", "retrieval", "", ""]
    (figure,) = figures_of(table)
    assert "programs of 3 seeds. Average: " in figure.caption
    assert figure.caption.endswith("mean of the parameters. † Retrieval on other data: mine.")
    drawn = figure.draw()
    pyplot.close(drawn)
    titles = [axis.get_title() for axis in drawn.axes]
    assert titles == ["ListOps", "Text", "Retrieval†", "Image", "Pathfinder", "Average†"]


def test_the_bar_of_an_average_is_told_where_there_is_one():
    tasks = ("listops", "text", "retrieval", "image", "pathfinder")
    one = [make_row(0.4, task=task) for task in tasks]
    two = [*one, *(make_row(0.5, task=task, seed=1) for task in tasks)]
    captions = [figures_of(group(beside(rows))[0])[0].caption for rows in (one, two)]
    bar = (
        "the mean of the parameters, and the bar of a mean over tasks, each with a seed of its own"
    )
    assert [bar in caption for caption in captions] == [False, True]


def test_rows_without_speed_have_no_dot():
    assert panels(group(beside([make_row(examples_per_second=None)]))[0]).by_task == {}


def test_a_run_that_did_not_move_chooses_the_platform():
    moved = [make_row(seed=s, device="a GPU, a CPU") for s in (0, 1)]
    stayed = make_row(seed=2, device="a GPU")
    assert usual_platform(divide_into_cells([*moved, stayed])) == platform_of(stayed)
    assert usual_platform(divide_into_cells(moved)) == platform_of(moved[0])
