"""Figures, curves and the page: that they are drawn, from the right numbers."""

import dataclasses
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from matplotlib import pyplot
from PIL import Image

from lra import records
from lra.report import curves, drawing, sweep_points
from lra.report.__main__ import main
from lra.report.cells import Stat
from lra.report.figures import figures, save
from lra.report.groups import Group, group
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


def test_sweep_points_include_the_table_cell():
    (group_of_sweep,) = [g for g in group(sweep_rows()) if not g.is_table3]
    ((key, by_task),) = sweep_points.sweeps(group_of_sweep).items()
    assert key == ("nystrom", "num_landmarks")
    assert [point.value for point in by_task["listops"]] == [16, 32, 64, 128]
    assert by_task["listops"][0].accuracy.mean == pytest.approx(0.321)
    assert by_task["listops"][1].speed == 1000 / 32


def options(rows) -> Group:
    """The group of the attentions' options."""
    return next(g for g in group(rows) if g.slug == "options")


def test_a_sweep_is_on_one_device_and_in_one_number_format():
    # The table is bfloat16, and what is in both formats is shown in it there.
    half = {"dtype": "bfloat16", "config_overrides": {"dtype": "bfloat16"}}
    rows = [*sweep_rows(), *(make_row(0.9, seed=s, task="image", **half) for s in range(9))]
    rows += [make_row(0.9, seed=s, **half) for s in range(12)]
    rows.append(make_row(0.9, config_overrides={"model.attention.num_landmarks": 8}, **GPU))
    (by_task,) = sweep_points.sweeps(options(rows)).values()
    assert [(point.value, point.speed) for point in by_task["listops"]] == [
        (8, None),
        *((size, speed) for size, speed in ((16, 62.5), (32, 31.25), (64, 500), (128, 7.8125))),
    ]
    assert all(point.accuracy.mean < 0.5 for point in by_task["listops"][1:])
    (figure,) = [f for f in figures(group(rows), [])["options"] if "landmarks" in f.name]
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
    (figure,) = [f for f in figures(group(rows), [])["options"] if "landmarks" in f.name]
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
    (figure,) = figures(group(rows), [])["options"]
    assert figure.caption.endswith("ListOps: a device, float32; Image: a device, bfloat16.")


def test_a_sweep_is_over_lines_whose_other_options_are_the_defaults():
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
    found = sweep_points.sweeps(options(rows))
    of_option = {
        option: [(point.value, round(point.accuracy.mean, 3)) for point in by_task["listops"]]
        for (_, option), by_task in found.items()
    }
    assert of_option == {
        "num_landmarks": [(16, 0.321), (32, 0.337), (64, 0.4), (128, 0.433)],
        "conv_kernel": [(0, 0.1), (35, 0.4)],
    }


def test_an_axis_has_ticks_only_where_there_is_room_for_labels():
    points = [sweep_points.Point(value, Stat(0.5, None, 1), 100.0) for value in range(1, 20)]
    drawn = drawing.draw_sweep("nystrom", "num_landmarks", {"listops": points})
    labels = [text.get_text() for text in drawn.axes[1].get_xticklabels()]
    pyplot.close(drawn)
    assert labels == ["1", "2", "4", "7", "11", "17"]


def test_a_zero_among_powers_has_a_place_of_its_own():
    points = [sweep_points.Point(value, Stat(0.5, None, 1), 100.0) for value in (0.0, 1e-6, 1e-4)]
    axis = drawing.draw_sweep("performer", "epsilon", {"listops": points}).axes[1]
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
    dots = curves.dots(group(rows)[0])
    assert len(dots) == 6
    (average,) = dots[""]
    assert average.speed == pytest.approx(1000)
    assert average.accuracy.mean == pytest.approx(0.3)
    assert average.params == 300


CPU = {"device": "a CPU", "examples_per_second": 32.0}
GPU = {"device": "a GPU", "examples_per_second": 5000.0}


def test_a_dot_has_the_speed_of_the_device_of_most_results():
    rows = [
        make_row(0.4, **CPU),
        make_row(0.5, seed=1, **GPU),
        make_row(0.5, task="image", **GPU),
        make_row(0.5, task="text", num_devices=2, **GPU),
        make_row(0.5, task="pathfinder", dtype="bfloat16", **GPU),
    ]
    (table,) = group(rows)
    dots = curves.dots(table)
    assert {task: dot.speed for task, (dot,) in dots.items()} == {"listops": 5000, "image": 5000}
    assert dots["listops"][0].accuracy.mean == pytest.approx(0.45)
    assert [
        figure.caption.partition("Speeds: ")[2] for figure in figures([table], [])["table3"]
    ] == ["a GPU, float32; cells of other devices or number formats have no dot."]


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
    dots = curves.dots(table)["listops"]
    assert [(dot.attention, dot.speed, dot.seeds_together) for dot in dots] == [
        ("linformer", 100, 1),
        ("nystrom", 180, 2),
    ]
    (figure,) = figures([table], [])["table3"]
    assert figure.caption.endswith("Speeds: a device, float32, programs of 1 to 2 seeds.")
    (other,) = figures(group(rows[1:3]), [])["table3"]
    assert other.caption.endswith("Speeds: a device, float32.")

    changed = {"config_overrides": {"model.attention.num_landmarks": 16}}
    rows = [make_row(**alone), make_row(**alone | changed), make_row(seed=1, **together | changed)]
    (by_task,) = sweep_points.sweeps(options(rows)).values()
    assert [point.speed for point in by_task["listops"]] == [180, 100]
    (figure,) = figures([options(rows)], [])["options"]
    assert figure.caption.endswith("Speeds: a device, float32, programs of 1 to 2 seeds.")


def test_captions_tell_speeds_of_several_versions_of_jax():
    old, new = ({"versions": {"jax": version}} for version in ("0.10.2", "0.12.0"))
    rows = [make_row(**new), make_row(attention="linformer", **old)]
    (figure,) = figures(group(rows), [])["table3"]
    assert figure.caption.endswith("Speeds: a device, float32, JAX 0.10.2 and 0.12.0.")
    (figure,) = figures(group(rows[:1]), [])["table3"]
    assert figure.caption.endswith("Speeds: a device, float32.")

    changed = {"config_overrides": {"model.attention.num_landmarks": 16}}
    (figure,) = figures([options([make_row(**new), make_row(**old, **changed)])], [])["options"]
    assert figure.caption.endswith("Speeds: a device, float32, JAX 0.10.2 and 0.12.0.")


def test_dots_of_other_data_are_marked():
    tasks = ("listops", "text", "retrieval", "image", "pathfinder")
    rows = [make_row(task=t, data="mine" if t == "retrieval" else "official") for t in tasks]
    (table,) = group(rows)
    dots = curves.dots(table)
    assert [task for task, (dot,) in dots.items() if dot.marked] == ["retrieval", ""]
    (figure,) = figures([table], [])["table3"]
    assert figure.caption.endswith("Speeds: a device, float32. † Retrieval on other data: mine.")
    drawn = figure.draw()
    assert [[text.get_text() for text in axis.texts] for axis in drawn.axes] == [
        *([], [], ["†"]),
        *([], [], ["†"]),
    ]
    pyplot.close(drawn)


def test_rows_without_speed_have_no_dot():
    assert curves.dots(group([make_row(examples_per_second=None)])[0]) == {}


def test_every_figure_becomes_png_and_svg_of_a_columns_width(tmp_path):
    groups = group([*sweep_rows(), make_row(0.5, attention="standard")])
    found = figures(groups, [str(write_run(tmp_path / "run"))])
    names = [figure.name for of_section in found.values() for figure in of_section]
    assert names == [
        "table3-speed",
        "options-nystrom-num_landmarks",
        "curves-listops",
    ]
    for of_section in found.values():
        for figure in of_section:
            png, svg = save(figure, tmp_path / "figures")
            with Image.open(png) as image:
                assert image.width == pytest.approx(3.3 * 300, abs=2)
                assert len(image.convert("L").getcolors()) > 50
            assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize("attentions", [("linformer", "nystrom"), tuple(drawing.STYLES)])
def test_a_legend_is_within_its_figure(attentions):
    sizes = {"nystrom": 209_000}
    rows = [make_row(0.5, attention=name, params=sizes.get(name, 1_260_000)) for name in attentions]
    (figure,) = figures(group(rows), [])["table3"]
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
    (figure,) = figures(group([make_row(0.5)]), [])["table3"]
    one, two = (save(figure, tmp_path / name) for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_attentions_differ_in_colour_and_marker():
    styles = drawing.STYLES.values()
    assert len({colour for colour, _, _ in styles}) == len(styles)
    assert len({marker for _, marker, _ in styles}) == len(styles)


def test_the_page_needs_no_other_file(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    records.append(path, [make_row(0.5, data="<mine> & yours"), *sweep_rows()])
    main([str(path), "--format=html"])
    page = capsys.readouterr().out
    assert page.count("<figure>") == page.count("<svg") == page.count("</svg>") == 3
    assert "&lt;mine&gt; &amp; yours" in page
    for outside in ("<img", "<link", "<script", "@import", "src="):
        assert outside not in page


def test_out_writes_all_files_and_says_so(tmp_path, capsys):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out"
    records.append(path, [make_row(0.5)])
    main([str(path), f"--out={out}", "--format=csv,latex,html"])
    said = capsys.readouterr().out
    for name in ("RESULTS.md", "results.csv", "results.tex", "results.html"):
        assert (out / name).stat().st_size > 100
        assert str(out / name) in said
    assert "| Nyströmformer |" in said
    text = (out / "RESULTS.md").read_text()
    assert "(figures/table3-speed.png)" in text
    assert (out / "figures" / "table3-speed.png").exists()
