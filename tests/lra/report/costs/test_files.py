"""Files of cost, or of cost and accuracy, and what the report writes of them."""

import csv
import io
import itertools
import os
import subprocess
import sys

import pytest
from matplotlib import pyplot
from PIL import Image

from lra import records
from lra.efficiency import to_json
from lra.errors import UserError
from lra.report.__main__ import main
from lra.report.figure_files import save
from tests.lra.cost_row_factory import PEER, cost_row, linformer, sections_of, standard
from tests.lra.report.drawn_texts import draw
from tests.lra.row_factory import make_row


def test_files_may_be_mixed_and_a_last_line_cut_short(tmp_path, capsys):
    path, out = tmp_path / "rows.jsonl", tmp_path / "out"
    records.append(path, [make_row(0.5), make_row(0.5, attention="linformer")])
    lines = [to_json(row) for row in (standard(), cost_row(), cost_row(2.0, **PEER))]
    with open(path, "a") as file:
        file.write("\n".join([*lines, '{"kind": "co']))
    main([str(path), f"--out={out}", "--format=csv,latex,html"])
    assert "its last line is cut short" in capsys.readouterr().err
    text = (out / "RESULTS.md").read_text()
    assert "## Long Range Arena: protocol of Table 3" in text
    assert "## Cost of one attention module: d = 64, 2 heads, float32; a device, 1 thread" in text
    for name in ("forward", "forward-peers"):
        assert f"(figures/cost-module-d64-float32-{name}.png)" in text
        assert (out / "figures" / f"cost-module-d64-float32-{name}.svg").exists()
    assert (out / "results.html").read_text().count("<svg") == 3
    assert "\ntable3,listops,nystrom," in (out / "results.csv").read_text()
    cells = list(csv.DictReader(io.StringIO((out / "efficiency.csv").read_text())))
    assert [cell["times_faster"] for cell in cells] == ["1.0", "3.0", "1.5"]
    assert {cell["relative_to"] for cell in cells} == {"standard (xla)"}


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_json(cost_row()).replace('"forward"', '"sideways"') + "\n")
    with pytest.raises(UserError, match=r"rows.jsonl, line 1: .*mode cannot be 'sideways'"):
        main([str(path)])


def test_figures_are_a_columns_width_and_the_same_bytes_again(tmp_path):
    fixed = {"benchmark": "fixed_tokens"}
    rows = [
        *(standard(n / 1024, n / 10, length=n) for n in (1024, 2048)),
        *(linformer(k, 1.0, length=1024, batch=2, **fixed) for k in (128, 256)),
    ]
    for (figure,) in (section.figures for section in sections_of(rows)):
        one, two = (save(figure, tmp_path / name) for name in ("one", "two"))
        with Image.open(one[0]) as image:
            assert image.width == pytest.approx(3.3 * 300, abs=2)
        assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


@pytest.mark.parametrize(("length", "smaller"), [(8, False), (40, True), (120, True)])
def test_long_labels_of_a_legend_have_smaller_letters_and_fit(length, smaller):
    name = {"method": "M" * length, "label": "M" * length, "options": {}}
    rows = [cost_row(n / 1024, n / 10, length=n, **name) for n in (2048, 4096, 8192)]
    drawn = draw(sections_of(rows)[0].figures[0])
    (legend,) = drawn.legends
    extent = legend.get_window_extent(drawn.canvas.get_renderer())
    assert (legend.get_texts()[0].get_fontsize() < 7) == smaller
    assert 0 <= extent.x0 < extent.x1 <= drawn.bbox.x1


@pytest.mark.parametrize(
    ("other_lengths", "title"),
    [
        ((4096, 8192, 16384), "exponents fitted from 4k to 16k"),
        ((512, 1024, 4096), "exponents fitted from 4k to 16k, else in brackets"),
    ],
)
def test_the_legend_tells_which_lengths_exponents_are_of(other_lengths, title):
    rows = [standard(n / 1024, n / 10, length=n) for n in (4096, 8192, 16384)]
    rows += [cost_row(n / 1024, n / 10, length=n) for n in other_lengths]
    ((figure,),) = (section.figures for section in sections_of(rows))
    drawn = figure.draw()
    assert drawn.legends[0].get_title().get_text() == title
    assert all("n^{" in x.get_text() and x.get_parse_math() for x in drawn.legends[0].get_texts())
    pyplot.close(drawn)


def test_names_that_look_like_formulas_are_drawn_as_they_are():
    odd = {"method": r"my\cat", "label": r"my\cat-1 $a_{b}^\q$ $ {", "options": {}}
    rows = [cost_row(n / 1024, n / 10, length=n, **odd) for n in (2048, 4096, 8192)]
    rows += [standard(n / 1024, n / 10, length=n) for n in (2048, 4096, 8192)]
    ((section,),) = (list(sections_of(rows)),)
    drawn = draw(section.figures[0])
    label = drawn.legends[0].get_texts()[-1].get_text()
    assert label == r"my\cat-1 \$a_{b}^\q\$ \$ {: time $n^{1.00}$, memory $n^{1.00}$"


@pytest.mark.parametrize(("seconds", "batch"), [(1e-12, 10**12), (1e15, 1)])
def test_the_least_and_the_most_that_rows_can_have_are_drawn(tmp_path, seconds, batch):
    path = tmp_path / "rows.jsonl"
    rows = [cost_row(seconds, seconds, length=n, batch=batch) for n in (1, 10**12 - 1, 10**12)]
    path.write_text("".join(f"{to_json(row)}\n" for row in rows))
    main([str(path), f"--out={tmp_path / 'out'}"])
    assert list((tmp_path / "out" / "figures").glob("*.png"))


@pytest.mark.slow
def test_ten_thousand_rows_take_less_than_five_seconds(tmp_path):
    path = tmp_path / "rows.jsonl"
    lengths = [512 * 2**i for i in range(8)]
    cases = itertools.product(range(20), lengths, ("forward", "forward_backward"), (64, 768))
    with open(path, "w") as file:
        for run, length, mode, dim in cases:
            for size in range(16):
                values = {"length": length, "mode": mode, "dim": dim, "run": str(run)}
                row = linformer(2**size, **values) if size else standard(**values)
                file.write(to_json(row) + "\n")
    command = [sys.executable, "-m", "lra.report", str(path)]
    before = os.times().children_user
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert os.times().children_user - before < 5
    assert shown.count("1,000 (3.00×)") == 2 * 2 * 15 * 8
