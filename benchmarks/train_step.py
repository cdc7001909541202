"""What does a training step of each task and attention cost, and an evaluation, on this machine?

    python -m benchmarks.train_step --tasks=listops --attentions=all --seeds=1,3
    python -m benchmarks.train_step --tasks=all --dtype=bfloat16 --out=results/train_step.jsonl
    python -m benchmarks.train_step --tasks=listops --profile=runs/profile --compare_loop

The real step of the real protocol (batch, length, dropout, optimizer) through `lra.trainer`, on
random tokens of the task's length. Each case runs in a process of its own, so that peak memory is
its own. Printed, per case: seconds to compile, steps/s and examples/s (summed over seeds; median
of the calls that fit in --seconds), evaluated examples/s, peak memory, the hours that the
protocol's training and evaluations take at that speed, the model's utilisation (the matrix
products of its forward pass, three times (forward and backward, nothing recomputed), as a share
of the rate of a large matrix product in the same precision, measured in the same process), and the
time of a step of all seeds over that of one seed, where --seeds has 1 first. At the end, for each
number of seeds, the hours of all whole runs measured that the table of accuracies needs.

What deterministic operations cost on a GPU is the difference of two tables; a column and the rows
say which is which:

    python -m benchmarks.train_step --tasks=listops --out=results/train_step.jsonl
    XLA_FLAGS=--xla_gpu_deterministic_ops=true python -m benchmarks.train_step --tasks=listops \\
        --out=results/train_step.jsonl

--profile=DIR writes a trace of a few steps of each case to DIR/TASK-ATTENTION-SEEDS and prints the
operations that take the most time. --compare_loop also times the same steps as a loop of known
length, which on a GPU need not ask the device after each step whether to go on; the two take turns.
"""

import itertools
import json
import pathlib
import subprocess
import sys
from collections.abc import Collection, Iterable

from benchmarks.random_data import SIZES
from configs.default import ATTENTIONS
from lra.command_line import ArgumentParser, near_match, positive_integers, run
from lra.errors import UserError
from lra.published import TABLE3

TABLE = ("listops", "text", "retrieval", "image", "pathfinder")
_CELLS = {(task, attention) for attention, tasks in TABLE3.items() for task in tasks}


def main(argv: list[str]) -> int:
    """Measures every case asked for and prints a table."""
    parser = ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    parser.add_argument("--tasks", default="all", help="comma-separated; all = those of the table")
    parser.add_argument("--attentions", default="all", help="comma-separated")
    parser.add_argument(
        "--seeds", type=positive_integers, default=[1], help="numbers of seeds in a program: 1,3"
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring per case")
    parser.add_argument("--out", type=pathlib.Path, help="append one JSON line a case")
    parser.add_argument("--profile", type=pathlib.Path, metavar="DIR", help="see above")
    parser.add_argument("--compare_loop", action="store_true", help="see above")
    parser.add_argument("--case", help="task,attention,seeds: measure only this, print JSON")
    options = parser.parse_args(argv)
    if options.case:
        print(json.dumps(_measure(options)))
        return 0
    tasks = choose(options.tasks, TABLE, SIZES)
    attentions = choose(options.attentions, ATTENTIONS, ATTENTIONS)
    print(_HEADER)
    rows = []
    for task, attention in itertools.product(tasks, attentions):
        one = None
        for seeds in options.seeds:
            row = _in_a_process(task, attention, seeds, options)
            one = row if seeds == 1 else one
            if one and "failed" not in one | row:
                row["cost_against_one_seed"] = one["steps_per_second"] / row["steps_per_second"]
            print(_line(row), flush=True)
            rows.append(row)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    if all("failed" in row for row in rows):
        raise UserError("no case could be measured, see above")
    print()
    for line in _sums(rows):
        print(line)
    return 0


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


def _in_a_process(task: str, attention: str, seeds: int, options) -> dict:
    command = [sys.executable, "-m", "benchmarks.train_step", f"--case={task},{attention},{seeds}"]
    command += [f"--dtype={options.dtype}", f"--seconds={options.seconds}"]
    command += ["--compare_loop"] if options.compare_loop else []
    command += [f"--profile={options.profile}"] if options.profile else []
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        return {"task": task, "attention": attention, "seeds": seeds, "failed": True}
    return json.loads(ended.stdout.splitlines()[-1])


def _measure(options) -> dict:
    """The row of `--case`, in this process."""
    from benchmarks.train_case import Case, measure

    task, attention, seeds = options.case.split(",")
    case = Case(task, attention, int(seeds), options.dtype)
    return measure(
        case, options.seconds, compare_loop=options.compare_loop, profile=options.profile
    )


def _sums(rows: list[dict]) -> list[str]:
    """A line for each number of seeds: the hours of whole runs, and which part of the table's."""
    hours: dict[int, dict[tuple[str, str], float]] = {}
    for row in rows:
        cell = row["task"], row["attention"]
        if cell in _CELLS and "failed" not in row:
            hours.setdefault(row["seeds"], {})[cell] = row["whole_hours"]
    return [
        f"{seeds} seed{'s in one program' if seeds > 1 else ''}: {len(of_cells)} of "
        f"{len(_CELLS)} cells of the table, {sum(of_cells.values()):.3g} h in all (training, "
        "evaluations, compilation)"
        for seeds, of_cells in hours.items()
    ]


_TITLES = (
    *(
        "task",
        "attention",
        "seeds",
        "deterministic",
        "compile s",
        "steps/s",
        "examples/s",
        "eval ex/s",
        "peak MB",
    ),
    *("protocol h", "of matmul rate", "of one seed's time"),
)
_HEADER = f"| {' | '.join(_TITLES)} |\n|{'---|' * len(_TITLES)}"


def _line(row: dict) -> str:
    if "failed" in row:
        return f"| {row['task']} | {row['attention']} | {row['seeds']} | failed |"
    share = row["flops_per_step"] * row["steps_per_second"] / row["peak_flops_per_second"]
    against = f"{row['cost_against_one_seed']:.2f}" if "cost_against_one_seed" in row else ""
    loop = ""
    if "loop" in row:
        milliseconds = {form: f"{1e3 * seconds:.3g}" for form, seconds in row["loop"].items()}
        loop = "\nloop, ms/step: " + ", ".join(f"{k} {v}" for k, v in milliseconds.items())
    return (
        f"| {row['task']} | {row['attention']} | {row['seeds']} | "
        f"{'yes' if row['deterministic'] else 'no'} | {row['compile_seconds']:.1f} | "
        f"{row['steps_per_second']:.3g} | {row['examples_per_second']:.4g} | "
        f"{row['eval_examples_per_second']:.4g} | {row['peak_memory_mb']:.0f} | "
        f"{row['protocol_hours']:.3g} | {share:.1%} | {against} |{loop}"
    )


if __name__ == "__main__":
    run(main)
