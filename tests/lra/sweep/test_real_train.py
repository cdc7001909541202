"""A sweep with the real train.py, from the data to the report."""

from lra import records
from lra.evaluation import evaluate_workdir
from lra.report import __main__ as report
from lra.sweep.__main__ import main
from tests.lra.conftest import ONE_DEVICE, TINY, write_listops

SWEEP = """
RUNS = [{"config": "configs/listops.py:linear", "seeds": (0, 1)}]
"""


def test_rows_of_a_real_training_become_a_report(tmp_path, monkeypatch, capsys):
    write_listops(tmp_path / "data")
    (tmp_path / "sweep.py").write_text(SWEEP)
    results, workdir = tmp_path / "rows.jsonl", tmp_path / "runs"
    monkeypatch.setenv("XLA_FLAGS", "")  # of this process, for several devices
    argv = [
        str(tmp_path / "sweep.py"),
        f"--results={results}",
        f"--workdir={workdir}",
        f"--data_dir={tmp_path / 'data'}",
        *(f"--config.{override}" for override in (*TINY, *ONE_DEVICE)),
    ]
    assert main(argv) == 0
    rows = records.read(results)
    assert [(row.attention, row.seed, row.status, row.steps) for row in rows] == [
        ("linear", 0, "ok", 12),
        ("linear", 1, "ok", 12),
    ]
    assert "running; its progress is in" in capsys.readouterr().err
    assert main(argv) == 0
    assert records.read(results) == rows
    assert "running" not in capsys.readouterr().err

    report.main([str(results), f"--out={tmp_path / 'report'}"])
    page = (tmp_path / "report" / "RESULTS.md").read_text()
    mean = 100 * (rows[0].test_accuracy + rows[1].test_accuracy) / 2
    assert f"| {mean:.2f} ± " in page
    capsys.readouterr()

    (folder,) = (path for path in workdir.iterdir() if (path / "rows.jsonl").exists())
    evaluate_workdir(folder)
    for row, line in zip(rows, capsys.readouterr().out.splitlines(), strict=True):
        assert f"seed {row.seed}: test accuracy {row.test_accuracy:.4f}" in line
