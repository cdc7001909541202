"""Figures and the page: that they are drawn and written, of every kind of rows."""

import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib import pyplot
from PIL import Image

from lra import records
from lra.report.__main__ import main
from lra.report.figure_files import save
from lra.report.figures import beyond_speed_figures, figures
from lra.report.groups import group
from tests.lra.report.swept_rows import (
    beside,
    figures_of,
    options,
    sweep_rows,
)
from tests.lra.row_factory import make_row
from tests.lra.run_folder import write_run


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
        make_row(config_overrides={"train.learning_rate": rate, "mine.learning_rate": 1})
        for rate in (0.001, 0.002, 0.003)
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
    # One attention alone has no such figure, however many results it has.
    rows += [make_row(seed=seed, config_overrides={"train.batch_size": 9}) for seed in range(20)]
    groups = group(rows)
    beyond = beyond_speed_figures(groups)
    drawn = [any("speed" in f.name for f in fs) for fs in figures(groups, [])[0]]
    results = [sum(len(cell.ok) for _, _, cell in one.all_cells()) for one in groups]
    assert results == [2, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    largest = [
        one.is_table3 or 6 < number < 20 for one, number in zip(groups, results, strict=True)
    ]
    assert drawn == largest
    assert sum(drawn) == 7
    left_out = [number for one, number in zip(groups, results, strict=True) if one in beyond]
    assert sorted(left_out) == [2, 4, 6]


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


def test_the_same_rows_give_the_same_bytes(tmp_path):
    (figure,) = figures_of(group(beside([make_row(0.5)]))[0])
    one, two = (save(figure, tmp_path / name) for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()


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


def test_the_terminal_names_no_files_of_figures(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    records.append(path, beside([make_row(0.5)]))
    main([str(path)])
    said = capsys.readouterr().out
    assert "| Nyströmformer |" in said
    assert "figures/" not in said
