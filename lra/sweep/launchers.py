"""Other ways to execute the runs: their commands for any scheduler, or an array of Slurm jobs."""

import dataclasses
import shlex
import shutil
from typing import Any

from lra.errors import UserError
from lra.sweep.budget import Budget
from lra.sweep.plan import Run
from lra.sweep.runner import Outcome, Place, attempt


def commands(runs: list[tuple[Run, str]], place: Place, minutes: float | None) -> list[str]:
    """One shell-quoted command a run; their rows are taken in by the next call of the sweep."""
    return [shlex.join(place.command(run, mark, minutes)) for run, mark in runs]


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
    executor = submitit.AutoExecutor(folder=place.workdir / "slurm", cluster="slurm")
    try:
        executor.update_parameters(**parameters)
    except (NameError, TypeError, ValueError) as error:
        raise UserError(f"--slurm: {' '.join(str(error).split())}") from None
    return executor


def submit(
    runs: list[tuple[Run, str]], place: Place, minutes: float | None, executor: Any
) -> list[Any]:
    """Submits one array with a job for each run; returns the jobs."""
    jobs = [_Job(run, place, mark, minutes) for run, mark in runs]
    with executor.batch():
        return [executor.submit(job) for job in jobs]


@dataclasses.dataclass(frozen=True)
class _Job:
    """What a job of the array does: the same as a local sweep with one run."""

    run: Run
    place: Place
    mark: str
    minutes: float | None

    def __call__(self) -> str:
        outcome = attempt(self.run, self.place, self.mark, Budget(self.minutes))
        if outcome is Outcome.FAILED:
            raise RuntimeError(f"{self.run.title()} failed: see {self.place.results}")
        return outcome.value
