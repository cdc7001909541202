"""What do a training step and an evaluation of each task and attention cost on this machine?

    python -m benchmarks.train_step --tasks=listops --attentions=all --seeds=1,3
    python -m benchmarks.train_step --tasks=all --dtype=bfloat16 --out=runs/train_step.jsonl
    python -m benchmarks.train_step --tasks=listops --profile=runs/profile
    python -m benchmarks.train_step --tasks=listops --largest_batch
    python -m benchmarks.train_step --attentions=standard --dtype=bfloat16 \\
        --override=model.attention.implementation=flash

Runs the real step of the protocol (batch, length, dropout, optimizer) through `lra.trainer` on
random tokens, in sequences whose lengths are distributed like the task's. Each case has a process
of its own, so that peak memory is its own. Prints for each case: seconds to compile, steps/s and
examples/s (summed over seeds; median of the calls that fit in --seconds), evaluated examples/s,
peak memory, the hours that the protocol's training and evaluations take at that speed, the model
FLOPs utilisation, and the time of a step of all seeds over that of one seed, if --seeds starts with
1. Utilisation counts the matrix products of the forward pass for real tokens three times (forward
and backward, nothing recomputed), as a share of the rate of a large matrix product in the same
precision, measured in the same process. At the end, prints for each number of seeds the total hours
of the measured whole runs, compilation included, that the table of accuracies needs.

--batch=N replaces the protocol's batch, and the hours of the protocol are left out. --largest_batch
doubles the batch, from --batch or the protocol's, until it does not fit (by the analysis of the
compiled program if the memory of the device is known, else by trying) or a step takes longer than
--seconds, and prints the largest that did fit, with its examples/s.

The cost of deterministic operations on a GPU is the difference of two tables; a column and the rows
say which is which:

    python -m benchmarks.train_step --tasks=listops --out=runs/train_step.jsonl
    XLA_FLAGS=--xla_gpu_deterministic_ops=true python -m benchmarks.train_step --tasks=listops \\
        --out=runs/train_step.jsonl

Compilation takes most of the time. With --compile_at_once=N, N cases compile in parallel (the
memory of all of them is needed at once) and are then timed one after another. Compilation seconds
are then those of N parallel compilations, and on a GPU XLA's autotuning runs in parallel too, so
that its choices may be worse.

--profile=DIR writes a trace of a few steps of each case to DIR/TASK-ATTENTION-SEEDS and prints the
operations that take the most time.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import pathlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator

from benchmarks import largest_batch, training_tables
from benchmarks.random_data import LONGEST
from benchmarks.worker import Worker, WorkerError
from configs.default import ATTENTIONS
from lra import training_rows
from lra.command_line import (
    ArgumentParser,
    file_to_write,
    folder,
    positive_integer,
    positive_integers,
    positive_number,
    run,
)
from lra.errors import NO_JAX, UserError
from lra.near_names import near_match
from lra.published import TABLE_TASKS
from lra.setting_values import DTYPES
from lra.settings import load_config
from lra.tasks import get_task


def main(argv: list[str]) -> int:
    """Measure every requested case and print a table."""
    options = _parser().parse_args(argv)
    if options.largest_batch and (options.profile or options.at_once > 1):
        raise UserError(
            "--largest_batch only tries batches, one by one: no --profile, no --compile_at_once"
        )
    tasks = choose(options.tasks, TABLE_TASKS, LONGEST)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    names = list(itertools.product(tasks, attentions))
    for task in tasks:
        if not get_task(task).counts:
            raise UserError(f"{task} has no counts in lra/tasks.py, which hours are computed from")
    for task, attention in names:
        load_config(f"configs/{task}.py:{attention}", options.override)
    measure_all, kind = _tabulate, training_rows.StepRow
    if options.largest_batch:
        measure_all, kind = _find_largest, training_rows.TrialRow
    training_rows.check(options.out, kind)
    last_lines, rows = measure_all(names, options)
    if all("failed" in row for row in rows):
        raise UserError("no case could be measured, see above")
    print("", *last_lines, sep="\n")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    add = parser.add_argument
    add("--tasks", default="all", help="comma-separated; all = those of the table")
    add("--attentions", default="all", help="comma-separated")
    add("--seeds", type=positive_integers, default=[1], help="numbers of seeds in a program: 1,3")
    add("--dtype", default="float32", choices=DTYPES)
    add("--batch", type=positive_integer, help="examples of a step (the protocol's)")
    add(
        "--override",
        action="append",
        type=_override,
        default=[],
        metavar="KEY=VALUE",
        help="of all cases' configs: model.*, matmul_precision",
    )
    add("--seconds", type=positive_number, default=20.0, help="of measuring per case (%(default)s)")
    add("--out", type=file_to_write, metavar="FILE", help="append a row a case")
    add(
        "--compile_at_once",
        type=positive_integer,
        default=1,
        dest="at_once",
        metavar="N",
        help="cases whose programs compile beside each other; they are timed one by one",
    )
    add("--profile", type=folder, metavar="DIR", help="see above")
    add("--largest_batch", action="store_true", help="see above")
    return parser


def _tabulate(
    names: list[tuple[str, str]], options: argparse.Namespace
) -> tuple[list[str], list[dict]]:
    """Measure and print a row for each task, attention and number of seeds.

    Returns:
        The lines to print at the end, and the rows.
    """
    print(training_tables.STEP_HEADER)
    rows, one_seed_rows = [], {}
    cases = [(*name, seeds) for name in names for seeds in options.seeds]
    for first in range(0, len(cases), options.at_once):
        group = cases[first : first + options.at_once]
        for row in _in_processes(group, options):
            name = row["task"], row["attention"]
            if row["seeds"] == 1:
                one_seed_rows[name] = row
            one_seed = one_seed_rows.get(name)
            if one_seed and "failed" not in one_seed | row:
                cost = one_seed["steps_per_second"] / row["steps_per_second"]
                row["cost_against_one_seed"] = cost
            if len(group) > 1 and "failed" not in row:
                row["compiled_beside"] = len(group) - 1
            print(training_tables.step_line(row), flush=True)
            rows.append(row)
            if options.out:
                training_rows.append(options.out, row, training_rows.StepRow)
    return training_tables.sums(rows), rows


def _find_largest(
    names: list[tuple[str, str]], options: argparse.Namespace
) -> tuple[list[str], list[dict]]:
    """Like `_tabulate`, with ever larger batches."""
    print(largest_batch.HEADER)
    verdicts, rows = [], []
    for (task, attention), seeds in itertools.product(names, options.seeds):
        answers = []
        for answer in _try_batches((task, attention, seeds), options):
            print(largest_batch.line(answer), flush=True)
            answers.append(answer)
            if options.out:
                training_rows.append(options.out, answer, training_rows.TrialRow)
        verdicts.append(largest_batch.verdict(answers, options.seconds))
        rows += answers
    return verdicts, rows


def _try_batches(case: tuple[str, str, int], options: argparse.Namespace) -> Iterator[dict]:
    def ask(batch: int) -> dict:
        row = _in_a_process(case, argparse.Namespace(**vars(options) | {"batch": batch}))
        return {"batch": batch, "fits": "failed" not in row} | row

    task, attention, _ = case
    config = load_config(f"configs/{task}.py:{attention}", options.override)
    first = options.batch or config.train.batch_size
    return largest_batch.doubled(ask, first, get_task(task).counts["train"], options.seconds)


def choose(text: str, every: Iterable[str], known: Collection[str]) -> list[str]:
    """Parse comma-separated names; "all" stands for `every` name.

    Raises:
        UserError: If a name is not in `known`.
    """
    names = list(every) if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"unknown '{name}'{near_match(name, known)}")
    return names


def _override(text: str) -> str:
    """Check a value of `--override`: only keys that are not fields of a row may be set."""
    if not text.startswith(("model.", "matmul_precision=")):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not of model or matmul_precision; the protocol is measured, in the "
            "--dtype, with the --seeds and the --batch asked for"
        )
    return text


def _in_a_process(case: tuple[str, str, int], options: argparse.Namespace) -> dict:
    """Measure a task, attention and number of seeds in a process of its own; return its row."""
    return next(_in_processes([case], options))


def _in_processes(cases: list[tuple[str, str, int]], options: argparse.Namespace) -> Iterator[dict]:
    """Yield the rows of cases, each in its own process: compiled in parallel, timed one by one."""
    env = {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # compilation is timed
    env |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if len(cases) > 1 else {}
    with contextlib.ExitStack() as stack:
        workers = [Worker(_measurer, options, environment=env) for _ in cases]
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            failures = list(pool.map(_compile, workers, cases))
        for worker, case, failure in zip(workers, cases, failures, strict=True):
            try:
                row = failure or worker.ask("time", *case)
            except WorkerError as error:
                row = _failed_row(case, error)
            yield row | _conditions(case, options) if "failed" in row else row
            worker.close()  # frees its memory for the next


def _compile(worker: Worker, case: tuple[str, str, int]) -> dict | None:
    """Compile a case; return its row if that failed."""
    try:
        worker.ask("compile", *case)
    except WorkerError as error:
        return _failed_row(case, error)
    return None


def _conditions(case: tuple[str, str, int], options: argparse.Namespace) -> dict:
    """Return the fields of a successful row that tell what else a failed one could not do."""
    task, attention, _ = case
    config = load_config(f"configs/{task}.py:{attention}", options.override)
    batch = options.batch or config.train.batch_size
    return {"batch": batch, "dtype": options.dtype, "overrides": list(options.override)}


def _failed_row(case: tuple[str, str, int], error: WorkerError) -> dict:
    """Return the row of a case that failed, and print the reason to stderr.

    Raises:
        UserError: If JAX cannot be used at all.
    """
    if str(error).startswith(NO_JAX):  # every other case would fail too
        raise UserError(str(error))
    crashed = error.kind != "out_of_memory"
    advice = "" if crashed else "; a smaller --batch or fewer --seeds need less"
    print(f"{', '.join(map(str, case))}: {error}{advice}", file=sys.stderr)
    row = dict(zip(("task", "attention", "seeds"), case, strict=True))
    why = "see above" if crashed else "out of memory"
    return row | {"failed": True, "crashed": crashed, "why": why}


def _measurer(options: argparse.Namespace) -> Callable[..., dict | None]:
    """Return a function that measures one case in its process, asked to `compile`, then `time`."""
    from benchmarks.train_case import Measurement, TrainCase, trial
    from lra.environment import check_jax

    check_jax()
    compiled: list[Measurement] = []

    def answer(request: str, task: str, attention: str, seeds: int) -> dict | None:
        case = TrainCase(
            task, attention, seeds, options.dtype, options.batch, tuple(options.override)
        )
        if request == "compile":
            if not options.largest_batch:  # with it, a program may not fit
                compiled.append(Measurement(case))
            return {}
        if options.largest_batch:
            return trial(case)
        (measurement,) = compiled
        profile = pathlib.Path(options.profile) if options.profile else None
        return measurement.row(options.seconds, profile=profile)

    return answer


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --batch or fewer --seeds need less")
