"""The command: a run analysed from its folder to its pictures, and what is refused."""

import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from lra.analysis import analyse, methods
from lra.analysis.__main__ import main
from lra.analysis.error_pictures import draw_errors
from lra.analysis.matrix_pictures import HeatMap, draw_spectrum
from lra.analysis.page import figures
from lra.errors import UserError
from lra.loop import train
from lra.stopping import STATUS_STOPPED, Stop
from models.attention import ATTENTIONS
from models.attention.contract import Attention
from models.attention.standard import standard_attention

pytestmark = pytest.mark.usefixtures("shared_programs")

ROOT = Path(__file__).resolve().parents[3]
FIGURES = (
    "error-matrix",
    "error-output",
    "nystrom-iterations",
    "heat-maps",
    "spectrum",
    "theorem1",
)


@pytest.fixture(scope="module")
def workdir(tiny_config, data_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(tiny_config("listops", "linformer", "seeds=(0, 2)"), folder, data_dir) == 0
    return folder


def test_a_run_is_analysed_to_its_pictures(workdir, capsys):
    main([f"--workdir={workdir}", "--seed=2", "--methods=nystrom,linformer", "--sizes=4,99"])
    out = workdir / "analysis"
    rows = [json.loads(line) for line in (out / "analysis.jsonl").read_text().splitlines()]
    about = rows[0]
    assert (about["kind"], about["task"], about["attention"]) == ("run", "listops", "linformer")
    assert about["seed"] == 2
    assert about["step"] in (5, 10, 12)
    assert about["parameters"] == "best"
    kinds = {(row["kind"], row["data"]) for row in rows[1:]}
    assert kinds == {
        (kind, data)
        for kind in ("approximation", "iterations", "spectrum", "theorem1", "features")
        for data in ("random", "trained")
    }
    own = [row for row in rows[1:] if row.get("variant") == "own"]
    assert [(row["layer"], row["head"], row["size"]) for row in own] == [(0, 0, 8), (0, 1, 8)]
    for name in FIGURES:
        with Image.open(out / "figures" / f"{name}.png") as image:
            assert np.asarray(image.convert("L")).std() > 5  # something is drawn
        ElementTree.parse(out / "figures" / f"{name}.svg")
        assert f"figures/{name}.png" in (out / "ANALYSIS.md").read_text()
    printed = capsys.readouterr().out
    assert "num_landmarks = 99 is left out" in printed
    assert "Linformer's Theorem 1" in printed
    assert "best on the validation set" in printed
    assert str(out / "ANALYSIS.md") in printed
    assert "in training they served its own attention" in (out / "ANALYSIS.md").read_text()


def test_the_last_step_is_analysed_on_demand(workdir, tmp_path, capsys):
    main([f"--workdir={workdir}", "--last", "--methods=linear", f"--out={tmp_path}"])
    about = json.loads((tmp_path / "analysis.jsonl").read_text().splitlines()[0])
    assert (about["parameters"], about["step"]) == ("last", 12)
    assert "parameters of step 12 (the last one)" in capsys.readouterr().out


def test_parameters_are_not_best_before_a_validation(tiny_config, data_dir, tmp_path):
    config = tiny_config("listops", "linear")
    assert train(config, tmp_path, data_dir, stop=Stop(1e-9)) == STATUS_STOPPED
    with pytest.raises(UserError, match=r"seed 0 has no validation yet \(step 0\), .*--last"):
        main([f"--workdir={tmp_path}"])
    assert not (tmp_path / "analysis").exists()


def row_of(method, size, variant=""):
    errors = dict.fromkeys(("matrix_error", "output_error"), 0.5)
    best = {f"best_rank_{name}": value for name, value in errors.items()}
    row = {"kind": "approximation", "data": "trained", "method": method, "variant": variant}
    option = {"nystrom": "num_landmarks", "linformer": "proj_dim", "linear": ""}[method]
    return row | {"option": option, "size": size} | errors | best


@pytest.mark.parametrize(
    ("own", "starred"), [("nystrom", True), ("linformer", False), ("linear", False)]
)
def test_a_star_is_promised_where_one_is_drawn(own, starred):
    """Not for an attention without a size, or without a panel."""
    from matplotlib import pyplot

    rows = [{"kind": "run", "length": 8}, row_of("nystrom", 4), row_of("nystrom", 8)]
    rows.append(row_of(own, 0 if own == "linear" else 4, "own"))
    maps = [HeatMap("trained", 0, 0, 4, 0.5, np.eye(8), np.eye(8))]
    assert ["Star:" in figure.caption for figure in figures(rows, maps)[:2]] == [starred] * 2
    drawn = draw_errors(rows, "matrix_error")
    (legend,) = drawn.legends
    assert ("the model's own" in [text.get_text() for text in legend.texts]) == starred
    assert ("*" in [line.get_marker() for line in drawn.axes[0].lines]) == starred
    pyplot.close(drawn)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--methods=linear", "--methods=nystrom --sizes=9999"])
def test_without_a_curve_the_other_figures_are_drawn(arguments, tmp_path):
    main(["--random", f"--out={tmp_path}", "--length=8", "--examples=1", *arguments.split()])
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert drawn == set(FIGURES) - {"error-matrix", "error-output"}
    assert "error-" not in (tmp_path / "ANALYSIS.md").read_text()


def test_a_run_without_checkpoint_is_refused(workdir, tmp_path):
    for name in ("config.json", "run.json"):
        shutil.copy(workdir / name, tmp_path)
    with pytest.raises(UserError, match="no checkpoint"):
        main([f"--workdir={tmp_path}"])
    assert not (tmp_path / "analysis").exists()


@pytest.mark.parametrize("length", [1, 5])
def test_too_few_positions_are_refused(workdir, length):
    with pytest.raises(UserError, match=f"{length} positions are too few"):
        main([f"--workdir={workdir}", f"--length={length}"])


@pytest.mark.parametrize("real", [0, 1])
def test_examples_without_two_real_positions_are_refused(real, workdir, tmp_path, monkeypatch):
    """As images that begin with black pixels may be, cut short."""
    read = analyse.trained_inputs

    def masked(*args, **options):
        found = read(*args, **options)
        mask = np.zeros_like(found.inputs.mask)
        mask[:, :real] = True
        return found._replace(inputs=found.inputs._replace(mask=mask))

    monkeypatch.setattr(analyse, "trained_inputs", masked)
    with pytest.raises(UserError, match=f"only {real} of .* positions that are no padding"):
        main([f"--workdir={workdir}", f"--out={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "--workdir=DIR of a training is needed"),
        (["--random"], "--random needs --out"),
        (["--random", "--workdir=x"], "--random takes no --workdir"),
        (["--random", "--out=x", "--seed=0"], "--random takes no --seed"),
        (["--random", "--out=x", "--last"], "--random takes no --last"),
        (["--random", "--out=x", "--data_dir=data"], "--random takes no --data_dir"),
        (["--workdir=nowhere"], "nowhere holds no run"),
        (["--workdir=nowhere", "--methods=nystrm"], "did you mean 'nystrom'"),
        (["--workdir=nowhere", "--length=0"], "'0' is not a positive integer"),
        (["--workdir=nowhere", "--sizes=4,x"], "sizes"),
        (["--wrkdir=x"], "did you mean '--workdir'"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, expected):
    with pytest.raises(UserError, match=expected):
        main(arguments)


def test_many_layers_and_heads_are_drawn():
    """Labels thin out: one a layer beyond four heads."""
    from matplotlib import pyplot

    rows = [
        {
            "kind": "spectrum",
            "data": data,
            "layer": layer,
            "head": head,
            "length": 8,
            "at_quarter": 0.5,
            "cumulative": list(np.linspace(0.3, 1, 8)),
        }
        for data, layers, heads in (("random", 1, 1), ("trained", 12, 12))
        for layer in range(layers)
        for head in range(heads)
    ]
    drawn = draw_spectrum(rows)
    labels = drawn.axes[0].get_legend_handles_labels()[1]
    assert labels == [*(f"layer {i + 1}" for i in range(12)), "random q, k", "identity"]
    pyplot.close(drawn)


class Pooled(Attention):
    """Exact attention to the means of `stride` keys and values: an attention of one's own."""

    def __init__(self, *, length, heads, head_dim, layer=0, shared=None, rngs, stride: int = 2):
        self.stride = stride

    def __call__(self, q, k, v, mask, *, key=None):
        k, v = (
            jnp.repeat(x.reshape(x.shape[0], -1, self.stride, *x.shape[2:]).mean(2), self.stride, 1)
            for x in (k, v)
        )
        return standard_attention(q, k, v, mask)


@pytest.mark.slow
def test_an_attention_of_ones_own_needs_no_title_style_or_rank(tmp_path, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "pooled", Pooled)
    own = (*methods.METHODS, methods.Method("pooled", "stride"))
    monkeypatch.setattr(methods, "METHODS", own)
    arguments = ["--random", "--length=8", "--examples=1", "--methods=pooled,nystrom"]
    main([*arguments, "--sizes=2,4", f"--out={tmp_path}"])
    page = (tmp_path / "ANALYSIS.md").read_text()
    rows = map(json.loads, (tmp_path / "analysis.jsonl").read_text().splitlines())
    best = [row["best_rank_matrix_error"] for row in rows if row.get("method") == "pooled"]
    assert best
    assert set(best) == {None}
    assert re.search(r"\| pooled +\| +2 \| +– \| 0\.\d+ \| +– \|", page)
