"""scripts/slurm.sh with stand-ins for Slurm's commands and for Python."""

import os
import pathlib
import signal
import subprocess

import pytest

from tests.waiting import wait_for

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "slurm.sh"


def write_command(path, body):
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def job(tmp_path):
    """The environment and the folder of a job whose training is a stand-in."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("")
    write_command(programs / "srun", 'exec "$@"')
    write_command(programs / "scontrol", 'echo "$@" >> requeued')
    path = f"{programs}:{os.environ['PATH']}"
    return tmp_path, os.environ | {"PATH": path, "SLURM_JOB_ID": "17"}


@pytest.mark.parametrize(("status", "requeued"), [(0, ""), (1, ""), (2, ""), (75, "requeue 17\n")])
def test_only_a_stopped_run_goes_back_into_the_queue(job, status, requeued):
    folder, environment = job
    write_command(folder / "programs" / "python", f'echo "$@" > arguments; exit {status}')
    command = ["bash", SCRIPT, "--config=configs/text.py:nystrom", "--workdir=a b"]
    assert subprocess.run(command, cwd=folder, env=environment).returncode == status
    assert (folder / "arguments").read_text() == (
        "train.py --config=configs/text.py:nystrom --workdir=a b\n"
    )
    found = folder / "requeued"
    assert (found.read_text() if found.exists() else "") == requeued


def test_a_signal_to_the_whole_job_waits_for_the_training(job):
    folder, environment = job
    body = "trap 'sleep 0.3; exit 75' TERM; touch started; while :; do sleep 0.05; done"
    write_command(folder / "programs" / "python", body)
    with subprocess.Popen(
        ["bash", SCRIPT], cwd=folder, env=environment, start_new_session=True
    ) as process:
        wait_for((folder / "started").exists, [process])
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=20) == 75
    assert (folder / "requeued").read_text() == "requeue 17\n"


@pytest.mark.parametrize(("cores", "expected"), [("8", "8"), (None, "unset")])
def test_the_training_has_the_cores_of_the_job(job, cores, expected):
    folder, environment = job
    environment = {
        name: value for name, value in environment.items() if "CPUS_PER_TASK" not in name
    }
    if cores:
        environment["SLURM_CPUS_PER_TASK"] = cores
    write_command(folder / "programs" / "srun", 'echo "${SRUN_CPUS_PER_TASK-unset}" > cores')
    assert subprocess.run(["bash", "-u", SCRIPT], cwd=folder, env=environment).returncode == 0
    assert (folder / "cores").read_text() == f"{expected}\n"
