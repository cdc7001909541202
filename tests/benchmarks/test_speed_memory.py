"""The command itself, tiny."""

import jax
import pytest

from benchmarks import cases, speed_memory, worker
from lra import records
from lra.command_line import run
from lra.efficiency import either_from_json
from lra.errors import UserError

TINY = (
    "--methods=standard:implementation=xla,nystrom:num_landmarks=8",
    "--lengths=64,128",
    "--widths=16x2",
    "--dtypes=float32",
    "--threads=1",
    "--repeats=2",
    "--fill_seconds=0.01",
)


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """Processes that measure keep compiled programs where these tests do."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("compilation_cache_dir", "persistent_cache_min_entry_size_bytes"):
            patch.setenv(f"JAX_{name.upper()}", str(getattr(jax.config, f"jax_{name}")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of a tiny run with a peer in the same framework and others missing."""
    path = tmp_path_factory.mktemp("rows") / "new" / "efficiency.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        hide_packages(patch)
        arguments = [*TINY, "--peers", "--modes=forward", f"--results={path}"]
        assert speed_memory.main([*arguments, "--batch=fill"]) == 0
    return records.read(path, either_from_json)


def hide_packages(patch):
    """Only the peer in the same framework is there."""
    known = cases.version_of
    patch.setattr(cases, "version_of", lambda name: known(name) if name == "jax" else None)


@pytest.mark.slow
def test_every_case_gives_a_row_of_each_contender(rows):
    labels = ["standard (xla)", "nystrom-8", "standard (jax.nn)"]
    expected = [
        ("forward", length, filled, label)
        for length in (64, 128)
        for filled in (False, True)
        for label in labels
    ]
    assert [(r.mode, r.length, r.filled, r.label) for r in rows] == expected


@pytest.mark.slow
def test_rows_are_of_one_run_and_complete(rows):
    assert len({row.run for row in rows}) == 1
    for row in rows:
        assert row.status == "ok", row.note
        assert row.seconds_min <= row.seconds <= row.seconds_max
        assert row.repeats >= 2
        assert row.flops > 0
        assert row.peak_flops_per_second > row.flops_per_second > 0
        # So small that a process may grow by far more, which is shown then.
        assert row.memory_source in ("xla", "process")
        assert row.peak_memory_mb == getattr(row, f"{row.memory_source}_memory_mb")
        assert row.peak_memory_mb >= row.xla_memory_mb > 0
        assert row.threads == 1
        assert row.versions["jax"] == cases.version_of("jax")
        assert row.source == ("jax" if "jax.nn" in row.label else "ours")


@pytest.mark.slow
def test_a_filled_batch_is_larger_and_the_largest_larger_still(rows):
    for row in rows:
        if row.filled:
            assert 1 <= row.batch <= row.largest_batch
    assert max(row.batch for row in rows if row.filled) > 1


@pytest.mark.slow
def test_memory_grows_with_length(rows):
    standard = [r for r in rows if r.label == "standard (xla)" and not r.filled]
    short, long = (r.xla_memory_mb for r in standard)
    assert long > short


def test_missing_peers_are_skipped_with_their_cure(monkeypatch, capsys):
    hide_packages(monkeypatch)
    assert speed_memory.main([*TINY, "--peers", "--modes=forward", "--dry_run"]) == 0
    line = (
        "skipped nystrom-8 (nystrom-attention): not installed; pip install nystrom-attention torch"
    )
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_out_of_memory_is_recorded_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "efficiency.jsonl"
    arguments = ["--methods=standard:implementation=xla", *TINY[1:], "--lengths=128,64,32"]
    arguments += ["--batch=1", "--modes=forward", "--memory_limit_gb=0.0001"]
    assert speed_memory.main([*arguments, f"--results={path}"]) == 0
    shortest, short, long = records.read(path, either_from_json)
    assert [shortest.status, short.status] == ["ok", "ok"]
    assert (long.status, long.seconds) == ("out_of_memory", None)
    assert long.note == f"needs about {long.peak_memory_mb:.1f} MB of 0.1"


@pytest.mark.parametrize("command", ["hello", "ceilings"])
def test_a_first_process_that_fails_is_one_line(command, tmp_path, monkeypatch, capsys):
    class Killed(worker.Worker):
        def ask(self, name, **arguments):
            if name == command:
                raise worker.WorkerError("out_of_memory", "killed by the operating system")
            return {"platform": "cpu"}

    monkeypatch.setattr(speed_memory, "Worker", Killed)
    with pytest.raises(SystemExit) as ended:
        run(speed_memory.main, [*TINY, f"--results={tmp_path / 'rows.jsonl'}"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown == "error: nothing can be measured: killed by the operating system\n"


def test_dry_run_lists_cases_and_runs_nothing(tmp_path, capsys):
    path = tmp_path / "efficiency.jsonl"
    assert speed_memory.main([*TINY, "--dry_run", f"--results={path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "module forward, length 64, batch 1, width 16, 2 heads, float32 · standard (xla), nystrom-8"
    )
    assert lines[-1] == "cases: 8, contenders: 2, nothing was run"
    assert not path.exists()


@pytest.mark.parametrize("table", ["nystromformer_1", "linformer_3", "linformer_figure_2"])
def test_tables_set_flags(table, capsys):
    methods = "--methods=standard:implementation=xla,linformer"
    assert speed_memory.main([f"--table={table}", methods, "--dry_run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all("forward, length" in line and "width 768" in line for line in lines[:-1])
    if table == "linformer_figure_2":
        assert "fixed_tokens forward, length 512, batch 128" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods=nystorm"], "unknown attention 'nystorm' (did you mean 'nystrom'?)"),
        (["--lengths=0"], "'0' is not a positive integer"),
        (["--modes=backward"], "--modes: unknown 'backward'"),
        (["--dtypes=float16"], "--dtypes: unknown 'float16'"),
        (["--widths=64x3"], "3 heads do not divide a width of 64"),
        (["--repeats=0"], "--repeats must be greater than 0"),
        (["--memory_limit_gb=inf"], "--memory_limit_gb must be greater than 0"),
        (["--batch=all"], "'all' is not a positive integer"),
        (["--benchmark=fixed_tokens", "--tokens=100"], "--tokens=100 are fewer than the length"),
        (
            ["--benchmark=fixed_tokens", "--tokens=1000", "--lengths=500,512"],
            "--tokens=1000 are no whole sequences of length 512; give --lengths that divide them, "
            "or a multiple of 64000",
        ),
        (["--tokens=1024"], "--tokens is for fixed_tokens"),
        (["--benchmark=fixed_tokens", "--batch=2"], "--batch is --tokens / length"),
        (["--benchmark=model", "--widths=64x2"], "--widths is set by the configuration"),
        (["--benchmark=model", "--batch=32,fill"], "--batch=fill is for module"),
        (["--benchmark=model", "--peers"], "--peers are attention modules"),
        (["--peers=tensorflow"], "unknown peer 'tensorflow'"),
        (["--peers="], "peers is empty; give it a value or leave it out"),
        (["--length=64"], "unknown flag --length (did you mean '--lengths'?)"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    given = arguments if any("--methods" in a for a in arguments) else [*TINY[:1], *arguments]
    with pytest.raises(SystemExit) as ended:
        run(speed_memory.main, [*given, "--dry_run"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert shown.count("\n") == 1
    assert message in shown


def test_more_threads_than_cores_are_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "cores", lambda: 2)
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match="--threads=3 are more than the cores that can be used: 2"):
        speed_memory.main([*TINY, "--threads=3", f"--results={path}"])
    assert not path.exists()
    worker.check_threads(2)
    worker.check_threads(None)


def test_a_file_of_something_else_is_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(speed_memory, "Worker", None)  # starting one would fail
    path = tmp_path / "notes.txt"
    path.write_text("test 0.37\n")
    with pytest.raises(UserError, match=r"notes\.txt, line 1: not JSON"):
        speed_memory.main([*TINY, f"--results={path}"])
    assert path.read_text() == "test 0.37\n"


def test_a_length_that_no_method_supports_is_an_error(tmp_path):
    arguments = ["--methods=nystrom:num_landmarks=0,reformer:num_hashes=0", *TINY[1:]]
    with pytest.raises(UserError, match="no method supports length 64: nystrom-0: num_landmarks"):
        speed_memory.main([*arguments, f"--results={tmp_path / 'rows.jsonl'}"])
