"""Other ways to execute the runs: their commands for any scheduler, or an array of Slurm jobs.

    python -m lra.sweep configs/sweeps/table.py --results=results/accuracy.jsonl --launcher=slurm \\
        --slurm=timeout_min=240 --slurm=gpus_per_node=1 --slurm=cpus_per_task=8 \\
        --slurm=slurm_partition=gpu

A job of the array is a local sweep with one run, and its own budget ends some minutes before its
time limit. A training that was stopped by it (status 75), or because submitit announced the limit
or a preemption (SIGUSR2), has saved; its job then goes back into the queue, by way of submitit's
own handler of that signal, and goes on from there as often as it takes. A job that gets SIGTERM
saves and waits for its end: Slurm queues again what it has preempted, but not what `scancel` ended.
What was lost in another way the next call of the sweep submits again.
"""

import dataclasses
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
from lra.sweep.place import Place
from lra.sweep.plan import Run
from lra.sweep.runner import Outcome, attempt

# Left of a job's time for its start, the call under way and a last checkpoint; more than the 90
# seconds before its limit at which submitit would interrupt it.
_MARGIN_MINUTES = 3
_LIMIT = "timeout_min"
# In effect no limit, which is not needed since each start has made steps; submitit's own is 3.
_MOST_TIMEOUTS = 100_000
# Slurm kills sooner; longer than any usual grace time of a preemption.
_GRACE_SECONDS = 600.0
# Since Slurm 22.05 srun does not inherit --cpus-per-task.
_SETUP = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'
_REQUEUE = {"requeue": True}


def commands(runs: Iterable[tuple[Run, str]], place: Place, minutes: float | None) -> list[str]:
    """One shell-quoted command a run; their rows are taken in by the next call of the sweep.

    They share the compile cache of local children, and run from any folder: their paths are
    absolute, but for a relative `train.init_from`, by which rows know a run.

    Raises:
        UserError: a path with a line break.
    """
    data = dataclasses.replace(place.data, folder=_absolute(place.data.folder))
    place = dataclasses.replace(place, workdir=place.workdir.absolute(), data=data)
    variables = [f"{name}={value}" for name, value in child.additions(place.workdir).items()]
    lines = []
    for run, mark in runs:
        run = dataclasses.replace(run, spec=_absolute(locate(run.spec)))
        line = shlex.join(["env", *variables, *place.command(run, mark, minutes)])
        if "\n" in line:
            raise UserError(f"a path with a line break makes no command of one line: {line!r}")
        lines.append(line)
    return lines


def _absolute(path: str | os.PathLike) -> str:
    return str(pathlib.Path(path).absolute())  # `..` behind a link stays what it is


def job_minutes(parameters: dict[str, Any], minutes: float | None) -> float:
    """The minutes each job may train.

    Args:
        parameters: of submitit; `timeout_min` is the time limit of a job.
        minutes: the user's own limit, None for none.

    Raises:
        UserError: no time limit (submitit's own of 5 minutes would end every job), or too short.
    """
    limit = parameters.get(_LIMIT)
    others = {"slurm_time", f"slurm_{_LIMIT}"} & parameters.keys()
    if others:
        raise UserError(f"--slurm={min(others)}: say --slurm={_LIMIT}=MINUTES instead")
    if limit is None:
        raise UserError(
            f"--launcher=slurm needs the minutes a job may take: --slurm={_LIMIT}=240 for 4 hours"
        )
    if not isinstance(limit, int) or limit <= _MARGIN_MINUTES:
        raise UserError(
            f"--slurm={_LIMIT}={limit} is not a number of whole minutes above {_MARGIN_MINUTES}, "
            "which are kept for saving"
        )
    left = float(limit - _MARGIN_MINUTES)
    return left if minutes is None else min(left, minutes)


def slurm_executor(place: Place, parameters: dict[str, Any]) -> Any:
    """The executor of submitit that submits to Slurm.

    Args:
        place: of the sweep; logs of the jobs go to `<workdir>/slurm`.
        parameters: of submitit, `timeout_min`, `gpus_per_node`, `slurm_partition`, ...

    Raises:
        UserError: submitit is not installed, no Slurm on this machine, an unknown parameter.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--launcher=slurm needs submitit: pip install submitit") from None
    if shutil.which("sbatch") is None:
        raise UserError("no Slurm on this machine (no sbatch); try --launcher=print")
    try:
        executor = submitit.AutoExecutor(
            folder=place.workdir / "slurm", cluster="slurm", slurm_max_num_timeout=_MOST_TIMEOUTS
        )
        executor.update_parameters(**_with_ours(parameters))
    except (NameError, TypeError, ArithmeticError, ValueError, AssertionError, RuntimeError) as why:
        raise UserError(f"--slurm: {' '.join(str(why).split())}") from None
    return executor


def _with_ours(parameters: dict[str, Any]) -> dict[str, Any]:
    """The user's parameters of submitit, with what our jobs need beside them."""
    setup = parameters.get("slurm_setup", [])
    more = parameters.get("slurm_additional_parameters", {})
    if not isinstance(setup, list) or not isinstance(more, dict):
        raise ValueError("slurm_setup is a list, slurm_additional_parameters a dictionary")
    ours = {"slurm_setup": [_SETUP, *setup], "slurm_additional_parameters": _REQUEUE | more}
    return parameters | ours


def submit(
    runs: Iterable[tuple[Run, str]], place: Place, minutes: float, executor: Any
) -> list[Any]:
    """Submits one array with a job for each run, to train `minutes` a start; returns the jobs.

    Raises:
        UserError: Slurm, or submitit for it, refuses what --slurm asks for.
    """
    jobs = [_Job(run, place, mark, minutes) for run, mark in runs]
    if not jobs:  # submitit warns of an empty array
        return []
    from submitit.core.utils import FailedJobError

    try:
        with executor.batch():
            return [executor.submit(job) for job in jobs]
    except (FailedJobError, TypeError, ValueError, LookupError) as error:
        raise UserError(f"the jobs were refused, see --slurm: {error}") from None


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a job of the array does: the same as a local sweep with one run."""

    run: Run
    place: Place
    mark: str
    minutes: float

    def __call__(self) -> str:
        failures = Failures(self.place.workdir)
        outcome = attempt(self.run, self.place, self.mark, Budget(self.minutes), failures)
        if outcome is Outcome.FAILED:
            raise RuntimeError(f"{self.run.title()} failed: see {self.place.results}")
        if outcome is Outcome.TOO_SHORT:
            raise RuntimeError(f"{self.run.title()}: no step made in time: raise --slurm={_LIMIT}")
        if outcome is Outcome.STOPPED:
            _queue_again()
        if outcome is Outcome.CANCELLED:
            # Slurm queues again what it has preempted unless it ends by itself before.
            time.sleep(_GRACE_SECONDS)
        return outcome.value

    def checkpoint(self) -> Any:
        """What submitit puts back into the queue; what the run needs is in its folder."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def _queue_again() -> None:
    """Puts this job back into the queue and ends it, as submitit does on its own signal."""
    import submitit

    signal.raise_signal(signal.Signals[f"SIG{submitit.JobEnvironment.USR_SIG}"])
