import argparse
import os
import pathlib
import runpy
import shlex
import subprocess
import sys

import pytest

from lra import command_line
from lra.command_line import (
    STATUS_INTERRUPTED,
    ArgumentParser,
    file_to_write,
    folder,
    integer_from_0,
    literal,
    parse_with_overrides,
    positive_integers,
    positive_minutes,
    positive_number,
    run,
)
from lra.errors import STATUS_BAD_INPUT, UserError
from lra.near_names import near_match

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ended(main, argv=()):
    with pytest.raises(SystemExit) as end:
        run(main, list(argv))
    return end.value.code


def raising(error):
    def main(argv):
        raise error

    return main


def parser():
    made = ArgumentParser(prog="x")
    made.add_argument("task", choices=("listops", "text"))
    made.add_argument("--data_dir", required=True)
    made.add_argument("--steps", type=int, default=1)
    return made


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("listop", ["text", "listops"], " (did you mean 'listops'?)"),
        ("zzz", ["text", "listops"], " (known: listops, text)"),
        ("zzz", [], ""),
    ],
)
def test_near_match(name, known, expected):
    assert near_match(name, known) == expected


@pytest.mark.parametrize("text", ["many", "4h", "(1", "{[]: 1}", "[" * 300])
def test_what_is_no_literal_is_text(text):
    assert literal("(1, 'a')") == (1, "a")
    assert literal(text) == text


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (3, 3)])
def test_status_is_what_main_returns(returned, status):
    assert ended(lambda argv: returned) == status


def test_main_gets_the_arguments():
    assert ended(lambda argv: len(argv), ["a", "b"]) == 2


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("no such\n  thing"), "error: no such thing\n"),
        (FileNotFoundError(2, "No such file", "a/b"), "error: No such file: a/b\n"),
        (
            OSError(28, "No space left on device"),
            "error: No space left on device; free some space and run it again\n",
        ),
        (
            OSError(27, "File too large", "a/b"),
            "error: File too large: a/b; raise the limit on the size of a file (ulimit -f) and run "
            "it again\n",
        ),
        (OSError("only words"), "error: only words\n"),
        (
            RuntimeError("INTERNAL: dispatch: Out of memory allocating 9 bytes."),
            "error: out of memory (INTERNAL: dispatch: Out of memory allocating 9 bytes.)\n",
        ),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore"),
            "error: out of memory (RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.)\n",
        ),
    ],
)
def test_expected_errors_are_one_line(error, line, capsys):
    assert ended(raising(error)) == STATUS_BAD_INPUT
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("train.py", "train.microbatches=2"),
        ("eval.py", "a smaller --eval_batch_size needs less"),
        ("lra/analysis/__main__.py", "a smaller --length or fewer --examples"),
        ("benchmarks/speed_memory.py", "shorter --lengths or a smaller --batch"),
        ("benchmarks/standard_memory.py", "shorter --lengths or a smaller --batch"),
        ("benchmarks/module_profile.py", "a smaller --length or --batch"),
        ("benchmarks/torch_train_step.py", "a smaller --length or --batch"),
        ("benchmarks/train_step.py", "a smaller --batch or fewer --seeds"),
        ("benchmarks/first_steps.py", "a smaller --batch"),
    ],
)
def test_a_lack_of_memory_is_told_with_what_the_command_has_against_it(
    command, cure, monkeypatch, capsys
):
    def fail(main, **options):
        run(raising(MemoryError()), [], **options)

    monkeypatch.setattr(command_line, "run", fail)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / command), run_name="__main__")
    assert end.value.code == STATUS_BAD_INPUT
    line = capsys.readouterr().err
    assert line.startswith(f"error: out of memory (MemoryError); {cure}")
    assert ("train." in cure) == ("train." in line)


def test_mistakes_of_the_program_keep_their_traceback():
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run(raising(RuntimeError("a mistake of ours")), [])


def test_a_package_that_is_not_installed_is_one_line(capsys):
    error = ModuleNotFoundError("No module named 'absent'", name="absent.part")
    assert ended(raising(error)) == STATUS_BAD_INPUT
    line = f"error: the package absent is missing in {sys.executable}; run make install"
    assert capsys.readouterr().err.startswith(line)


@pytest.mark.parametrize("name", ["lra.nothing", "models.nothing", None])
def test_a_module_of_ours_that_is_missing_keeps_its_traceback(name):
    with pytest.raises(ModuleNotFoundError):
        run(raising(ModuleNotFoundError("No module", name=name)), [])


def test_an_interrupt_has_its_own_status(capsys):
    assert ended(raising(KeyboardInterrupt())) == STATUS_INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_is_told_by_the_status_alone():
    code = (
        "from lra.command_line import run\n"
        "run(lambda argv: [print('x' * 100) for _ in range(10_000)] and None)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_closed_streams_end_nothing():
    for closed, status in ((">&-", 0), ("2>&-", 3)):
        code = f"from lra.command_line import run; run(lambda argv: print('done') or {status})"
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {closed}"
        done = subprocess.run(command, shell=True, capture_output=True)
        assert (done.returncode, done.stderr) == (status, b"")


def test_arguments_are_parsed():
    options = parser().parse_args(["text", "--data_dir=d", "--steps", "3"])
    assert vars(options) == {"task": "text", "data_dir": "d", "steps": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text"], "arguments are required: --data_dir; see --help"),
        (["text", "--data_dri=d"], r"unknown flag --data_dri \(did you mean '--data_dir'\?\)"),
        (["text", "--data_dir=d", "--step=3"], r"unknown flag --step \(did you mean '--steps'"),
        (["text", "--data_dir=d", "--steps=x"], "argument --steps: invalid int value: 'x'"),
        (["image", "--data_dir=d"], "argument task: invalid choice: 'image'"),
        (["text", "more", "--data_dir=d"], "unrecognized arguments: more"),
    ],
)
def test_bad_arguments_are_user_errors(arguments, message):
    with pytest.raises(UserError, match=message):
        parser().parse_args(arguments)


def test_overrides_are_told_from_flags():
    options, overrides = parse_with_overrides(
        parser(),
        ["text", "--config.train.steps=5", "--data_dir=d", "--config.seeds", "(0,1)"],
    )
    assert options.data_dir == "d"
    assert overrides == ["train.steps=5", "seeds=(0,1)"]
    _, overrides = parse_with_overrides(parser(), ["text", "--data_dir=d", "--config.x"])
    assert overrides == ["x"]
    _, overrides = parse_with_overrides(parser(), ["text", "--data_dir=d", "--config.x", "-1"])
    assert overrides == ["x=-1"]
    with pytest.raises(
        UserError, match=r"^--config\.x is followed by --data_dir=d, not by its value"
    ):
        parse_with_overrides(parser(), ["text", "--config.x", "--data_dir=d"])


@pytest.mark.parametrize("name", ["train.steps", "seeds", "model.attention.num_landmarks"])
def test_a_key_in_the_place_of_a_flag_is_said_to_be_one(name):
    with pytest.raises(UserError, match=rf"unknown flag --{name} .*mean '--config\.{name}'"):
        parse_with_overrides(parser(), ["text", "--data_dir=d", f"--{name}=3"])


@pytest.mark.parametrize(
    ("name", "key"), [("eval_every", "train.eval_every"), ("num_layers", "model.num_layers")]
)
def test_a_key_without_its_section_is_said_to_be_one(name, key):
    with pytest.raises(UserError, match=rf"unknown flag --{name} .*mean '--config\.{key}'"):
        parse_with_overrides(parser(), ["text", "--data_dir=d", f"--{name}=3"])


@pytest.mark.parametrize("name", ["train", "attention", "stepz", "foo.bar", "seeds.x", ""])
def test_other_flags_are_not(name):
    with pytest.raises(UserError, match=f"unknown flag --{name}") as error:
        parse_with_overrides(parser(), ["text", "--data_dir=d", f"--{name}=3"])
    assert "--config" not in str(error.value)


def test_a_file_to_write_needs_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("new.npz", str(tmp_path / "new.npz")):
        assert file_to_write(text) == text
    with pytest.raises(argparse.ArgumentTypeError, match="there is no folder nowhere/deep"):
        file_to_write("nowhere/deep/new.npz")
    with pytest.raises(argparse.ArgumentTypeError, match="it is a folder"):
        file_to_write(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(argparse.ArgumentTypeError, match="it is no regular file"):
        file_to_write("pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path))
    with pytest.raises(argparse.ArgumentTypeError, match=f"nothing can be written to {tmp_path}"):
        file_to_write("new.npz")


def test_a_folder_may_be_new_but_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "new"):
        assert folder(str(path)) == str(path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(argparse.ArgumentTypeError, match="/file is a file, not a folder"):
            folder(str(path))


def test_no_value_is_empty():
    with pytest.raises(UserError, match="data_dir is empty; give it a value or leave it out"):
        parser().parse_args(["text", "--data_dir="])


def test_numbers_that_measure_and_count():
    assert positive_number("1e-3") == 0.001
    for text in ("0", "-1", "nan", "inf", "x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a positive number"):
            positive_number(text)
    assert [integer_from_0(text) for text in ("0", "7")] == [0, 7]
    for text in ("-1", "1.5", "x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="is not 0 or a positive integer"):
            integer_from_0(text)


def test_positive_minutes():
    assert positive_minutes("0.5") == 0.5
    for text in ("0", "-1", "inf", "nan", "soon", "1e308"):
        message = f"'{text}' is not a positive number of minutes"
        with pytest.raises(argparse.ArgumentTypeError, match=message):
            positive_minutes(text)


def test_positive_integers():
    assert positive_integers("1,20") == [1, 20]
    for text in ("0", "-1", "1.5", "many", "", "9" * 5000):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a positive integer"):
            positive_integers(f"3,{text}")


def test_a_tilde_after_an_equals_sign_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder("~/data") == f"{tmp_path}/data"
    assert file_to_write("~/rows.jsonl") == f"{tmp_path}/rows.jsonl"
