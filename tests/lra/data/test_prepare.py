import collections
import subprocess
import sys
import types

import numpy as np
import pytest

from lra.data import prepare, prepared, request
from lra.data.summary import counts
from lra.errors import STATUS_BAD_INPUT, UserError
from lra.published import TABLE_TASKS

Usage = collections.namedtuple("Usage", "total used free")
SHORT = [
    "listops",
    *("--min_length=15", "--max_length=65", "--train=50", "--validation=10", "--test=10"),
]


def toy_module(sources=("generate",)):
    """A task that is prepared in no time; `calls` has the options of each time."""
    module = types.SimpleNamespace(SOURCES=sources, calls=[], broken=None)

    def add_arguments(parser):
        parser.add_argument("--size", type=int, default=3)

    def prepare_it(options, writer):
        module.calls.append(options)
        for split in prepared.SPLITS:
            count = writer.sequences(split, [bytes([options.seed])] * options.size)
            writer.array(f"{split}/labels.npy", np.zeros(count, np.int32))
        if module.broken:
            raise module.broken
        return writer.finish(
            data="generated",
            source="toy",
            counts=dict.fromkeys(prepared.SPLITS, options.size),
            max_length=1,
            seed=options.seed,
        )

    module.add_arguments = add_arguments
    module.prepare = prepare_it
    module.estimate = lambda options: prepared.Estimate(1_500_000, 12.3)
    return module


@pytest.fixture
def toy(monkeypatch):
    """The toy in the place of every task: only listops and pathfinder generate it."""
    modules = {
        name: toy_module(("generate",) if name in ("listops", "pathfinder") else ("download",))
        for name in request.MODULES
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"toy_{name}", module)
    monkeypatch.setattr(request, "MODULES", {name: f"toy_{name}" for name in modules})
    return modules


def command(data_dir, *arguments):
    return prepare.main([*arguments, f"--data_dir={data_dir}"])


@pytest.mark.parametrize(
    ("task", "source", "takes"),
    [
        ("listops", "tfds", r"PATH \| generate"),
        ("retrieval", "download", "PATH"),
        ("text", "generate", r"PATH \| tfds \| download"),
    ],
)
def test_a_source_of_other_tasks(task, source, takes, tmp_path):
    with pytest.raises(UserError, match=f"{task} has no --source={source}; it takes {takes}$"):
        prepare.main([task, f"--source={source}", f"--data_dir={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_the_command_prepares_and_says_what_it_did(tmp_path, capsys):
    assert command(tmp_path, *SHORT) == 0
    output = capsys.readouterr().out
    manifest = prepared.load(tmp_path, "listops").manifest
    assert f"listops: 50 train / 10 validation / 10 test in {tmp_path / 'listops'}\n" in output
    assert "data      differs (lengths 16 to 64, 50 / 10 / 10)\n" in output
    assert f"sha256    {manifest['sha256']}\n" in output
    assert "on disk   0.0 MB\n" in output
    assert " s, peak memory " in output


def test_the_module_runs_as_a_command(tmp_path):
    arguments = [sys.executable, "-m", "lra.data.prepare", *SHORT, f"--data_dir={tmp_path}"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "50 train" in done.stdout
    assert prepared.load(tmp_path, "listops").manifest["parameters"]["max_args"] == 10


def test_options_that_every_task_gets(tmp_path, toy):
    command(tmp_path, "text", "--source=download", "--workers=2", "--size=4")
    (options,) = toy["text"].calls
    assert vars(options) == {
        "task": "text",
        "data_dir": str(tmp_path),
        "raw_dir": None,
        "source": "download",
        "seed": 0,
        "workers": 2,
        "dry_run": False,
        "data_label": None,
        "size": 4,
    }


def test_the_same_request_is_kept(tmp_path, toy, capsys):
    for more in ([], [], ["--workers=3"], ["--source=generate"], ["--seed=0", "--size=3"]):
        assert command(tmp_path, "listops", *more) == 0
    assert len(toy["listops"].calls) == 1
    assert capsys.readouterr().out.count("prepared before with the same flags") == 4


def test_data_of_other_parameters_of_the_generator_are_made_again(tmp_path, toy, monkeypatch):
    parameters = {}
    monkeypatch.setattr(
        toy["listops"], "generated_parameters", lambda options: parameters, raising=False
    )
    for more, times in (({}, 1), ({}, 1), ({"dashes": (3, 4)}, 2)):
        parameters |= more
        command(tmp_path, "listops")
        assert len(toy["listops"].calls) == times


def test_values_of_flags_are_checked_as_those_of_the_command(tmp_path, toy):
    for flags, message in (
        ({"seed": -1}, "seed"),
        ({"workers": 0}, "workers"),
        ({"size": "many"}, "size"),
    ):
        with pytest.raises(UserError, match=f"--{message}"):
            prepare.prepare_task("listops", tmp_path, **flags)
    assert not toy["listops"].calls


@pytest.mark.parametrize("more", [["--seed=1"], ["--size=5"], ["--data_label=mine"]])
def test_another_request_replaces_and_says_so(tmp_path, toy, more, capsys):
    command(tmp_path, "listops")
    before = prepared.load(tmp_path, "listops").manifest
    assert "  replaces  " not in capsys.readouterr().out
    command(tmp_path, "listops", *more)
    assert capsys.readouterr().out.endswith(
        f"  replaces  {counts(before)}, {before['data']}, sha256 {before['sha256']}; another "
        "--data_dir keeps both\n"
    )
    assert len(toy["listops"].calls) == 2
    assert prepared.load(tmp_path, "listops").manifest["sha256"] != before["sha256"]


def test_data_that_were_prepared_while_waiting_for_the_lock_are_kept(tmp_path, toy, monkeypatch):
    real = prepare.TaskWriter

    def wait(*arguments):
        monkeypatch.setattr(prepare, "TaskWriter", real)
        command(tmp_path, "listops")
        return real(*arguments)

    monkeypatch.setattr(prepare, "TaskWriter", wait)
    command(tmp_path, "listops")
    assert len(toy["listops"].calls) == 1


def test_damaged_data_is_prepared_again(tmp_path, toy):
    command(tmp_path, "listops")
    (tmp_path / "listops" / "train" / "tokens.npy").unlink()
    command(tmp_path, "listops")
    path = tmp_path / "listops" / "train" / "tokens.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    command(tmp_path, "listops")
    assert len(prepared.load(tmp_path, "listops").split("train").labels) == 3


def test_the_order_of_images_is_part_of_the_request():
    requests = [
        request.request_of(request.options_of("image", "data", {"source": "tfds", "order": order}))
        for order in (None, "tfds")
    ]
    assert requests[0] != requests[1]


def test_files_are_read_again(tmp_path, toy):
    """They may have changed, and nothing of their path is kept."""
    for _ in range(2):
        command(tmp_path, "listops", f"--source={tmp_path}")
    assert len(toy["listops"].calls) == 2
    assert prepared.load(tmp_path, "listops").manifest["request"] is None
    command(tmp_path, "text")  # from the raw folder
    assert prepared.load(tmp_path, "text").manifest["request"] is None


def test_the_flags_to_make_it_again_are_kept(tmp_path, toy):
    command(tmp_path, "listops", "--seed=4", "--data_label=my own", "--workers=2", "--size=3")
    kept = prepared.load(tmp_path, "listops").manifest["flags"]
    assert kept == ["--seed=4", "'--data_label=my own'"]
    command(tmp_path, "listops", "--source=generate", "--seed=5")
    assert prepared.load(tmp_path, "listops").manifest["flags"] == ["--seed=5"]
    command(tmp_path, "listops", f"--source={tmp_path}")
    assert prepared.load(tmp_path, "listops").manifest["flags"] == ["--source=PATH"]
    command(tmp_path, "text", "--source=download")
    assert prepared.load(tmp_path, "text").manifest["flags"] == ["--source=download"]


@pytest.mark.parametrize("error", [UserError("bad line"), OSError("gone"), KeyboardInterrupt()])
def test_a_failure_leaves_the_earlier_data(tmp_path, toy, error):
    command(tmp_path, "listops")
    before = prepared.load(tmp_path, "listops").manifest
    toy["listops"].broken = error
    with pytest.raises(type(error)):
        command(tmp_path, "listops", "--seed=1")
    assert prepared.load(tmp_path, "listops").manifest == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".listops.lock", "listops"]


def test_no_space(tmp_path, toy, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage(10**7, 10**7, 10**6))
    with pytest.raises(UserError, match=r"listops needs 1.5 MB in .* where 1.0 MB are free; free"):
        command(tmp_path / "not" / "there", "listops")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_writes_nothing(tmp_path, toy, capsys):
    assert command(tmp_path / "data", "listops", "--dry_run") == 0
    assert capsys.readouterr().out.split() == (
        f"listops about 1.5 MB about 12 s in {tmp_path / 'data' / 'listops'}".split()
    )
    assert list(tmp_path.iterdir()) == []


def test_the_library_function_is_the_command(tmp_path, toy):
    manifest = prepare.prepare_task("listops", tmp_path, seed=3, size=2)
    assert manifest["counts"]["train"] == 2
    command(tmp_path, "listops", "--seed=3", "--size=2")
    assert len(toy["listops"].calls) == 1
    with pytest.raises(UserError, match=r"unknown flag --sizes of listops \(did you mean 'size'"):
        prepare.prepare_task("listops", tmp_path, sizes=2)
    with pytest.raises(UserError, match=r"unknown task 'listop' \(did you mean 'listops'\?\)"):
        prepare.prepare_task("listop", tmp_path)


def test_all_of_the_table(tmp_path, toy, capsys):
    """One is kept, one damaged and done again, two fail, in their order."""
    command(tmp_path, "listops", "--size=9")
    command(tmp_path, "image", "--source=download")
    (tmp_path / "image" / "train" / "labels.npy").write_bytes(b"")
    toy["text"].broken = UserError("no raw data for text: put it there")
    toy["retrieval"].broken = PermissionError(13, "Permission denied")
    capsys.readouterr()
    assert command(tmp_path, "all", "--seed=4", "--workers=1") == STATUS_BAD_INPUT
    output, errors = capsys.readouterr()
    assert "listops: kept, 9 train / 9 validation / 9 test, generated" in output
    assert "text: not prepared: no raw data for text: put it there" in errors
    assert "retrieval: not prepared: Permission denied" in errors
    assert "image: 3 train / 3 validation / 3 test in" in output
    assert "pathfinder: 3 train" in output
    assert not toy["pathx"].calls
    assert len(toy["listops"].calls) == 1
    (options,) = toy["pathfinder"].calls
    assert (options.seed, options.workers, options.source) == (4, 1, None)
    assert prepared.load(tmp_path, "pathfinder").manifest["seed"] == 4


def test_all_of_the_table_from_a_folder(tmp_path, toy):
    raw = tmp_path / "raw files"
    raw.mkdir()
    assert command(tmp_path / "data", "all", f"--source={raw}") == 0
    (options,) = toy["text"].calls
    assert (options.raw_dir, options.source) == (str(raw), None)
    with pytest.raises(UserError, match="`all` takes a folder of raw files"):
        command(tmp_path / "data", "all", "--source=download")


def test_dry_run_of_all(tmp_path, toy, capsys):
    command(tmp_path, "pathfinder")
    capsys.readouterr()
    assert command(tmp_path, "all", "--dry_run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0].rstrip(":") for line in lines] == list(TABLE_TASKS)
    assert [len(toy[name].calls) for name in TABLE_TASKS] == [0, 0, 0, 0, 1]


def test_dry_run_of_all_says_what_each_task_needs(tmp_path, capsys):
    assert command(tmp_path, "all", "--dry_run") == 0
    output, errors = capsys.readouterr()
    lines = {line.split()[0]: line for line in output.splitlines()}
    assert list(lines) == list(TABLE_TASKS)
    assert errors == ""
    again = f"into {tmp_path / 'raw'}, or: python -m lra.data.prepare {{}} --data_dir={tmp_path}"
    for task, names, sources in (
        ("text", "aclImdb or aclImdb_v1.tar.gz", "tfds, download or a path"),
        ("image", "cifar-10-batches-bin or cifar-10-binary.tar.gz", "tfds, download or a path"),
        ("retrieval", "tsv_data or lra_release/tsv_data", "a path"),
    ):
        assert lines[task].startswith(f"{task:<10}  needs raw files: put {names}")
        assert lines[task].endswith(f"{again.format(task)} --source=SOURCE, which is {sources}")
    assert "about   105.2 MB" in lines["listops"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["everything"], r"unknown task 'everything' \(known: all, image, listops"),
        (["listops", "--seed=9223372036854775808"], "does not fit in 64 bits"),
        (["listops", "--seed=x"], "'x' is not 0 or a positive integer"),
        (["listops", "--workers=2000"], "2000 are more than 1,024"),
        (["text", "--source=download", "--seed=1"], "--seed=1 is of generated data; leave it out"),
        (["listops", "--source=.", "--seed=1"], "--seed=1 is of generated data; leave it out"),
        (["text", "--seed=1", "--dry_run"], "--seed=1 is of generated data; leave it out"),
        (["listops", "--size=x"], "invalid int value: 'x'"),
        (["listops", "--data_label=a\nb"], "the name is one line that is not empty"),
        (["listops", "--data_label=official"], "is what a comparison with LRA's data finds"),
        (["listops", "--data_label=differs (a bit)"], "is what a comparison"),
        (["all", "--data_label=mine"], "unknown flag --data_label"),
        (["all", "--size=3"], "unknown flag --size"),
        (["--data_label", "text", "listops"], "name the task first: listops"),
    ],
)
def test_bad_arguments(toy, arguments, message):
    with pytest.raises(UserError, match=message):
        prepare.main(arguments)


@pytest.mark.parametrize("file", [None, "import lra.data.also_missing"])
def test_a_module_without_its_file_is_told_from_one_that_cannot_be_imported(
    file, tmp_path, monkeypatch
):
    if file:
        (tmp_path / "parity.py").write_text(file)
    monkeypatch.setattr("lra.data.__path__", [str(tmp_path)])
    monkeypatch.setitem(request.MODULES, "parity", "lra.data.parity")
    expected = ModuleNotFoundError if file else UserError
    with pytest.raises(expected) as error:
        request.module_of("parity")
    assert ("names lra.data.parity for parity, but there is no" in str(error.value)) != bool(file)


@pytest.mark.parametrize("task", [*request.MODULES, request.ALL])
def test_help_names_the_flags(toy, capsys, task):
    with pytest.raises(SystemExit) as end:
        prepare.main([task, "--help"])
    assert end.value.code == 0
    output = capsys.readouterr().out
    assert "--workers" in output
    assert ("--size" in output) == (task in request.MODULES)


def test_help_names_the_tasks(toy, capsys, monkeypatch):
    monkeypatch.setitem(request.MODULES, "parity", "toy_parity")
    with pytest.raises(SystemExit):
        prepare.main(["--help"])
    assert f"{', '.join(request.MODULES)}, all" in " ".join(capsys.readouterr().out.split())
