"""Figures, curves and the page: that they are drawn, from the right numbers."""

import dataclasses
import itertools
import math
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from matplotlib import pyplot
from PIL import Image

from lra import records
from lra.report import drawing
from lra.report.__main__ import main
from lra.report.cells import Stat, cells
from lra.report.dots import Dot, dot, panels
from lra.report.figures import Figure, figures, save
from lra.report.groups import Group, group
from lra.report.provenance import platform_of
from lra.report.styles import STYLES, area_of_marker, shade, styles
from lra.report.sweep_points import Sweep, sweeps
from tests.lra.row_factory import failed_row, make_row
from tests.lra.run_folder import write_run

SIZES = (16, 32, 128)


def sweep_rows() -> list:
    return [make_row(0.4, seed=s, examples_per_second=500.0) for s in (0, 1)] + [
        make_row(
            0.3 + size / 1000 + seed / 100,
            seed=seed,
            examples_per_second=1000.0 / size,
            config_overrides={"model.attention.num_landmarks": size},
        )
        for size in SIZES
        for seed in (0, 1)
    ]


def options(rows) -> Group:
    """The group of the attentions' options."""
    return next(g for g in group(rows) if g.slug == "options")


def figures_of(one: Group) -> list[Figure]:
    """The figures of one group."""
    ((found,), _) = figures([one], [])
    return found


def swept(rows) -> dict[float, Dot]:
    """The only sweep of the options, of ListOps."""
    ((sweep,),) = sweeps(options(rows)).values()
    return sweep.by_task["listops"]


def test_sweep_points_include_the_table_cell():
    ((key, (sweep,)),) = sweeps(options(sweep_rows())).items()
    assert (key, sweep.fixed) == (("nystrom", "num_landmarks"), "")
    dots = sweep.by_task["listops"]
    assert list(dots) == [16, 32, 64, 128]
    assert dots[16].accuracy.mean == pytest.approx(0.321)
    assert dots[32].speed == 1000 / 32


def test_a_sweep_is_on_one_device_and_in_one_number_format():
    # The table is bfloat16, and what is in both formats is shown in it there.
    half = {"dtype": "bfloat16", "config_overrides": {"dtype": "bfloat16"}}
    rows = [*sweep_rows(), *(make_row(0.9, seed=s, task="image", **half) for s in range(9))]
    rows += [make_row(0.9, seed=s, **half) for s in range(12)]
    rows.append(make_row(0.9, config_overrides={"model.attention.num_landmarks": 8}, **GPU))
    dots = swept(rows)
    speeds = {8: None, 16: 62.5, 32: 31.25, 64: 500, 128: 7.8125}
    assert {value: dot.speed for value, dot in dots.items()} == speeds
    assert all(dot.accuracy.mean < 0.5 for value, dot in dots.items() if value != 8)
    (figure,) = [f for f in figures_of(options(rows)) if "landmarks" in f.name]
    assert figure.caption.endswith("Speeds: a device, float32.")


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
    assert figure.caption.endswith("ListOps: a device, float32; Image: a device, bfloat16.")


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
        (option, sweep.fixed): {
            value: round(dot.accuracy.mean, 3) for value, dot in sweep.by_task["listops"].items()
        }
        for (_, option), of_option in sweeps(options(rows)).items()
        for sweep in of_option
    }
    assert found == {
        ("num_landmarks", ""): {16: 0.321, 32: 0.337, 64: 0.4, 128: 0.433},
        ("num_landmarks", "conv_kernel=0"): {64: 0.1, 256: 0.2},
        ("conv_kernel", ""): {0: 0.1, 35: 0.4},
    }
    by_landmarks, _ = figures_of(options(rows))
    drawn = by_landmarks.draw()
    legend = [text.get_text() for text in drawn.legends[0].texts]
    pyplot.close(drawn)
    assert legend == ["defaults", "conv_kernel=0"]


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
    assert (key, sweep.fixed) == (("performer", "epsilon"), "num_features=64")
    assert [dot.accuracy.mean for dot in sweep.by_task["listops"].values()] == [
        *(0.5, 0.500001, 0.5001),
    ]
    (figure,) = figures_of(one)
    assert figure.caption.startswith(
        "Performer: test accuracy and training speed against epsilon, num_features=64; bars "
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
        ("", [1, 2]),
        ("heads=3", [1, 2]),
    ]


def test_a_panel_has_as_many_curves_as_a_legend_has_room_for():
    rows = [
        make_row(
            config_overrides={
                "model.attention.num_landmarks": landmarks,
                "model.attention.pinv_iterations": iterations,
            }
        )
        for iterations in range(7, 15)
        for landmarks in ((16, 32) if iterations == 9 else (16, 32, 128))
    ]
    by_landmarks, _ = figures_of(options(rows))
    assert by_landmarks.caption.endswith(" Not drawn: 2 with other options fixed.")
    drawn = by_landmarks.draw()
    legend = [text.get_text() for text in drawn.legends[0].texts]
    pyplot.close(drawn)
    assert legend == [f"pinv_iterations={iterations}" for iterations in (7, 8, 10, 11, 12, 13)]


def test_names_of_files_have_no_dot_inside():
    """LaTeX would take what follows it for the kind of the file."""
    rows = [
        make_row(config_overrides={"train.learning_rate": rate}) for rate in (0.001, 0.002, 0.003)
    ]
    (one,) = group(rows)
    (figure,) = figures_of(one)
    assert figure.name == f"{one.slug}-nystrom-train-learning_rate"


@pytest.mark.parametrize(
    ("attention", "option"),
    [("a/b", "size"), ("x" * 300, "size"), ("a $x^$", "$_$"), ("nul\0", "si/ze"), ("\u4e2d", "s")],
)
def test_any_name_can_be_drawn_and_written(tmp_path, attention, option):
    values = [{f"model.attention.{option}": value} for value in (1, 2)]
    rows = [make_row(attention=attention, config_overrides=value) for value in values]
    (figure,) = [f for f in figures_of(group(rows)[0]) if "against" in f.caption][-1:]
    png, svg = save(figure, tmp_path)
    with Image.open(png) as picture:
        assert picture.width > 900
    ElementTree.parse(svg)


def test_only_the_largest_groups_have_figures_of_speed():
    settings = [{"train.weight_decay": 1, f"model.x{n}": 1} for n in range(9)]
    rows = [
        make_row(attention=name, seed=seed, config_overrides=changed)
        for number, changed in enumerate(settings)
        for name in ("nystrom", "linformer")
        for seed in range(1 + number)
    ]
    rows += [make_row(attention=name) for name in ("nystrom", "linformer")]
    groups = group(rows)
    drawn = [any("speed" in f.name for f in fs) for fs in figures(groups, [])[0]]
    largest = [one.is_table3 or len(one.lines[0].cell("listops").rows) > 3 for one in groups]
    assert drawn == largest
    assert sum(drawn) == 7


def test_an_axis_has_ticks_only_where_there_is_room_for_labels():
    drawn = draw_sweep(range(1, 20))
    labels = [text.get_text() for text in drawn.axes[1].get_xticklabels()]
    pyplot.close(drawn)
    assert labels == ["1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "13", "16", "19"]


def draw_sweep(values, tasks=("listops",)):
    """A figure of one sweep over these values, laid out."""
    dots = {value: Dot(Stat(0.5, None, 1), 12_000.0) for value in values}
    sweep = Sweep("", dict.fromkeys(tasks, dots), {}, {})
    with matplotlib.rc_context(drawing.RC):
        drawn = drawing.draw_sweep("num_landmarks", [sweep], STYLES["nystrom"])
        drawn.draw_without_rendering()
    return drawn


@pytest.mark.parametrize(
    "tasks", [("listops",), ("listops", "image"), ("listops", "text", "image")]
)
@pytest.mark.parametrize(
    "values",
    [
        (16, 32, 64, 128, 256, 512, 1024),
        (32, 64, 128, 256, 512, 1024, 2048),
        (1e-5, 1e-4, 3e-4, 1e-3),
        (0, 1e-6, 1e-5, 1e-4),
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    ],
)
def test_labels_of_ticks_do_not_touch(values, tasks):
    drawn = draw_sweep(values, tasks)
    for axis in drawn.axes[len(tasks) :]:
        boxes = [text.get_window_extent() for text in axis.get_xticklabels()]
        assert len(boxes) >= 3
        for one, two in itertools.pairwise(boxes):
            assert two.x0 - one.x1 > 2 * drawn.dpi / 72  # points
    pyplot.close(drawn)


def test_a_zero_among_powers_has_a_place_of_its_own():
    axis = draw_sweep((0.0, 1e-6, 1e-4)).axes[1]
    places = axis.transScale.transform([(value, 0.5) for value in (0.0, 1e-6, 1e-4)])[:, 0]
    labels = [text.get_text() for text in axis.get_xticklabels()]
    pyplot.close(axis.figure)
    assert labels == ["0", "1e-06", "0.0001"]
    assert places[1] - places[0] > 0.3 * (places[2] - places[1]) > 0


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


CPU = {"device": "a CPU", "examples_per_second": 32.0}
GPU = {"device": "a GPU", "examples_per_second": 5000.0}


def beside(rows) -> list:
    """The rows, and the same of another attention to compare with."""
    return [*rows, *(dataclasses.replace(row, attention="linformer") for row in rows)]


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
        ({"dtype": "bfloat16"}, "of other number formats"),
        ({"examples_per_second": None}, "without a speed"),
        ({"params": None}, "without a number of parameters"),
    ],
)
def test_the_caption_says_why_cells_have_no_dot(other, reason):
    rows = [*beside([make_row()]), make_row(attention="reformer", **other)]
    (figure,) = figures_of(group(rows)[0])
    assert figure.caption.endswith(f" Speeds: a device, float32. No dot for cells {reason}.")


def test_the_caption_tells_of_seeds_that_differ():
    rows = beside([make_row(seed=seed) for seed in range(3)])
    for values, reason in (
        ({"steps": 100}, "of seeds that differ in steps"),
        ({"data": "official"}, "of seeds that differ in data or overrides"),
    ):
        others = [make_row(attention="reformer"), make_row(attention="reformer", seed=1, **values)]
        (figure,) = figures_of(group([*rows, *others])[0])
        assert figure.caption.endswith(f" No dot for cells {reason}.")


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
        "Speeds: a device, float32, JAX 0.12.0. No dot for cells of other versions of JAX."
    )
    (figure,) = figures_of(group(beside(rows[:2]))[0])
    assert figure.caption.endswith("Speeds: a device, float32, JAX 0.12.0.")


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
    assert figure.caption.endswith("Speeds: a device, float32, JAX 0.12.0.")


def test_of_programs_with_as_many_seeds_the_latest_tells_the_speed():
    told = (("a", 10.0, 1), ("b", 20.0, 3), ("c", 30.0, 2))
    rows = [
        make_row(seed=i, commit=40 * name, examples_per_second=speed, finished=f"2026-01-0{day}")
        for i, (name, speed, day) in enumerate(told)
    ]
    (cell,) = cells(rows)
    assert dot(cell, platform_of(rows[0])).speed == 20


def test_dots_of_other_data_are_marked():
    tasks = ("listops", "text", "retrieval", "image", "pathfinder")
    rows = [make_row(task=t, data="mine" if t == "retrieval" else "official") for t in tasks]
    (table,) = group(beside(rows))
    by_task = panels(table).by_task
    marked = [task for task, dots in by_task.items() for dot in dots.values() if dot.marked]
    assert marked == ["retrieval", "retrieval", "", ""]
    (figure,) = figures_of(table)
    assert "Speeds: a device, float32. Average: " in figure.caption
    assert figure.caption.endswith("a seed of its own. † Retrieval on other data: mine.")
    drawn = figure.draw()
    assert [[text.get_text() for text in axis.texts] for axis in drawn.axes] == [
        *([], [], ["†", "†"]),
        *([], [], ["†", "†"]),
    ]
    pyplot.close(drawn)


def test_rows_without_speed_have_no_dot():
    assert panels(group(beside([make_row(examples_per_second=None)]))[0]).by_task == {}


def test_every_figure_becomes_png_and_svg_of_a_columns_width(tmp_path):
    groups = group([*sweep_rows(), make_row(0.5, attention="standard")])
    of_groups, of_runs = figures(groups, [str(write_run(tmp_path / "run"))])
    found = [*of_groups, of_runs]
    names = [figure.name for of_section in found for figure in of_section]
    assert names == [
        "table3-speed",
        "options-nystrom-num_landmarks",
        "curves-listops",
    ]
    for of_section in found:
        for figure in of_section:
            png, svg = save(figure, tmp_path / "figures")
            with Image.open(png) as image:
                assert image.width == pytest.approx(3.3 * 300, abs=2)
                assert len(image.convert("L").getcolors()) > 50
            assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize("attentions", [("linformer", "nystrom"), tuple(STYLES)])
def test_a_legend_is_within_its_figure(attentions):
    sizes = {"nystrom": 209_000}
    rows = [make_row(0.5, attention=name, params=sizes.get(name, 1_260_000)) for name in attentions]
    (figure,) = figures_of(group(rows)[0])
    with matplotlib.rc_context(drawing.RC):
        drawn = figure.draw()
        drawn.draw_without_rendering()
        (legend,) = drawn.legends
        assert len(legend.texts) == len(attentions) + 2
        extent = legend.get_window_extent()
        pyplot.close(drawn)
    assert drawn.bbox.x0 <= extent.x0
    assert extent.x1 <= drawn.bbox.x1


def test_the_same_rows_give_the_same_bytes(tmp_path):
    (figure,) = figures_of(group(beside([make_row(0.5)]))[0])
    one, two = (save(figure, tmp_path / name) for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_attentions_differ_in_colour_and_marker():
    looks = STYLES.values()
    assert len({colour for colour, _, _ in looks}) == len(looks)
    assert len({marker for _, marker, _ in looks}) == len(looks)


def test_attentions_without_a_style_differ_from_all_others():
    names = [f"attention {number:02}" for number in range(30)]
    looks = styles([*reversed(names), "nystrom"])
    assert looks["nystrom"] == STYLES["nystrom"]
    assert len({looks[name][:2] for name in names}) == 30
    own = {part for look in STYLES.values() for part in look[:2]}
    assert not own & {part for name in names for part in looks[name][:2]}
    # The same in every figure of a report.
    rows = [make_row(attention=name) for name in ("one", "two")]
    rows += [
        make_row(attention="two", config_overrides={"model.attention.size": n}) for n in (1, 2)
    ]
    (_, of_options), _ = figures(group(rows), [])
    drawn = of_options[0].draw()
    colour = drawn.axes[0].lines[0].get_color()
    pyplot.close(drawn)
    assert colour == styles(["one", "two"])["two"][0]


def test_shades_of_an_attention_look_like_no_other():
    looks = [shade(STYLES["performer"], nth) for nth in range(10)]
    assert looks[0] == STYLES["performer"]
    assert len(set(looks)) == 10
    assert not {marker for _, marker, _ in looks[1:]} & {marker for _, marker, _ in STYLES.values()}


@pytest.mark.parametrize(("marker", "area"), [("o", math.pi / 4), ("s", 1), ("D", 1), ("^", 0.5)])
def test_areas_of_markers(marker, area):
    assert area_of_marker(marker) == pytest.approx(area, rel=1e-3)


@pytest.mark.parametrize("attention", STYLES)
def test_the_area_of_a_dot_is_its_parameters(attention):
    other = "standard" if attention != "standard" else "linear"
    dots = {attention: Dot(Stat(0.2, None, 1), 1.0, 5e5), other: Dot(Stat(0.8, None, 1), 2.0, 1e6)}
    with matplotlib.rc_context(drawing.RC):
        drawn = drawing.draw_dots({"listops": dots}, STYLES)
        sizes = [dot.get_sizes()[0] for dot in drawn.axes[0].collections]
        small, large = [handle.get_markersize() for handle in drawn.legends[0].legend_handles[-2:]]
        pyplot.close(drawn)
    areas = [size * area_of_marker(STYLES[name][1]) for size, name in zip(sizes, dots, strict=True)]
    assert areas[1] == pytest.approx(2 * areas[0], rel=1e-12)
    assert [math.pi / 4 * small**2, math.pi / 4 * large**2] == pytest.approx(areas, rel=1e-3)


def test_the_page_needs_no_other_file(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    records.append(
        path,
        [
            *beside([make_row(0.5, data="<mine> & yours")]),
            *sweep_rows(),
            make_row(attention="standard"),
        ],
    )
    main([str(path), "--format=html"])
    page = capsys.readouterr().out
    assert page.count("<figure>") == page.count("<svg") == page.count("</svg>") == 3
    assert "&lt;mine&gt; &amp; yours" in page
    for outside in ("<img", "<link", "<script", "@import", "src="):
        assert outside not in page


def test_out_writes_all_files_and_says_so(tmp_path, capsys):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out"
    records.append(path, beside([make_row(0.5)]))
    main([str(path), f"--out={out}", "--format=csv,latex,html"])
    said = capsys.readouterr().out
    for name in ("RESULTS.md", "results.csv", "results.tex", "results.html"):
        assert (out / name).stat().st_size > 100
        assert str(out / name) in said
    assert "| Nyströmformer |" in said
    text = (out / "RESULTS.md").read_text()
    assert "(figures/table3-speed.png)" in text
    assert (out / "figures" / "table3-speed.png").exists()
