"""Execute the runs of a sweep file that have no rows yet and add their rows to --results.

    python -m lra.sweep configs/sweeps/table.py --results=runs/table.jsonl
    python -m lra.sweep configs/sweeps/landmarks.py --results=runs/sweeps.jsonl --tasks=text

For other schedulers, print the commands, one per line; the next sweep collects their rows:

    python -m lra.sweep configs/sweeps/table.py --results=runs/table.jsonl \\
        --launcher=print | xargs -r -d '\\n' -P2 -n1 sh -c 'sh -c "$0" || exit 1'

With --jobs=N, N runs are executed at once. Lines on stderr then come from all of them.

A sweep can be stopped at any moment; the same command resumes it. --config.KEY=VALUE applies to
all runs. Exit status: 0 all done; 1 some runs failed or have rows of older defaults; 2 bad input,
such as no data for any remaining run; 75 stopped early by budget or signal (run again to resume).
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
from typing import Any

from lra import records
from lra.command_line import (
    ArgumentParser,
    folder,
    literal,
    parse_with_overrides,
    positive_integer,
    positive_minutes,
    run,
)
from lra.data.prepared import MANIFEST
from lra.errors import UserError
from lra.stderr import say
from lra.stopping import STATUS_STOPPED
from lra.sweep import jobs, launchers
from lra.sweep.budget import Budget
from lra.sweep.data import Data
from lra.sweep.listing import listing
from lra.sweep.place import Place
from lra.sweep.ready import Ready, marks, notes_on_data
from lra.sweep.runner import execute
from lra.sweep.runs import Sweep, count
from lra.sweep.sweep_file import load_sweep

_TRAIN = (sys.executable, str(pathlib.Path(__file__).resolve().parents[2] / "train.py"))
_SWEEP = (sys.executable, "-m", "lra.sweep")
_STATUS_SOME_FAILED = 1


def main(argv: list[str], train: tuple[str, ...] = _TRAIN, again: tuple[str, ...] = _SWEEP) -> int:
    """Parse the flags and run the sweep.

    Args:
        argv: Command-line arguments.
        train: Training command without its flags.
        again: Command of this program without its flags.
    """
    options, overrides = parse_with_overrides(_parser(), argv)
    slurm = _slurm_parameters(options)
    if options.jobs > 1 and options.launcher != "local":
        raise UserError(f"--jobs={options.jobs} needs --launcher=local")
    sweep = load_sweep(options.sweep, _tasks(options), overrides)
    place = _place(options, sweep, train)
    for path in place.known:
        records.read(path, repair=False)  # fail early on invalid files
    if options.dry_run:
        return _list(sweep, place)
    if options.jobs > 1:
        number = min(options.jobs, len(sweep.runs))
        return jobs.execute([*again, *argv, "--jobs=1"], number)
    executor = None
    if options.launcher == "slurm":
        launchers.check_slurm()
        options.budget_minutes = launchers.job_minutes(slurm, options.budget_minutes)
        executor = launchers.slurm_executor(place, slurm)
    # SIGTERM ends a sweep like Ctrl-C. While a child runs, both are forwarded to it instead.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _launch(sweep, place, options, executor)
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        return STATUS_STOPPED


def _tasks(options: argparse.Namespace) -> tuple[str, ...]:
    """The tasks named by --tasks; none: those of the sweep file."""
    tasks = tuple(task for task in (options.tasks or "").split(",") if task)
    if options.tasks is not None and not tasks:
        raise UserError(
            f"--tasks={options.tasks} names no task; leave it out for those of the file"
        )
    return tasks


def _place(options: argparse.Namespace, sweep: Sweep, train: tuple[str, ...]) -> Place:
    workdir = pathlib.Path(options.workdir or f"runs/{pathlib.Path(options.sweep).stem}")
    if (workdir / MANIFEST).is_file():
        raise UserError(f"{workdir} holds prepared data; choose another --workdir")
    results = pathlib.Path(options.results).expanduser()
    if results.resolve() == workdir.resolve():
        raise UserError(
            f"--results={results} is the folder of the runs (--workdir); name a file, such as "
            f"{results}.jsonl"
        )
    # Data generated with this sweep's own flags are kept apart from everyone else's.
    data_dir = options.data_dir or str(workdir / "data" if sweep.data else "data")
    return Place(
        train=train,
        results=results,
        workdir=workdir,
        data=Data(data_dir, sweep.data),
        known=tuple(pathlib.Path(path).expanduser() for path in options.known),
        repairs=not options.dry_run,
    )


def _list(sweep: Sweep, place: Place) -> int:
    """Print what is done and missing, once nothing can fail any more."""
    data_marks, problems = marks(sweep, place)
    text = listing(sweep, place, data_marks)
    for line in (*problems, *notes_on_data(place, data_marks)):
        say(line)
    print(text)
    return 0


def _launch(sweep: Sweep, place: Place, options: argparse.Namespace, executor: Any) -> int:
    local = options.launcher == "local"
    # With the other launchers, --budget_minutes limits each run instead.
    budget = Budget(options.budget_minutes if local else None)
    ready, failed, stopped = Ready(sweep, place, budget), 0, False
    if options.launcher != "print":  # the printed commands may run on other machines
        _check_writable(place.workdir)
    if options.launcher == "print":
        for command in launchers.commands(ready, options.budget_minutes):
            # As bytes, since a path need not be valid Unicode.
            sys.stdout.buffer.write(os.fsencode(command) + b"\n")
    elif options.launcher == "slurm":
        submitted = launchers.submit(ready, options.budget_minutes, executor)
        job_ids = ", ".join(job.job_id for job in submitted) or "nothing to do"
        say(f"submitted {count(len(submitted), 'job')}: {job_ids}")
    else:
        say(f"{count(len(sweep.runs))}, {len(ready)} to execute, rows go to {place.results}")
        failed, stopped = execute(ready, place.workdir, budget)
        stopped = stopped and bool(len(ready))  # the last run may have ended in spite of a signal
    if ready.postponed and not ready.started:  # another start would get no further
        raise UserError("; ".join(ready.postponed))
    for line in ready.postponed:
        say(line)
    failed += ready.cannot
    if failed:
        say(f"{count(failed)} failed or could not start; the same command tries again")
    if stopped or ready.postponed:
        return STATUS_STOPPED
    if failed or ready.older:
        return _STATUS_SOME_FAILED
    if local:
        place.results.touch()  # missing if other files had all rows; the report reads it
    return 0


def _check_writable(workdir: pathlib.Path) -> None:
    """Raise UserError if the runs cannot be stored, before data are generated for them."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=workdir).close()
    except OSError as error:
        raise UserError(
            f"cannot write to --workdir={workdir}: {error.strerror}; choose another folder"
        ) from None


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m lra.sweep", description=__doc__)
    parser.add_argument("sweep", metavar="SWEEP.py", help="the runs: see lra/sweep/sweep_file.py")
    parser.add_argument("--results", required=True, metavar="FILE.jsonl", help="rows go here")
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="FILE.jsonl",
        help="other rows that count as done: those of the table in a sweep over one of its options",
    )
    parser.add_argument(
        "--workdir", type=folder, metavar="DIR", help="one folder a run (runs/SWEEP)"
    )
    parser.add_argument(
        "--data_dir",
        type=folder,
        metavar="DIR",
        help="prepared data (data, or WORKDIR/data if the sweep file has DATA of its own)",
    )
    parser.add_argument("--tasks", metavar="A,B", help="only these")
    parser.add_argument(
        "--budget_minutes",
        type=positive_minutes,
        metavar="M",
        help="stop before M minutes; a compilation is not interrupted, so may overrun",
    )
    parser.add_argument(
        "--jobs",
        type=positive_integer,
        default=1,
        metavar="N",
        help="runs at once, each with its share of CPU cores and of CUDA_VISIBLE_DEVICES (1)",
    )
    parser.add_argument("--launcher", choices=("local", "print", "slurm"), default="local")
    parser.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of submitit: timeout_min=240 (must be given), slurm_partition=gpu, gpus_per_node=1",
    )
    parser.add_argument("--dry_run", action="store_true", help="only list what is done and missing")
    return parser


def _slurm_parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Parse the KEY=VALUE pairs of --slurm: `["gpus_per_node=1"]` -> `{"gpus_per_node": 1}`."""
    parameters = {}
    for pair in options.slurm:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"--slurm={pair} is not KEY=VALUE")
        parameters[name] = literal(text)
    if parameters and options.launcher != "slurm":
        raise UserError(f"--slurm={options.slurm[0]} needs --launcher=slurm")
    return parameters


if __name__ == "__main__":
    run(main)
