"""Launchers other than local: print commands for any scheduler, or submit a Slurm job array.

    python -m lra.sweep configs/sweeps/table.py --results=results/accuracy.jsonl --launcher=slurm \\
        --slurm=timeout_min=240 --slurm=gpus_per_node=1 --slurm=cpus_per_task=8 \\
        --slurm=slurm_partition=gpu

Each job of the array is a local sweep of one run whose budget ends a few minutes before the job's
time limit. A training stopped by the budget (status 75), or because submitit announced the limit or
a preemption (SIGUSR2), has saved a checkpoint; its job is requeued through submitit's own handler
of that signal and resumes, as often as needed. A job that receives SIGTERM saves and waits to be
killed: Slurm requeues preempted jobs, but not those ended by `scancel`. Runs lost in any other way
are submitted again by the next call of the sweep.
"""

import dataclasses
import importlib.util
import os
import pathlib
import shlex
import shutil
import signal
import time
from collections.abc import Iterable
from typing import Any

from lra.errors import UserError
from lra.settings import locate
from lra.sweep import child
from lra.sweep.budget import Budget
from lra.sweep.failures import Failures
from lra.sweep.place import Place, PlacedRun
from lra.sweep.runner import Outcome, attempt

# Reserved for a job's start, the call in progress and a last checkpoint; longer than the 90 seconds
# before its limit at which submitit would interrupt it.
_MARGIN_MINUTES = 3
_LIMIT = "timeout_min"
# Effectively unlimited, which is safe since every start has made steps; submitit's default is 3.
_MAX_TIMEOUTS = 100_000
# Longer than the usual grace time of a preemption, after which Slurm kills the job.
_GRACE_SECONDS = 600.0
# Since Slurm 22.05, srun does not inherit --cpus-per-task.
_SETUP = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'
_REQUEUE = {"requeue": True}


def commands(runs: Iterable[PlacedRun], minutes: float | None) -> list[str]:
    """Return one shell-quoted command per run; the next call of the sweep collects their rows.

    The commands share the compile cache of local children and work from any folder: their paths are
    absolute, except for a relative `train.init_from`, which is part of a row's identity.

    Raises:
        UserError: A path contains a line break.
    """
    lines = []
    for run in map(_with_absolute_paths, runs):
        variables = child.additions(run.place.workdir).items()
        settings = [f"{name}={value}" for name, value in variables]
        line = shlex.join(["env", *settings, *run.command(minutes)])
        if "\n" in line:
            raise UserError(f"a path with a line break makes no command of one line: {line!r}")
        lines.append(line)
    return lines


def _with_absolute_paths(placed: PlacedRun) -> PlacedRun:
    run, place = placed.run, placed.place
    data = dataclasses.replace(place.data, folder=_absolute(place.data.folder))
    return dataclasses.replace(
        placed,
        run=dataclasses.replace(run, spec=_absolute(locate(run.spec))),
        place=dataclasses.replace(place, workdir=place.workdir.absolute(), data=data),
    )


def _absolute(path: str | os.PathLike) -> str:
    return str(pathlib.Path(path).absolute())  # unlike `resolve`, keeps `..` after a symlink as is


def job_minutes(parameters: dict[str, Any], minutes: float | None) -> float:
    """Return the minutes each job may train.

    Args:
        parameters: Parameters of submitit; `timeout_min` is the time limit of a job.
        minutes: The user's own limit, or None.

    Raises:
        UserError: No time limit is set (submitit's default of 5 minutes would end every job), or
            it is too short.
    """
    limit = parameters.get(_LIMIT)
    aliases = {"slurm_time", f"slurm_{_LIMIT}"} & parameters.keys()
    if aliases:
        raise UserError(f"--slurm={min(aliases)}: say --slurm={_LIMIT}=MINUTES instead")
    if limit is None:
        raise UserError(
            f"--launcher=slurm needs the minutes a job may take: --slurm={_LIMIT}=240 for 4 hours"
        )
    if not isinstance(limit, int) or limit <= _MARGIN_MINUTES:
        raise UserError(
            f"--slurm={_LIMIT}={limit} is not a number of whole minutes above {_MARGIN_MINUTES}, "
            "which are kept for saving"
        )
    available = float(limit - _MARGIN_MINUTES)
    return available if minutes is None else min(available, minutes)


def check_slurm() -> None:
    """Raise UserError if submitit is not installed or this machine has no Slurm."""
    if importlib.util.find_spec("submitit") is None:
        raise UserError("--launcher=slurm needs submitit: pip install submitit")
    if shutil.which("sbatch") is None:
        raise UserError("no Slurm on this machine (no sbatch); try --launcher=print")


def slurm_executor(place: Place, parameters: dict[str, Any]) -> Any:
    """Return a submitit executor for Slurm.

    Args:
        place: Place of the sweep; job logs go to `<workdir>/slurm`.
        parameters: Parameters of submitit: `timeout_min`, `gpus_per_node`, `slurm_partition`, ...

    Raises:
        UserError: A parameter is unknown.
    """
    import submitit

    try:
        executor = submitit.AutoExecutor(
            folder=place.workdir / "slurm", cluster="slurm", slurm_max_num_timeout=_MAX_TIMEOUTS
        )
        executor.update_parameters(**_with_required(parameters))
    except (
        NameError,
        TypeError,
        ArithmeticError,
        ValueError,
        AssertionError,
        RuntimeError,
    ) as error:
        raise UserError(f"--slurm: {' '.join(str(error).split())}") from None
    return executor


def _with_required(parameters: dict[str, Any]) -> dict[str, Any]:
    """Add the parameters that our jobs need to the user's parameters of submitit."""
    setup = parameters.get("slurm_setup", [])
    additional = parameters.get("slurm_additional_parameters", {})
    if not isinstance(setup, list) or not isinstance(additional, dict):
        raise ValueError("slurm_setup is a list, slurm_additional_parameters a dictionary")
    required = {
        "slurm_setup": [_SETUP, *setup],
        "slurm_additional_parameters": _REQUEUE | additional,
    }
    return parameters | required


def submit(runs: Iterable[PlacedRun], minutes: float, executor: Any) -> list[Any]:
    """Submit a job array with one job per run, each training `minutes` per start.

    Returns:
        The jobs.

    Raises:
        UserError: Slurm or submitit rejects the --slurm parameters.
    """
    jobs = [_Job(run, minutes) for run in runs]
    if not jobs:  # submitit warns about empty arrays
        return []
    from submitit.core.utils import FailedJobError

    try:
        with executor.batch():
            return [executor.submit(job) for job in jobs]
    except (FailedJobError, TypeError, ValueError, LookupError) as error:
        raise UserError(f"the jobs were refused, see --slurm: {error}") from None


@dataclasses.dataclass(frozen=True)
class _Job:
    """Job of the array, which does the same as a local sweep of one run."""

    run: PlacedRun
    minutes: float

    def __call__(self) -> str:
        place = self.run.place
        outcome = attempt(self.run, Budget(self.minutes), Failures(place.workdir))
        if outcome is Outcome.FAILED:
            raise RuntimeError(f"{self.run.title()} failed: see {place.results}")
        if outcome is Outcome.TOO_SHORT:
            raise RuntimeError(f"{self.run.title()}: no step made in time: raise --slurm={_LIMIT}")
        if outcome.ends_the_sweep and not self.run.left():
            return Outcome.DONE.value  # in spite of a signal
        if outcome is Outcome.STOPPED:
            _requeue()
        if outcome is Outcome.CANCELLED:
            # Slurm requeues a preempted job only if it has not exited by itself.
            time.sleep(_GRACE_SECONDS)
        return outcome.value

    def checkpoint(self) -> Any:
        """Return what submitit requeues; the state of the run itself is in its folder."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def _requeue() -> None:
    """Requeue this job and end it, as submitit does on its own signal."""
    import submitit

    signal.raise_signal(signal.Signals[f"SIG{submitit.JobEnvironment.USR_SIG}"])
