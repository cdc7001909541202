"""A sweep as an array of Slurm jobs, with submitit's local executor and stand-ins for Slurm."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from lra.errors import UserError
from lra.sweep import child, launchers
from tests.lra.sweep.place import Place
from tests.waiting import wait_for

LIMIT = "--slurm=timeout_min=240"


class Cluster:
    """Stand-ins for Slurm's commands; what they were asked for is in files.

    An array is submitted as job 17; its jobs run when a test starts them.
    """

    def __init__(self, place: Place):
        self._place = place
        self.script = place.root / "script"
        self.requeued = place.root / "requeued"
        self.programs = place.root / "programs"
        self.programs.mkdir()
        for name, body in (
            ("sbatch", f'cp "$1" {self.script}; echo Submitted batch job 17'),
            ("srun", "exit 1"),
            ("scontrol", f'echo "$@" >> {self.requeued}'),
        ):
            (self.programs / name).write_text(f"#!/bin/bash\n{body}\n")
            (self.programs / name).chmod(0o755)

    def start(self) -> subprocess.Popen:
        """Start the first job of the array, as the script does."""
        facts = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "18"}
        facts |= {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "0"}
        folder = str(self._place.workdir / "slurm")
        with open(self._place.root / "errors", "w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "submitit.core._submit", folder],
                env=os.environ | facts,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def errors(self) -> str:
        return (self._place.root / "errors").read_text()


@pytest.fixture
def cluster(place, monkeypatch) -> Cluster:
    pytest.importorskip("submitit")
    cluster = Cluster(place)
    monkeypatch.setenv("PATH", f"{cluster.programs}:{os.environ['PATH']}")
    return cluster


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], r"needs the minutes a job may take: --slurm=timeout_min=240"),
        (["--slurm=timeout_min=3"], "timeout_min=3 is not a number of whole minutes above 3"),
        (["--slurm=timeout_min=4h"], "timeout_min=4h is not a number of whole minutes"),
        (["--slurm=slurm_time=240"], "say --slurm=timeout_min=MINUTES"),
        ([LIMIT, "--slurm=gpus_per_node=one"], 'gpus_per_node" expected type'),
        ([LIMIT, "--slurm=gpu=1"], "'gpu' need to be prefixed"),
        ([LIMIT, "--slurm=slurm_setup=ls"], "slurm_setup is a list"),
        ([LIMIT, "--slurm=mem_gb=1e400"], "cannot convert float infinity"),
    ],
)
def test_what_slurm_would_not_understand_is_said(place, cluster, flags, message):
    with pytest.raises(UserError, match=message):
        place.run("--launcher=slurm", *flags)
    assert not cluster.script.exists()


def test_the_array_says_what_its_jobs_need(place, cluster):
    assert place.run("--launcher=slurm", LIMIT, "--slurm=cpus_per_task=8") == 0
    script = cluster.script.read_text()
    for line in ("--time=240", "--array=0-2%3", "--cpus-per-task=8", "--requeue"):
        assert f"#SBATCH {line}\n" in script
    assert "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n" in script


def test_lines_of_the_user_come_behind_those_of_the_sweep(place, cluster):
    setup = "--slurm=slurm_setup=['module load cuda']"
    more = "--slurm=slurm_additional_parameters={'account': 'lab'}"
    assert place.run("--launcher=slurm", LIMIT, "--slurm=cpus_per_task=8", setup, more) == 0
    script = cluster.script.read_text()
    assert "#SBATCH --requeue\n" in script
    assert "#SBATCH --account=lab\n" in script
    assert "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nmodule load cuda\n" in script


def test_a_job_that_is_out_of_time_queues_itself_until_its_run_is_done(place, cluster):
    assert place.run("--launcher=slurm", LIMIT, standard="in parts") == 0
    statuses = [cluster.start().wait(60) for _ in range(3)]
    assert [status == 0 for status in statuses] == [False, False, True]
    assert cluster.requeued.read_text() == "requeue 17_0\n" * 2
    assert [(row.attention, row.status) for row in place.rows()] == [("standard", "ok")] * 2
    budgets = [word for start in place.starts() for word in start["argv"] if "budget" in word]
    assert all(236 < float(word.partition("=")[2]) <= 237 for word in budgets)


@pytest.mark.parametrize(("own", "expected"), [(30, 30.0), (1000, 237.0), (None, 237.0)])
def test_the_smaller_limit_holds(own, expected):
    assert launchers.job_minutes({"timeout_min": 240}, own) == expected


def test_a_job_whose_time_is_nearly_over_saves_and_queues_itself(place, cluster):
    place.run("--launcher=slurm", LIMIT, standard="patient")
    job = cluster.start()
    wait_for(place.starts)
    job.send_signal(signal.SIGUSR2)
    assert job.wait(60) != 0
    assert cluster.requeued.read_text() == "requeue 17_0\n"
    assert not pathlib.Path(f"/proc/{place.starts()[0]['pid']}").exists()


def test_a_job_that_is_cancelled_saves_and_does_not_queue_itself(place, cluster):
    place.run("--launcher=slurm", LIMIT, standard="patient")
    job = cluster.start()
    wait_for(place.starts)
    job.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopped before its end" in cluster.errors())
    assert job.poll() is None  # for Slurm to end
    job.kill()
    job.wait()
    assert not cluster.requeued.exists()


def test_a_job_that_makes_no_step_in_its_time_does_not_queue_itself(place, cluster):
    place.run("--launcher=slurm", LIMIT, standard="slow")
    assert cluster.start().wait(60) == 1
    assert "no step made in time: raise --slurm=timeout_min" in cluster.errors()
    assert not cluster.requeued.exists()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGUSR2])
def test_slurms_two_signals_are_one_to_a_training(tmp_path, first):
    """A second one would end it before it has saved."""
    (second,) = {signal.SIGTERM, signal.SIGUSR2} - {first}
    count = (
        f"trap 'n=$((n + 1))' TERM; touch {tmp_path}/ready; "
        f"while [ ! -e {tmp_path}/told ]; do sleep 0.02; done; sleep 0.2; echo told $n"
    )
    code = f"""if True:
        import os, pathlib
        from lra.sweep import child
        log = pathlib.Path({str(tmp_path / "log")!r})
        print(child.run(["bash", "-c", {count!r}], log, dict(os.environ)))
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        wait_for((tmp_path / "ready").exists)
        for number in (first, second):
            process.send_signal(number)
            time.sleep(0.1)
        (tmp_path / "told").touch()
        printed, _ = process.communicate(timeout=60)
    assert printed.decode() == f"{child.Ended(0, 'told 1' + chr(10), signal.SIGUSR2)}\n"


def test_slurm_that_is_not_there_is_said(place, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    for flags in ([], [LIMIT]):
        with pytest.raises(UserError, match="no Slurm on this machine"):
            place.run("--launcher=slurm", *flags)


def test_a_missing_part_of_slurm_is_said(place, cluster):
    (cluster.programs / "srun").unlink()
    with pytest.raises(UserError, match="srun"):
        place.run("--launcher=slurm", LIMIT)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("slurm_partition=nope", "were refused, see --slurm: .*Invalid account or partition"),
        ("slurm_array_parallelism=x", "were refused, see --slurm: "),
    ],
)
def test_what_slurm_refuses_is_said(place, cluster, flag, message):
    refuses = "#!/bin/bash\necho 'sbatch: error: Invalid account or partition' >&2; exit 1\n"
    (cluster.programs / "sbatch").write_text(refuses)
    with pytest.raises(UserError, match=message):
        place.run("--launcher=slurm", LIMIT, f"--slurm={flag}")


def test_submitit_that_is_not_there_is_said(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match="pip install submitit"):
        place.run("--launcher=slurm", LIMIT)


@pytest.mark.filterwarnings("ignore")  # submitit's own, about files it leaves open
def test_jobs_of_an_array_train_go_on_and_record(place, monkeypatch):
    submitit = pytest.importorskip("submitit")

    executor = submitit.LocalExecutor(folder=place.root / "jobs")
    executor.update_parameters(timeout_min=5)
    monkeypatch.setattr(launchers, "check_slurm", lambda: None)
    monkeypatch.setattr(launchers, "slurm_executor", lambda *_: executor)
    submitted = []
    submit = launchers.submit

    def submit_and_keep(*arguments):
        submitted.extend(submit(*arguments))
        return submitted

    monkeypatch.setattr(launchers, "submit", submit_and_keep)
    assert place.run("--launcher=slurm", LIMIT, nystrom="in parts", linformer="crash") == 0
    assert [job.result() for job in submitted[:2]] == ["done", "done"]
    with pytest.raises(Exception, match="linformer"):
        submitted[2].result()
    assert [row.status for row in sorted(place.rows(), key=lambda row: row.status)] == (
        ["failed"] * 2 + ["ok"] * 4
    )
