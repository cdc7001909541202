"""Runs of a sweep are executed by a stand-in for train.py: each once, whatever happens to whom."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import filelock
import pytest

from lra.errors import UserError
from lra.settings import CONFIGS
from lra.sweep import child, runner
from lra.sweep.__main__ import main
from lra.sweep.child import Ended
from tests.lra.sweep.place import ONE_RUN, fake, write_data


def test_every_run_is_executed_once_in_order(place):
    assert place.run() == 0
    assert [(row.attention, row.seed) for row in place.rows()] == [
        (attention, seed) for attention in ("standard", "nystrom", "linformer") for seed in (0, 1)
    ]
    assert [row.protocol for row in place.rows()][::2] == [
        "table3",
        "changed: model.attention.num_landmarks=32",
        "changed: train.steps=6000",
    ]
    assert place.run() == 0
    assert len(place.starts()) == 3


def test_children_share_a_compile_cache_unless_the_user_has_one(place, monkeypatch):
    place.file.write_text(ONE_RUN)
    place.run("--config.seeds=(2,)")
    assert [row.seed for row in place.rows()] == [2]
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    place.run()
    assert [row.seed for row in place.rows()] == [2, 0, 1]
    caches = [start["cache"] for start in place.starts()]
    assert caches == [str(place.workdir / "compile_cache"), "/elsewhere"]


def test_only_seeds_without_rows_are_trained(place):
    place.file.write_text(ONE_RUN)
    place.run()
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    assert place.run() == 0
    assert [row.seed for row in place.rows()] == [0, 1, 2]
    assert "--config.seeds=(2,)" in place.starts()[1]["argv"]


def test_other_data_are_other_runs(place):
    place.file.write_text(ONE_RUN)
    place.run()
    write_data(place.root / "data", "listops", mark="my own")
    place.run()
    assert [row.data for row in place.rows()] == ["generated"] * 2 + ["my own"] * 2


def test_overrides_for_all_runs_come_last(place):
    place.file.write_text(ONE_RUN.replace("}", ", 'train.steps': 6000}"))
    place.run("--config.train.steps=7000")
    assert {row.steps for row in place.rows()} == {7000}
    (start,) = place.starts()
    assert [word for word in start["argv"] if "steps" in word] == ["--config.train.steps=7000"]


def test_overrides_for_all_runs_replace_tuples_of_the_file(place):
    place.file.write_text(
        "RUNS = [{'config': 'configs/listops.py:linformer', 'seeds': (0, 1),"
        " 'model.attention.share': ('kv', 'heads')}]"
    )
    assert place.run("--config.seeds=(3,)", "--config.model.attention.share", "('layers',)") == 0
    assert [row.seed for row in place.rows()] == [3]
    assert place.rows()[0].config_overrides == {"model.attention.share": ["layers"]}
    place.file.write_text("RUNS = [{'config': 'configs/listops.py:standard', 'seeds': (0, 1)}]")
    assert place.run("--config.seeds=(0,)") == 0
    assert [row.seed for row in place.rows()] == [3, 0]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("crash", "RuntimeError: INTERNAL: a mistake of XLA"),
        ("killed", "killed by SIGKILL after: no output"),
        ("refuse", "no such landmarks"),
        ("no rows", "train.py ended without writing rows"),
    ],
)
def test_a_failed_run_is_recorded_with_its_reason(place, behaviour, reason, capfd):
    place.file.write_text(ONE_RUN)
    assert place.run(standard=behaviour) == 1
    assert [(row.status, row.seed, row.error) for row in place.rows()] == [
        ("failed", 0, reason),
        ("failed", 1, reason),
    ]
    said = capfd.readouterr().err
    assert f"failed: {reason}" in said
    log = next(place.workdir.glob("*/log.txt"))
    assert f"listops standard, seeds 0 1: running; its progress is in {log}\n" in said


def test_a_failed_run_does_not_stop_the_rest_and_is_tried_again(place):
    assert place.run(nystrom="crash") == 1
    assert [row.status for row in place.rows()] == ["ok", "ok", "failed", "failed", "ok", "ok"]
    assert place.run() == 0
    assert [row.status for row in place.rows()] == ["ok"] * 6
    assert len(place.starts()) == 4


def test_a_run_whose_folder_is_removed_does_not_stop_the_rest(place):
    assert place.run(standard="vanish") == 1
    assert [row.status for row in place.rows()] == ["failed", "failed", "ok", "ok", "ok", "ok"]
    assert place.rows()[0].error == "RuntimeError: INTERNAL: no folder"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".sweep.lock",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("log.txt", "metrics.jsonl")),
    ],
)
def test_a_folder_that_cannot_be_used_does_not_stop_the_rest(place, name, capsys):
    assert place.run(standard="refuse", nystrom="refuse", linformer="refuse") == 1
    folder = next(place.workdir.glob("listops-standard-*"))
    if name:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
    else:
        shutil.rmtree(folder)
        folder.write_text("a file")
    place.results.unlink()
    assert place.run("--dry_run") == 0
    capsys.readouterr()
    assert place.run() == 1
    statuses = {(row.attention, row.status) for row in place.rows()}
    assert statuses == {("standard", "failed"), ("nystrom", "ok"), ("linformer", "ok")}
    assert "directory" in place.rows()[0].error or "File exists" in place.rows()[0].error


def test_a_folder_that_cannot_be_written_is_told_before_data_are_generated(place):
    shutil.rmtree(place.root / "data")
    place.workdir.write_text("a file")
    with pytest.raises(UserError, match=r"--workdir: .*runs is a file, not a folder"):
        place.run()
    assert not (place.root / "data").exists()


def test_a_diverged_run_is_done(place, capsys):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="diverge") == 0
    assert "listops standard, seeds 0 1: diverged diverged (" in capsys.readouterr().err
    assert [row.status for row in place.rows()] == ["diverged"] * 2
    assert place.run() == 0
    assert len(place.starts()) == 1


def test_the_reason_is_the_exception_and_not_what_follows_it():
    output = (
        "step 50/500: validation accuracy 0.2\nTraceback (most recent call last):\n"
        "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n"
        "--------------------\nFor simplicity, JAX has removed its internal frames"
    )
    assert Ended(1, output, None).reason() == (
        "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory"
    )
    during = "During handling of the above exception, another exception occurred:"
    output = f"KeyError: 'x'\n\n{during}\n\nRuntimeError: no x\n"
    assert Ended(1, output, None).reason() == "RuntimeError: no x"
    assert Ended(3, "one\ntwo\n", None).reason() == "exit status 3 after: two"


def test_the_reason_is_none_of_an_earlier_start(place):
    place.file.write_text(ONE_RUN)
    assert place.run(standard="crash") == 1
    assert place.run(standard="killed") == 1
    assert {row.error for row in place.rows()} == {"killed by SIGKILL after: no output"}


def test_a_signal_without_a_name_has_its_number():
    assert Ended(-40, "step 3", None).reason() == "killed by signal 40 after: step 3"


def test_a_train_of_someone_else_that_comes_first_is_waited_for(place, monkeypatch, capsys):
    """Started by hand, it took the folder while ours was loading, which then refused to train."""
    place.file.write_text(ONE_RUN)
    locks, real = [], child.run

    def overtaken(command, log, variables):
        if not locks:
            locks.append(filelock.FileLock(log.parent / ".lock"))
            locks[0].acquire()
            return Ended(2, "error: another process is training in this workdir", None)
        locks[0].release()
        return real(command, log, variables)

    monkeypatch.setattr(child, "run", overtaken)
    monkeypatch.setattr(runner.time, "sleep", lambda _: locks[0].release())
    assert place.run() == 0
    assert "waiting for 1 run executed elsewhere" in capsys.readouterr().err
    assert [row.status for row in place.rows()] == ["ok", "ok"]


def test_programs_that_cannot_be_read_leave_the_compile_cache(place, monkeypatch):
    """JAX never writes one again: each start would compile it anew."""
    place.file.write_text(ONE_RUN)
    cache = place.workdir / "compile_cache"
    cache.mkdir(parents=True)
    for name in ("jit_train-1-cache", "jit_train-1-atime", "jit_init-2-cache"):
        (cache / name).touch()
    real = child.run

    def warned(*arguments):
        ended = real(*arguments)
        warning = "UserWarning: Error reading persistent compilation cache entry for 'jit_train': "
        return ended._replace(output=f"{warning}ZstdError: truncated stream\n{ended.output}")

    monkeypatch.setattr(child, "run", warned)
    assert place.run() == 0
    assert [path.name for path in cache.iterdir()] == ["jit_init-2-cache"]


def test_a_reason_that_is_no_text_leaves_the_results_readable(place, monkeypatch):
    """It may name a path, and paths are bytes."""
    reason = b"error: cannot write caf\xe9".decode(errors="surrogateescape")
    monkeypatch.setattr(child, "run", lambda *_: Ended(2, reason, None))
    place.file.write_text(ONE_RUN)
    assert place.run() == 1
    assert {row.error for row in place.rows()} == {r"cannot write caf\udce9"}


def test_rows_written_without_the_sweep_are_taken_in(place, capsys):
    place.run("--launcher=print", "--budget_minutes=30")
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 3
    assert not place.starts()
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "env"
        assert f" {shlex.join(fake())} " in command
        assert "--budget_minutes=30.000" in words
        place.workdir.mkdir(exist_ok=True)
        subprocess.run(words, check=True)
    assert {start["cache"] for start in place.starts()} == {str(place.workdir / "compile_cache")}
    assert place.run() == 0
    assert len(place.rows()) == 6
    assert len(place.starts()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="needs xargs -d, which is GNU's")
def test_printed_commands_run_from_any_folder_as_help_says(place, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        place.run("--help")
    recipe = re.search(r"--launcher=print \| (xargs .*)", capsys.readouterr().out)[1]
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path.cwd()))
    config = place.root / "configs"
    config.mkdir()
    for name in ("default", "listops"):
        shutil.copy(f"configs/{name}.py", config)
    monkeypatch.chdir(place.root)
    flags = ["--workdir=runs", "--data_dir=data", "--launcher=print"]
    assert main(["sweep.py", "--results=results.jsonl", *flags], train=fake()) == 0
    place.workdir.mkdir()
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    lines = capsys.readouterr().out.encode()
    subprocess.run(recipe, shell=True, input=lines, cwd=elsewhere, check=True)
    assert place.run() == 0
    assert (len(place.rows()), len(place.starts())) == (6, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="needs xargs -d, which is GNU's")
@pytest.mark.skipif(
    not shutil.which("bash"), reason="needs bash, a shell that its command replaces"
)
def test_the_recipe_goes_on_after_a_command_that_is_killed(place, tmp_path, capsys):
    with pytest.raises(SystemExit):
        place.run("--help")
    recipe = re.search(r"--launcher=print \| (xargs .*)", capsys.readouterr().out)[1]
    (tmp_path / "sh").symlink_to(shutil.which("bash"))
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    lines = "".join(f"env A=1 sh -c 'touch {tmp_path}/{n}; kill -9 $$'\n" for n in range(4))
    assert subprocess.run(recipe, shell=True, input=lines.encode(), env=env).returncode == 123
    assert all((tmp_path / str(n)).exists() for n in range(4))


def test_printed_commands_name_configs_of_the_checkout_from_anywhere(place, monkeypatch, capsys):
    monkeypatch.chdir(place.root)
    assert place.run("--launcher=print") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        spec = next(word for word in shlex.split(line) if word.startswith("--config="))
        assert spec.startswith(f"--config={CONFIGS}/listops.py:")


def test_printed_commands_name_the_folders_that_the_sweep_means(place, monkeypatch, capsys):
    """Whose `..` behind a link is the folder above the link's target."""
    monkeypatch.chdir(place.root)
    (place.root / "far" / "deep").mkdir(parents=True)
    (place.root / "link").symlink_to("far/deep")
    (place.root / "data").rename(place.root / "far" / "data")
    assert place.run("--launcher=print", "--data_dir=link/../data") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert f"--data_dir={place.root}/link/../data" in shlex.split(line)


def test_printed_commands_leave_the_run_to_start_from_as_it_is(place, capsys):
    """A relative one is part of the run's identity."""
    place.file.write_text(ONE_RUN)
    place.run("--launcher=print", "--config.train.init_from=runs/easy")
    assert "--config.train.init_from=runs/easy" in shlex.split(capsys.readouterr().out)


def test_printed_commands_leave_the_cache_of_the_user(place, capsys, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    assert place.run("--launcher=print") == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 3
    assert "JAX_COMPILATION_CACHE_DIR" not in said


def test_a_printed_command_trains_the_seeds_without_rows(place, capsys):
    place.file.write_text(ONE_RUN)
    place.run()
    place.file.write_text(ONE_RUN.replace("(0, 1)", "(0, 1, 2)"))
    capsys.readouterr()
    place.run("--launcher=print")
    assert shlex.split(capsys.readouterr().out)[-1] == "--config.seeds=(2,)"


def test_printed_commands_have_their_paths_to_the_byte(place, capfdbinary):
    place.file.write_text(ONE_RUN)
    name = os.fsdecode(b"caf\xe9")
    place.run("--launcher=print", f"--workdir={place.root / name}")
    (line,) = capfdbinary.readouterr().out.splitlines()
    assert b"/caf\xe9/listops-standard" in line


def test_a_path_with_a_line_break_makes_no_command(place):
    with pytest.raises(UserError, match="a path with a line break makes no command of one line"):
        place.run("--launcher=print", f"--workdir={place.root}/a\nb")


def test_what_a_sweep_file_prints_is_no_command(place, capsys):
    place.file.write_text(f"print('rm everything')\n{ONE_RUN}")
    place.run("--launcher=print")
    said = capsys.readouterr()
    assert "rm everything" in said.err
    assert [line.startswith("env ") for line in said.out.splitlines()] == [True]


def test_a_reason_has_no_colours(place, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    place.file.write_text(ONE_RUN)
    assert place.run(standard="crash") == 1
    assert {row.error for row in place.rows()} == {"RuntimeError: INTERNAL: a mistake of XLA"}
