"""What rows say of the machine: determinism and commit."""

import re
import shutil
import subprocess
import types

import jax
import pytest

from lra import environment
from lra.errors import UserError
from models.machine import Machine, assumed


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", False),
        ("--xla_gpu_deterministic_ops=true", True),
        ("--xla_dump_to=d --xla_gpu_deterministic_ops", True),
        ("--xla_gpu_deterministic_ops=false", False),
        ("--xla_gpu_deterministic_ops=True", True),
        ("--xla_gpu_deterministic_ops=1", True),
        ("--xla_gpu_deterministic_ops --xla_gpu_deterministic_ops=false", False),
        ("--xla_gpu_deterministic_ops=0 --xla_gpu_deterministic_ops=true", True),
        ("--xla_gpu_exclude_nondeterministic_ops=true", False),  # autotuning goes on
    ],
)
def test_a_gpu_is_deterministic_when_asked(monkeypatch, flags, expected):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert environment.is_deterministic()  # a CPU is in any case
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert environment.is_deterministic() is expected


@pytest.mark.skipif(shutil.which("git") is None, reason="git makes the history")
def test_changes_of_code_and_of_nothing_else_are_named(monkeypatch, tmp_path):
    package = tmp_path / "lra"
    package.mkdir()
    copy = package / "environment.py"
    shutil.copy(environment.__file__, copy)
    monkeypatch.setattr(environment, "__file__", str(copy))
    commit = environment.commit.__wrapped__
    name = ("-c", "user.name=a", "-c", "user.email=a")
    for command in (("init", "-q"), ("add", "."), (*name, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    assert re.fullmatch("[0-9a-f]{40}", commit())
    (tmp_path / "rows.jsonl").write_text("{}")  # as a sweep does
    assert re.fullmatch("[0-9a-f]{40}", commit())
    (package / "new.py").touch()
    names = {commit()}
    for change in ("a = 1", "a = 2"):
        (package / "new.py").write_text(change)
        names |= {commit(), commit()}
    copy.unlink()
    names.add(commit())
    assert len(names) == 4
    assert all(re.fullmatch(r"[0-9a-f]{40}-dirty\.[0-9a-f]{8}", name) for name in names)


def test_a_comma_in_a_devices_name_does_not_make_it_two(monkeypatch):
    monkeypatch.setattr(environment, "cpu_name", lambda: "A10-7870K Radeon R7, 12 Compute Cores")
    assert environment.device_name() == "A10-7870K Radeon R7 12 Compute Cores"


@pytest.mark.parametrize(
    ("platform", "switch", "visible", "expected"),
    [
        ("gpu", "off", 1, "an H100 (LRA_KERNELS=off)"),
        ("gpu", "on", 1, "an H100"),
        ("gpu", "on", 8, "an H100 (no kernels: 8 devices visible)"),
        ("tpu", "off", 8, "a TPU"),
    ],
)
def test_a_devices_name_says_if_kernels_are_off(monkeypatch, platform, switch, visible, expected):
    kind = {"gpu": "an H100", "tpu": "a TPU"}[platform]
    monkeypatch.setattr(jax, "device_count", lambda: visible)
    device = types.SimpleNamespace(platform=platform, device_kind=kind)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    monkeypatch.setenv("LRA_KERNELS", switch)
    assert environment.device_name() == expected


def test_a_devices_name_says_on_how_many_hosts(monkeypatch):
    name = environment.device_name()
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert environment.device_name() == f"{name} on 2 hosts"
    assert environment.devices_name(4) == f"4 x {name} on 2 hosts"


def test_the_commit_of_a_copy_without_history(monkeypatch, tmp_path):
    package = tmp_path / "lra"
    package.mkdir()
    shutil.copy(environment.__file__, package / "environment.py")
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    commit = environment.commit.__wrapped__
    assert commit() == "unknown"
    monkeypatch.setenv("LRA_COMMIT", "0123abc")
    assert commit() == "0123abc"
    # A row is one line of text, in which `, ` separates commits.
    monkeypatch.setenv("LRA_COMMIT", "a,  b\nc\udcff")
    assert commit() == "a b c\ufffd"


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_copy_inside_another_history_does_not_take_its_commit(monkeypatch, tmp_path):
    def git(*arguments):
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *settings, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    copy = tmp_path / "copy" / "lra" / "environment.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(environment.__file__, copy)
    (tmp_path / ".gitignore").write_text("/copy\n")
    git("init")
    git("add", ".gitignore")
    git("commit", "-m", "another project")
    monkeypatch.setattr(environment, "__file__", str(copy))
    monkeypatch.setenv("LRA_COMMIT", "0123abc")
    assert environment.commit.__wrapped__() == "0123abc"
    git("add", "--force", "copy")  # it is a part of that project now
    git("commit", "-m", "with a copy")
    assert environment.commit.__wrapped__() == git("rev-parse", "HEAD")


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_commit_of_a_checkout_that_belongs_to_another_user(monkeypatch):
    said = subprocess.check_output(["git", "version"], text=True)
    if tuple(map(int, re.findall(r"\d+", said)[:2])) < (2, 38):
        pytest.skip("takes safe.directory from files alone")
    commit = environment.commit.__wrapped__
    expected = commit()
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # of git, for its own tests
    assert commit() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 5),
        ("jax_enable_x64", True),
        ("jax_numpy_dtype_promotion", "strict"),
        pytest.param(
            "jax_accurate_erf_inv",
            True,
            marks=pytest.mark.skipif(
                not hasattr(jax.config, "jax_accurate_erf_inv"), reason="this JAX has none"
            ),
        ),
    ],
)
def test_settings_that_give_seeds_other_results_are_refused(name, value):
    environment.check_jax()
    usual = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(UserError, match=f"JAX cannot be used here: {name.upper()} is set to"):
            environment.check_jax()
    finally:
        jax.config.update(name, usual)


def test_threads_that_are_not_the_cores_are_refused(monkeypatch):
    cores = environment.process.cores()
    for name, other in (("NPROC", "PJRT_NPROC"), ("PJRT_NPROC", "NPROC")):
        monkeypatch.delenv(other, raising=False)
        for harmless in (str(cores), "0", "", "many"):
            monkeypatch.setenv(name, harmless)
            environment.check_jax()
        monkeypatch.setenv(name, str(cores + 1))
        message = f"^{name}={cores + 1} gives JAX {cores + 1} threads, but rows name the {cores}"
        with pytest.raises(UserError, match=message):
            environment.check_jax()
    monkeypatch.setenv("NPROC", str(cores + 1))  # PJRT_NPROC comes first
    monkeypatch.setenv("PJRT_NPROC", str(cores))
    environment.check_jax()


def test_a_default_device_of_another_platform_is_refused():
    with jax.default_device(jax.devices()[0]):
        environment.check_default_device("cpu")
        with pytest.raises(UserError, match="is a cpu, but this run is on gpu; unset it"):
            environment.check_default_device("gpu")
    environment.check_default_device("gpu")
    with jax.default_device("gpu"), pytest.raises(UserError, match="gpu"):
        environment.check_jax()


def test_a_switch_of_kernels_that_is_neither_on_nor_off_is_refused(monkeypatch):
    monkeypatch.setenv("LRA_KERNELS", "yes")
    with pytest.raises(UserError, match="LRA_KERNELS=yes: it can be on or off"):
        environment.check_jax()


def test_hosts_must_agree_in_what_rows_say_once(monkeypatch):
    monkeypatch.setattr(environment, "commit", lambda: "abc")
    monkeypatch.setattr(environment, "cpu_name", lambda: "a CPU (2 cores)")
    assert environment.of_every_host() == {
        "the commit": "abc",
        "the device": "a CPU (2 cores)",
        "whether operations are deterministic (XLA_FLAGS)": True,
        **{f"the version of {name}": value for name, value in environment.versions().items()},
    }


def test_the_peak_memory_of_accelerators_is_that_of_the_fullest(monkeypatch):
    peaks = ({"peak_bytes_in_use": 3_000_000}, {"peak_bytes_in_use": 5_000_000}, {}, None)
    devices = [types.SimpleNamespace(memory_stats=lambda peak=peak: peak) for peak in peaks]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert environment.peak_memory_mb() == 5.0
    monkeypatch.setattr(jax, "local_devices", lambda: devices[2:])
    assert environment.peak_memory_mb() == environment.process.peak_memory_bytes() / 1e6
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert environment.peak_memory_mb() == 0


@pytest.mark.parametrize(
    ("machine", "dtype", "advised"),
    [
        (Machine("gpu", runs_kernels=True), "float32", True),
        (Machine("gpu", runs_kernels=True), "bfloat16", False),
        (Machine("gpu"), "float32", False),
        (Machine("cpu"), "float32", False),
    ],
)
def test_float32_is_advised_against_where_kernels_take_bfloat16(machine, dtype, advised):
    with assumed(machine):
        advice = environment.advice_on_format(dtype)
    assert ("--config.dtype=bfloat16" in advice) == bool(advice) == advised
