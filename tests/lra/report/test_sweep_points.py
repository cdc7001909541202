"""Sweeps: which rows are the points of a curve, and what the caption says of the others."""

import dataclasses

import numpy as np
import pytest
from matplotlib import pyplot

from lra.report.groups import group
from lra.report.sweep_points import labels, sweeps
from tests.lra.report.swept_rows import (
    GPU,
    SIZES,
    figures_of,
    options,
    sweep_rows,
    swept,
)
from tests.lra.row_factory import HALF, diverged_row, failed_row, make_row


def legend_of(figure) -> list[str]:
    """The texts of a figure's legend."""
    drawn = figure.draw()
    pyplot.close(drawn)
    return [text.get_text() for text in drawn.legends[0].texts]


def test_sweep_points_include_the_table_cell():
    ((key, (sweep,)),) = sweeps(options(sweep_rows())).items()
    assert (key, sweep.fixed) == (("nystrom", "num_landmarks"), {})
    dots = sweep.by_task["listops"]
    assert list(dots) == [16, 32, 64, 128]
    assert dots[16].accuracy.mean == pytest.approx(0.321)
    assert dots[32].speed == 1000 / 32


def test_values_that_no_axis_holds_have_no_points():
    values = (10**17, 10**17 + 1, 10**308, -(10**308), "many", True)
    rows = [make_row(config_overrides={"model.attention.num_landmarks": v}) for v in values]
    assert sweeps(options(rows)) == {}
    assert list(swept(sweep_rows() + rows)) == [16, 32, 64, 128]


def test_a_sweep_is_on_one_device_and_in_one_number_format():
    # The table is bfloat16, and what is in both formats is shown in it there.
    rows = [*sweep_rows(), *(make_row(0.9, seed=s, task="image", **HALF) for s in range(9))]
    rows += [make_row(0.9, seed=s, **HALF) for s in range(12)]
    rows.append(make_row(0.9, config_overrides={"model.attention.num_landmarks": 8}, **GPU))
    dots = swept(rows)
    speeds = {8: None, 16: 62.5, 32: 31.25, 64: 500, 128: 7.8125}
    assert {value: dot.speed for value, dot in dots.items()} == speeds
    assert all(dot.accuracy.mean < 0.5 for value, dot in dots.items() if value != 8)
    (figure,) = [f for f in figures_of(options(rows)) if "landmarks" in f.name]
    assert figure.caption.endswith(
        "Speeds: a device, float32, programs of 3 seeds. No speed on that platform: ListOps at 8."
    )


def test_a_line_of_speeds_has_a_gap_where_one_is_missing():
    rows = [
        *sweep_rows(),
        make_row(0.4, config_overrides={"model.attention.num_landmarks": 48}, **GPU),
        diverged_row(
            seed=2,
            examples_per_second=62.5,
            config_overrides={"model.attention.num_landmarks": 16},
        ),
    ]
    (figure,) = [f for f in figures_of(options(rows)) if "landmarks" in f.name]
    assert figure.caption.endswith(
        " Seeds that diverged or failed: ListOps at 16 (1 of 3). No speed on that platform: "
        "ListOps at 48."
    )
    drawn = figure.draw()
    pyplot.close(drawn)
    ((speeds,),) = [axes.lines for axes in drawn.axes[1:]]
    np.testing.assert_array_equal(speeds.get_xdata(), [16, 32, 48, 64, 128])
    expected = [62.5, 31.25, np.nan, 500, 7.8125]
    np.testing.assert_array_equal(speeds.get_ydata(), expected)


def test_the_caption_of_a_sweep_names_the_sizes_without_a_point():
    sizes = {"config_overrides": {"model.attention.num_landmarks": 32}}
    half = {"model.attention.num_landmarks": 256, "dtype": "bfloat16"}
    rows = [
        *sweep_rows(),
        make_row(0.9, steps=2500, seed=2, **sizes),
        make_row(0.9, dtype="bfloat16", config_overrides=half),
        failed_row(config_overrides={"model.attention.num_landmarks": 512}),
    ]
    (figure,) = [f for f in figures_of(options(rows)) if "landmarks" in f.name]
    assert figure.caption.endswith(
        " No point: ListOps at 32 (seeds that differ), ListOps at 256 (bfloat16), "
        "ListOps at 512 (no result)."
    )


def test_the_caption_of_a_sweep_names_the_platform_of_each_task():
    rows = [
        make_row(
            task=task,
            dtype=dtype,
            config_overrides={"model.attention.num_landmarks": n, "dtype": dtype},
        )
        for task, dtype in (("listops", "float32"), ("image", "bfloat16"))
        for n in SIZES
    ]
    (figure,) = figures_of(options(rows))
    assert figure.caption.endswith(
        "ListOps: a device, float32; Image: a device, bfloat16, programs of 3 seeds."
    )


def test_a_sweep_is_over_lines_whose_other_options_are_alike():
    rows = [
        *sweep_rows(),
        make_row(0.1, config_overrides={"model.attention.conv_kernel": 0}),
        make_row(
            0.2,
            config_overrides={
                "model.attention.conv_kernel": 0,
                "model.attention.num_landmarks": 256,
            },
        ),
    ]
    config = {"model.attention.num_landmarks": 64, "model.attention.conv_kernel": 35}
    rows = [dataclasses.replace(row, config=config | row.config_overrides) for row in rows]
    found = {
        (option, *sweep.fixed.values()): {
            value: round(dot.accuracy.mean, 3) for value, dot in sweep.by_task["listops"].items()
        }
        for (_, option), of_option in sweeps(options(rows)).items()
        for sweep in of_option
    }
    assert found == {
        ("num_landmarks", "35"): {16: 0.321, 32: 0.337, 64: 0.4, 128: 0.433},
        ("num_landmarks", "0"): {64: 0.1, 256: 0.2},
        ("conv_kernel", "64"): {0: 0.1, 35: 0.4},
    }
    by_landmarks, _ = figures_of(options(rows))
    assert legend_of(by_landmarks) == ["conv_kernel=35", "conv_kernel=0"]


def test_a_sweep_may_be_around_other_options_than_the_defaults():
    rows = [
        make_row(
            0.5 + epsilon,
            attention="performer",
            config_overrides={
                "model.attention.num_features": 64,
                "model.attention.epsilon": epsilon,
                "train.steps": 600,
            },
        )
        for epsilon in (0.0, 1e-6, 1e-4)
    ]
    (one,) = group(rows)
    ((key, (sweep,)),) = sweeps(one).items()
    assert (key, sweep.fixed) == (("performer", "epsilon"), {"num_features": "64"})
    assert [dot.accuracy.mean for dot in sweep.by_task["listops"].values()] == [
        *(0.5, 0.500001, 0.5001),
    ]
    (figure,) = figures_of(one)
    assert figure.caption.startswith(
        "Performer: test accuracy and training speed against epsilon, num_features=64; lines "
    )


def test_options_of_an_unknown_attention_are_not_mixed():
    rows = [
        make_row(attention="mine", config={}, config_overrides={f"model.attention.{name}": value})
        for name, value in (("width", 1), ("width", 2), ("depth", 2))
    ]
    rows += [
        dataclasses.replace(
            row, config_overrides=row.config_overrides | {"model.attention.heads": 3}
        )
        for row in rows[:2]
    ]
    ((key, found),) = sweeps(options(rows)).items()
    assert key == ("mine", "width")
    assert [(sweep.fixed, list(sweep.by_task["listops"])) for sweep in found] == [
        ({}, [1, 2]),
        ({"heads": "3"}, [1, 2]),
    ]
    assert labels(found) == ["defaults", "heads=3"]


def test_curves_are_told_apart_by_what_varies_also_at_its_default():
    rows = [
        make_row(
            task=task,
            config_overrides={
                "model.attention.num_landmarks": n,
                "model.attention.conv_kernel": 9,
                "train.steps": 9,
            }
            | ({"model.dropout": dropout} if dropout != 0.1 else {}),
        )
        for n in SIZES
        for dropout in (0.0, 0.1, 0.2)
        for task in ("listops", "image")
    ]
    (one,) = group(rows)
    by_dropout, by_landmarks = figures_of(one)
    assert legend_of(by_landmarks) == [f"dropout={dropout}" for dropout in (0.0, 0.1, 0.2)]
    assert "against num_landmarks, conv_kernel=9; " in by_landmarks.caption
    assert legend_of(by_dropout) == [f"num_landmarks={n}" for n in SIZES]


def test_curves_over_tasks_may_be_at_several_defaults():
    steps = {"listops": 5000, "image": 35000}
    changed = [
        ({"train.steps": n} if n else {}) | {"train.learning_rate": rate, "model.dropout": 0.0}
        for n in (9, None)
        for rate in (1e-3, 2e-3)
    ]
    rows = [
        make_row(task=task, config={"train.steps": steps[task]} | each, config_overrides=each)
        for task in steps
        for each in changed
    ]
    (figure,) = [each for each in figures_of(group(rows)[0]) if each.name.endswith("rate")]
    assert legend_of(figure) == ["steps=default", "steps=9"]


def test_platforms_of_several_curves_are_named_by_what_varies():
    rows = [
        make_row(
            config_overrides={
                "model.attention.num_landmarks": n,
                "model.attention.conv_kernel": kernel,
            },
            device=f"device {kernel}",
        )
        for n in SIZES
        for kernel in (9, 35)
    ]
    rows = [dataclasses.replace(row, config=row.config | row.config_overrides) for row in rows]
    by_landmarks, *_ = figures_of(options(rows))
    assert "ListOps with conv_kernel=35: device 35, float32; " in by_landmarks.caption
