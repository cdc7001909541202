"""Figures that other processes draw."""

import functools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from lra import records
from lra.report import figure_files
from lra.report.costs import sections
from lra.report.costs.sheets import sheets
from lra.report.figure_files import Figure, Rendered, drawn_ahead, render
from lra.report.figures import figures
from lra.report.groups import group
from tests.lra.cost_row_factory import PEER, cost_row, linformer, standard
from tests.lra.report.swept_rows import sweep_rows
from tests.lra.row_factory import make_row
from tests.lra.run_folder import write_run

# Draws nothing in four figures, each of which takes a second, and ends as `{end}` says meanwhile.
SCRIPT = """
import functools, multiprocessing, os, signal, time
from lra.command_line import run
from lra.report import figure_files

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
figures = [figure_files.Figure(f"{{n}}", "", functools.partial(time.sleep, 1)) for n in range(4)]

def main(arguments):
    with figure_files.drawn_ahead(figures, 2):
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        {end}

run(main)
"""


def some(number: int) -> list[Figure]:
    return [Figure(str(n), "", functools.partial(time.sleep, n)) for n in range(number)]


def test_other_processes_draw_the_same(tmp_path):
    """Every kind of figure, so that each can be sent to them."""
    lengths = (1024, 2048)
    costs = [standard(n / 1024, n / 10, length=n) for n in lengths]
    costs += [cost_row(1e-3, 1, length=n) for n in lengths]
    costs += [cost_row(2e-3, 2, length=n, **PEER) for n in lengths]
    costs += [linformer(128, length=n, batch=4096 // n, benchmark="fixed_tokens") for n in lengths]
    rows = [*sweep_rows(), make_row(0.5, attention="standard")]
    of_groups, of_runs = figures(group(rows), [str(write_run(tmp_path / "run"))])
    all_lists = [*of_groups, of_runs, *sections.figures(sheets(costs))]
    found = [figure for of_section in all_lists for figure in of_section]
    assert len(found) == 6
    with drawn_ahead(found, 2):
        assert all(figure.ahead for figure in found)
        drawn = [figure.rendered for figure in found]
    assert drawn == [render(figure.draw) for figure in found]


def test_few_figures_are_drawn_here():
    few, enough = some(3), some(4)
    with drawn_ahead(few, 2):
        assert not any(figure.ahead for figure in few)
    with drawn_ahead(enough, 2):
        assert all(figure.ahead for figure in enough)


def test_one_process_draws_here():
    with drawn_ahead(many := some(9), 1):
        assert not any(figure.ahead for figure in many)


def test_other_programs_draw_their_report_themselves(tmp_path):
    """Without `if __name__ == "__main__"`, which the processes would need."""
    rows = tmp_path / "rows.jsonl"
    changes = [{f"model.x{n}": value} for n in range(4) for value in (1, 2)]
    records.append(rows, [make_row(config_overrides=change) for change in changes])
    program = tmp_path / "program.py"
    arguments = [str(rows), f"--out={tmp_path / 'out'}"]
    program.write_text(f"from lra.report.__main__ import main\nmain({arguments})\nprint('once')\n")
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    script = [sys.executable, str(program)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("once") == 1
    assert done.stderr == ""
    assert len(list((tmp_path / "out" / "figures").glob("*.png"))) >= 4


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, NotImplementedError])
def test_without_semaphores_figures_are_drawn_here(monkeypatch, error):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(figure_files, "ProcessPoolExecutor", refuse)
    with drawn_ahead(many := some(9), 2):
        assert not any(figure.ahead for figure in many)


def test_where_no_process_can_be_started_figures_are_drawn_here(monkeypatch):
    class Pool(ProcessPoolExecutor):
        def _adjust_process_count(self):
            raise BlockingIOError("too many processes")

    monkeypatch.setattr(figure_files, "ProcessPoolExecutor", Pool)
    with drawn_ahead(many := some(9), 2):
        assert not any(figure.ahead for figure in many)


def test_what_a_killed_process_left_is_drawn_here(monkeypatch):
    monkeypatch.setattr(figure_files, "render", lambda draw: Rendered(b"", draw()))
    killed, failed = Future(), Future()
    killed.set_exception(BrokenProcessPool())
    assert Figure("", "", lambda: "here", killed).rendered.svg == "here"
    failed.set_exception(ValueError("of the drawing"))
    with pytest.raises(ValueError, match="of the drawing"):
        _ = Figure("", "", lambda: "here", failed).rendered


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        pytest.param("os.killpg(0, signal.SIGINT); time.sleep(60)", 130, marks=pytest.mark.slow),
        ("raise OSError('disk')", 2),
    ],
)
def test_processes_end_when_their_parent_does(end, status):
    script = [sys.executable, "-c", SCRIPT.format(end=end)]
    done = subprocess.run(script, start_new_session=True, capture_output=True, text=True)
    assert done.returncode == status
    if status >= 0:  # a kill leaves semaphores behind, which Python says
        assert done.stderr == ("error: disk\n" if status == 2 else "")
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    """Whether a process runs; those that ended without a parent may stay as zombies."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return os.path.exists(f"/proc/{pid}")
