"""What does a training step of each task and attention cost, and an evaluation, on this machine?

    python -m benchmarks.train_step --tasks=listops --attentions=all --seeds=1,3
    python -m benchmarks.train_step --tasks=all --dtype=bfloat16 --out=runs/train_step.jsonl
    python -m benchmarks.train_step --tasks=listops --profile=runs/profile
    python -m benchmarks.train_step --tasks=listops --largest_batch
    python -m benchmarks.train_step --attentions=standard --dtype=bfloat16 \\
        --override=model.attention.implementation=flash

The real step of the real protocol (batch, length, dropout, optimizer) through `lra.trainer`, on
random tokens, in sequences whose lengths are distributed as the task's. Each case runs in a process
of its own, so that peak memory is its own. Printed, per case: seconds to compile, steps/s and
examples/s (summed over seeds; median of the calls that fit in --seconds), evaluated examples/s,
peak memory, the hours that the protocol's training and evaluations take at that speed, the model's
utilisation (the matrix products of its forward pass for real tokens, three times (forward and
backward, nothing recomputed), as a share of the rate of a large matrix product in the same
precision, measured in the same process), and the time of a step of all seeds
over that of one seed, where --seeds has 1 first. At the end, for each number of seeds, the hours of
all whole runs measured that the table of accuracies needs.

--batch=N replaces the protocol's batch, and the hours of the protocol are left out. --largest_batch
doubles the batch, from --batch or the protocol's, until it does not fit (by the analysis of the
compiled program, where the device tells its memory, else by trying) or a step takes longer than
--seconds, and prints the largest that did, with its examples/s.

What deterministic operations cost on a GPU is the difference of two tables; a column and the rows
say which is which:

    python -m benchmarks.train_step --tasks=listops --out=runs/train_step.jsonl
    XLA_FLAGS=--xla_gpu_deterministic_ops=true python -m benchmarks.train_step --tasks=listops \\
        --out=runs/train_step.jsonl

Compilation takes most of the time. With --compile_at_once=N, N cases compile beside each other (all
of their memory is needed together), then they are timed one after another. Seconds of compilation
are then those beside N - 1 others, and on a GPU XLA tries kernels out beside them, so that its
choices may be worse.

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
    near_match,
    positive_integer,
    positive_integers,
    positive_number,
    run,
)
from lra.errors import UserError
from lra.published import TASKS
from lra.setting_values import DTYPES
from lra.settings import load_config
from lra.tasks import get_task


def main(argv: list[str]) -> int:
    """Measures every case asked for and prints a table."""
    options = _parser().parse_args(argv)
    if options.largest_batch and (options.profile or options.at_once > 1):
        raise UserError(
            "--largest_batch only tries batches, one by one: no --profile, no --compile_at_once"
        )
    tasks = choose(options.tasks, TASKS, LONGEST)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    names = list(itertools.product(tasks, attentions))
    for task, attention in names:
        load_config(f"configs/{task}.py:{attention}", options.override)
    training_rows.check(options.out)
    measure_all = _find_largest if options.largest_batch else _tabulate
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
    add("--profile", type=pathlib.Path, metavar="DIR", help="see above")
    add("--largest_batch", action="store_true", help="see above")
    return parser


def _tabulate(
    names: list[tuple[str, str]], options: argparse.Namespace
) -> tuple[list[str], list[dict]]:
    """Measures and prints a row for each task, attention and number of seeds.

    Returns:
        What to print in the end, and the rows.
    """
    print(training_tables.STEP_HEADER)
    rows, one_seed = [], {}
    cases = [(*name, seeds) for name in names for seeds in options.seeds]
    for first in range(0, len(cases), options.at_once):
        group = cases[first : first + options.at_once]
        for row in _in_processes(group, options):
            name = row["task"], row["attention"]
            if row["seeds"] == 1:
                one_seed[name] = row
            one = one_seed.get(name)
            if one and "failed" not in one | row:
                row["cost_against_one_seed"] = one["steps_per_second"] / row["steps_per_second"]
            if len(group) > 1 and "failed" not in row:
                row["compiled_beside"] = len(group) - 1
            print(training_tables.step_line(row), flush=True)
            rows.append(row)
            if options.out:
                training_rows.append(options.out, row)
    return training_tables.sums(rows), rows


def _find_largest(
    names: list[tuple[str, str]], options: argparse.Namespace
) -> tuple[list[str], list[dict]]:
    """As `_tabulate`, with larger and larger batches."""
    print(largest_batch.HEADER)
    verdicts, rows = [], []
    for (task, attention), seeds in itertools.product(names, options.seeds):
        answers = []
        for answer in _ever_larger((task, attention, seeds), options):
            print(largest_batch.line(answer), flush=True)
            answers.append(answer)
            if options.out:
                training_rows.append(options.out, answer)
        verdicts.append(largest_batch.verdict(answers, options.seconds))
        rows += answers
    return verdicts, rows


def _ever_larger(case: tuple[str, str, int], options: argparse.Namespace) -> Iterator[dict]:
    def ask(batch: int) -> dict:
        row = _in_a_process(case, argparse.Namespace(**vars(options) | {"batch": batch}))
        return {"batch": batch, "fits": "failed" not in row} | row

    task, attention, _ = case
    config = load_config(f"configs/{task}.py:{attention}", options.override)
    first = options.batch or config.train.batch_size
    return largest_batch.doubled(ask, first, get_task(task).counts["train"], options.seconds)


def choose(text: str, every: Iterable[str], known: Collection[str]) -> list[str]:
    """The names in `text`, separated by commas; `every` for "all".

    Raises:
        UserError: a name that is not `known`.
    """
    names = list(every) if text == "all" else text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"unknown '{name}'{near_match(name, known)}")
    return names


def _override(text: str) -> str:
    """The type of `--override`: keys that rows do not name elsewhere."""
    if not text.startswith(("model.", "matmul_precision=")):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not of model or matmul_precision; the protocol is measured, in the "
            "--dtype, with the --seeds and the --batch asked for"
        )
    return text


def _in_a_process(case: tuple[str, str, int], options: argparse.Namespace) -> dict:
    """The row of a task, an attention and a number of seeds, measured by a process of its own."""
    return next(_in_processes([case], options))


def _in_processes(cases: list[tuple[str, str, int]], options: argparse.Namespace) -> Iterator[dict]:
    """The rows of cases, each of a process of its own: compiled beside each other, timed alone."""
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if len(cases) > 1 else {}
    with contextlib.ExitStack() as stack:
        workers = [Worker(_measurer, options, environment=env) for _ in cases]
        for worker in workers:
            stack.callback(worker.close)
            worker.start()
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            failures = list(pool.map(_failure_to_compile, workers, cases))
        for worker, case, failure in zip(workers, cases, failures, strict=True):
            try:
                yield failure or worker.ask("time", *case)
            except WorkerError as error:
                yield _failed(case, error)
            worker.close()  # frees its memory for the next


def _failure_to_compile(worker: Worker, case: tuple[str, str, int]) -> dict | None:
    try:
        worker.ask("compile", *case)
    except WorkerError as error:
        return _failed(case, error)
    return None


def _failed(case: tuple[str, str, int], error: WorkerError) -> dict:
    """The row of a case that failed; the reason goes to stderr."""
    crashed = error.kind != "out_of_memory"
    cure = "" if crashed else "; a smaller --batch or fewer --seeds need less"
    print(f"{', '.join(map(str, case))}: {error}{cure}", file=sys.stderr)
    row = dict(zip(("task", "attention", "seeds"), case, strict=True))
    why = "see above" if crashed else "out of memory"
    return row | {"failed": True, "crashed": crashed, "why": why}


def _measurer(options: argparse.Namespace) -> Callable[..., dict | None]:
    """Answers for one case, in the process in which it is called: first `compile`, then `time`."""
    from benchmarks.train_case import Measurement, TrainCase, trial

    compiled: list[Measurement] = []

    def answer(request: str, task: str, attention: str, seeds: int) -> dict | None:
        case = TrainCase(
            task, attention, seeds, options.dtype, options.batch, tuple(options.override)
        )
        if request == "compile":
            if not options.largest_batch:  # whose programs need not fit
                compiled.append(Measurement(case))
            return {}
        if options.largest_batch:
            return trial(case)
        (measurement,) = compiled
        return measurement.row(options.seconds, profile=options.profile)

    return answer


if __name__ == "__main__":
    run(main, out_of_memory="a smaller --batch or fewer --seeds need less")
